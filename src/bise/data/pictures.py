"""Picture files of any kind as bytes [C, H, W]; what can't be read is named, with the reason."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bise.data.contract import Progress
from bise.data.strings import Strings
from bise.errors import BadInput, BiseWarning

MOST_PIXELS = 1 << 27
"""A larger picture is refused before it is decoded: a file of some kilobytes can claim any size."""
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif")


def read_picture(source: str | Path | bytes, *, size: tuple[int, int], channels: int = 3, name: str = "") -> Tensor:
    """A picture file, or its content, as uint8 [channels, height, width], resized to `size` = (height, width).

    Turned as its EXIF orientation says. Transparency is dropped, as torchvision's loader does; 16 bits are
    scaled to 8; of an animation the first frame is taken, with a warning.
    """
    tensor, animated = _read(source, size, channels, name or _name(source))
    if animated:
        warnings.warn(f"{name or _name(source)} is animated; its first frame is taken", BiseWarning, stacklevel=2)
    return tensor


class PictureFiles(Dataset[Tensor]):
    """Picture files as uint8 [channels, height, width], read when they are asked for.

    `paths` are taken from `root` where they are relative. Wrap it with labels and a transform, which is then done
    in batches on the device: `Labelled(PictureFiles(…), y=…, b=…, transform=Transform(mean=…, std=…))`.
    """

    def __init__(
        self,
        paths: Iterable[str | Path] | Strings,
        *,
        size: tuple[int, int] | int,
        channels: int = 3,
        root: str | Path | None = None,
    ) -> None:
        self.paths = paths if isinstance(paths, Strings) else Strings(str(path) for path in paths)
        self.size = picture_size(size)
        if channels not in (1, 3):
            raise BadInput(f"channels={channels} is no kind of picture; give 3 for colour or 1 for grey")
        self.channels = channels
        self.root = None if root is None else Path(root)
        self._told = False

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> Path:
        path = Path(self.paths[index])
        return path if self.root is None else self.root / path

    def __getitem__(self, index: int) -> Tensor:
        path = self.path(index)
        tensor, animated = _read(path, self.size, self.channels, str(path))
        if animated and not self._told:
            self._told = True  # once is enough for a folder of animations
            warnings.warn(f"{path} is animated; of animations the first frame is taken", BiseWarning, stacklevel=2)
        return tensor


class PictureContents(Dataset[Tensor]):
    """Pictures held as the content of their files: `content(i)` gives its bytes and `name(i)` what to call it."""

    def __init__(self, contents: Any, *, size: tuple[int, int] | int, channels: int = 3) -> None:
        self.contents, self.size, self.channels = contents, picture_size(size), channels

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, index: int) -> Tensor:
        content, name = self.contents[index]
        return _read(content, self.size, self.channels, name)[0]


def check_pictures(files: Sequence[Any] | Dataset[Any], *, progress: Progress | None = None) -> dict[str, str]:
    """{path: reason} of the files that can't be read, by opening every one; `files` are paths or a data set here."""
    if not isinstance(files, (PictureFiles, PictureContents)):
        files = PictureFiles(files, size=(1, 1))  # type: ignore[arg-type]
    unreadable: dict[str, str] = {}
    animated: list[str] = []
    total = len(files)
    for i in range(total):
        source, name = (files.path(i), str(files.path(i))) if isinstance(files, PictureFiles) else files.contents[i]
        try:
            if _read(source, (1, 1), 3, name)[1]:
                animated.append(name)
        except _Unreadable as error:
            unreadable[name] = error.reason
        if progress is not None and (i % 100 == 99 or i + 1 == total):
            progress("opening pictures", i + 1, total)
    if animated:
        warnings.warn(
            f"{len(animated)} of {total} pictures are animated ({animated[0]} the first); of each the first frame is"
            " taken",
            BiseWarning,
            stacklevel=2,
        )
    return unreadable


def picture_size(size: tuple[int, int] | Sequence[int] | int) -> tuple[int, int]:
    """(height, width) from one number or two."""
    both = (size, size) if isinstance(size, int) else tuple(int(side) for side in size)
    if len(both) != 2 or min(both) < 1:
        raise BadInput(f"size={size} is no size of pictures; give (height, width), or one number for a square")
    return both


class _Unreadable(BadInput):
    reason = ""


def _unreadable(name: str, reason: str) -> _Unreadable:
    error = _Unreadable(f"{name} can't be read as a picture ({reason}); replace it or leave it out")
    error.reason = reason
    return error


def _name(source: str | Path | bytes) -> str:
    return "the picture" if isinstance(source, bytes) else str(source)


def _read(source: str | Path | bytes, size: tuple[int, int], channels: int, name: str) -> tuple[Tensor, bool]:
    """The picture as bytes, and whether it is animated."""
    image_module, operations = _pillow()
    if not isinstance(source, bytes):
        path = Path(source)
        if not path.is_file():  # a pipe would wait for ever
            raise _unreadable(name, "it is a folder" if path.is_dir() else "it does not exist")
        try:
            if path.stat().st_size == 0:
                raise _unreadable(name, "it is empty")
        except OSError as error:
            raise _unreadable(name, str(error.strerror)) from error
    elif not source:
        raise _unreadable(name, "it is empty")
    bomb = image_module.DecompressionBombError, image_module.DecompressionBombWarning
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of EXIF oddities and the like
            warnings.simplefilter("error", image_module.DecompressionBombWarning)
            with image_module.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _unreadable(name, f"its {width} × {height} pixels are more than {MOST_PIXELS:,}")
                animated = getattr(image, "n_frames", 1) > 1
                image.load()
                picture = _eight_bits(operations.exif_transpose(image), channels, name)
                picture = picture.resize((size[1], size[0]), image_module.Resampling.BILINEAR)
                pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    except _Unreadable:
        raise
    except image_module.UnidentifiedImageError as error:
        raise _unreadable(name, "it is no picture of a known format") from error
    except bomb as error:
        raise _unreadable(name, f"it claims more than {image_module.MAX_IMAGE_PIXELS:,} pixels") from error
    except Exception as error:  # a decoder may raise anything on a broken file
        raise _unreadable(name, (str(error) or type(error).__name__).splitlines()[0]) from error
    return (pixels.permute(2, 0, 1).contiguous() if channels == 3 else pixels.unsqueeze(0)), animated


def _eight_bits(image: Any, channels: int, name: str) -> Any:
    """An image of any mode as RGB or L."""
    mode = "RGB" if channels == 3 else "L"
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        values = np.asarray(image)
        if values.dtype.kind == "f" or values.min() < 0 or values.max() > 65535:
            kind = "floating-point" if values.dtype.kind == "f" else "32-bit"
            raise _unreadable(name, f"its {kind} pixels have no known range; save it with 8 or 16 bits")
        grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 = 257 · 255
        return type(image).convert(_pillow()[0].fromarray(grey), mode)
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # straight to RGB, Pillow warns where the palette has transparent entries
    return image.convert(mode)


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as error:
        raise BadInput("Pillow is not installed; install the extra: pip install 'bise[data]'") from error
    return Image, ImageOps
