"""torchvision beside a CPU-only torch."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from bise.base.errors import BadInput


def torchvision() -> ModuleType:
    """Import torchvision, defining the two operators that its published wheels miss beside a CPU-only torch.

    Only on that very error: beside a matching torch the operators exist, and defining them again would raise.
    """
    try:
        import torchvision as module
    except ModuleNotFoundError as error:
        raise BadInput("torchvision is not installed; install the extra: pip install 'bise[vision]'") from error
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.define("torchvision::qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        import torchvision as module
    return module
