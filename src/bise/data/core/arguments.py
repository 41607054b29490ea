"""What the data sets' loaders take, checked alike."""

from __future__ import annotations

SPLITS = ("train", "val", "test")
SEARCH = "search"
"""What masks are learned on where a protocol has data of their own for them."""
