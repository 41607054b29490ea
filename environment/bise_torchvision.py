"""Lets torchvision be imported beside a torch of another build, such as a CPU-only one.

`make` copies this file into its .venv, with a .pth file that imports it whenever Python starts, where torchvision's
wheel doesn't fit torch's; elsewhere it is not there. It imports nothing and waits until torchvision is imported. Where
torchvision's compiled operators can't be loaded, as it then found out itself, it declares two of them, nms and qnms,
which torchvision wants to describe to torch's compiler. Models and transforms work then. The compiled operators
themselves, of detection, are still missing: torchvision says so when one of them is called. Delete both files to be
rid of it.
"""

import sys

OPERATORS = ("nms", "qnms")


class Waiting:
    """A finder of modules that finds none: it acts when torchvision's own registrations are next to be imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torchvision._meta_registrations":
            sys.meta_path.remove(cls)
            extension = sys.modules.get("torchvision.extension")
            if extension is not None and not extension._has_ops():
                declare()


def declare():
    """Declare those of the operators that nobody has declared yet; they have no implementation."""
    import logging

    import torch

    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    logging.getLogger(__name__).info("torchvision's compiled operators don't fit torch %s", torch.__version__)


sys.meta_path.insert(0, Waiting)
