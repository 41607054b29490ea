"""Every table and figure of the paper as a study: what to run, how to show it, and the paper's own figures."""
