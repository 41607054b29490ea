"""`report.html`: one self-contained page about a run, for a reader who knows no code."""
