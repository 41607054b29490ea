"""Shrinking: closed units removed physically, the same function to float64 rounding."""
