"""In other people's training loops: an audit after each epoch, and figures for their logs."""
