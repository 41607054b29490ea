"""BISE."""
