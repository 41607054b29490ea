"""The corruptions of CIFAR-10-C (Hendrycks and Dietterich 2019), on whole batches of pictures and on any device.

Each takes pictures [n, 3, 32, 32] in [0, 1], a severity from 1 to 5 and the samples' random numbers, and gives
pictures that may leave [0, 1]. The constants are those of the CIFAR version, milder than ImageNet-C's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.sets.corruptions.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from bise.data.sets.corruptions.digital import brightness, contrast, elastic_transform, original, pixelate, saturate
from bise.data.sets.corruptions.jpeg import jpeg_compression
from bise.data.sets.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from bise.data.sets.corruptions.weather import fog, frost, snow, spatter
from bise.data.sets.draws import Draws

__all__ = ["CORRUPTIONS", "VERSION", "corrupt"]

VERSION = 1
"""To be raised whenever a corruption gives other pictures: what was made before is then made again."""
CHUNK = 500
"""Pictures that are worked on at once: few enough for a CPU's cache to help."""

CORRUPTIONS: dict[str, Callable[[Tensor, int, Draws], Tensor]] = {
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "spatter": spatter,
    "elastic_transform": elastic_transform,
    "jpeg_compression": jpeg_compression,
    "pixelate": pixelate,
    "saturate": saturate,
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "original": original,
}


def corrupt(x: Tensor, name: str, *, severity: int = 5, seed: int = 0, index: Tensor | None = None) -> Tensor:
    """Pictures uint8 [n, 3, 32, 32], corrupted, as uint8; a picture's random numbers follow from seed and its index."""
    if name not in CORRUPTIONS:
        raise BadInput(f"corruption {name!r} is unknown; use one of {', '.join(CORRUPTIONS)}")
    if severity not in range(1, 6):
        raise BadInput(f"severity={severity} is unknown; use 1 to 5")
    if x.dtype != torch.uint8 or x.dim() != 4 or x.shape[1:] != (3, 32, 32):
        raise BadInput(f"pictures are {x.dtype} of shape {tuple(x.shape)}; give uint8 [n, 3, 32, 32]")
    index = torch.arange(len(x)) if index is None else index
    if index.shape != (len(x),):
        raise BadInput(f"index has shape {tuple(index.shape)} for {len(x)} pictures; give one number for each")
    draws = Draws(seed=seed, index=index.to(x.device))
    out = torch.empty_like(x)
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        made = CORRUPTIONS[name](x[part].float() / 255, severity, draws[part])
        # the source cuts off, it doesn't round; the little that is added keeps a value that is whole, whole
        out[part] = (made.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)
    return out
