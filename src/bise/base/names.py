"""Names that options take and that several rooms know; nothing is imported, so that a shell completes them fast."""

from __future__ import annotations

FITS = ("squash", "crop", "pad")
"""What becomes of a picture whose sides have another ratio than its size; the first is the default."""
SQUASH = FITS[0]
VANILLA = "vanilla"
"""The model of a run itself."""
STREAMS = ("narrow", "union", "auto")
"""How wide shrinking leaves the segments of a residual stream."""
NETWORKS = ("subnetwork", "refitted", "finetuned", "dense_finetuned")
"""Networks that a run may hold."""
BIAS_SOURCES = ("epoch", "lwbc", "jtt", "eiil", "pgi", "debian", "vcba")
"""What can guess bias labels: a model of one epoch, and the methods that tell conflicting samples by themselves."""
