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

from bise.base.checking import check_choice
from bise.base.errors import BadInput, caution
from bise.base.names import FITS, SQUASH
from bise.data.core.contract import Progress
from bise.data.core.strings import Strings

MOST_PIXELS = 89_478_485
"""A larger picture is refused before it is decoded: a file of some kilobytes can claim any size.

Pillow's own limit, which other code of the same process may have lifted.
"""
SQUASHED = 0.02
"""How far the ratio of a picture's sides may be from that of its size before it is said that it is squashed."""
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif")


def read_picture(
    source: str | Path | bytes, *, size: tuple[int, int] | None = None, channels: int = 3, name: str = ""
) -> Tensor:
    """A picture file, or its content, as uint8 [channels, height, width], resized to `size` = (height, width).

    Without `size`, as large as it is.
    Turned as its EXIF orientation says. Transparency is dropped, as torchvision's loader does; 16 bits are
    scaled to 8; of an animation the first frame is taken, with a warning.
    """
    name = name or ("the picture" if isinstance(source, bytes) else str(source))
    tensor, animated = _read(source, size, channels, name)
    if animated:
        caution(f"{name} is animated; its first frame is taken")
    return tensor


class Pictures(Dataset[Tensor]):
    """Pictures as uint8 [channels, height, width], read when they are asked for; `source` says from where.

    With `crop`, the square of so many pixels in the middle is taken before it is resized. `fit` says what becomes of
    one whose sides have another ratio than `size`: "squash" resizes each side by itself, "crop" cuts off what is too
    much on two sides, "pad" adds black there.
    """

    def __init__(
        self, *, size: tuple[int, int] | int, channels: int = 3, crop: int | None = None, fit: str = SQUASH
    ) -> None:
        check_choice("fit", fit, FITS)
        self.size, self.crop, self.fit = picture_size(size), crop, fit
        if crop is not None and crop < 1:
            raise BadInput(f"crop={crop} is no side of a square; give at least 1")
        if channels not in (1, 3):
            raise BadInput(f"channels={channels} is no kind of picture; give 3 for colour or 1 for grey")
        self.channels = channels
        self._told = torch.zeros(1, dtype=torch.bool).share_memory_()  # with the processes that read ahead

    def __len__(self) -> int:
        raise NotImplementedError

    def source(self, index: int) -> tuple[Path | bytes, str]:
        """The file, or its content, and what to call it."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Tensor:
        source, name = self.source(index)
        tensor, animated = _read(source, self.size, self.channels, name, self.crop, self.fit)
        if animated and not self._told:
            self._told.fill_(True)  # once is enough for a folder of animations
            caution(f"{name} is animated; of animations the first frame is taken")
        return tensor


class PictureFiles(Pictures):
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
        crop: int | None = None,
        fit: str = SQUASH,
        root: str | Path | None = None,
    ) -> None:
        super().__init__(size=size, channels=channels, crop=crop, fit=fit)
        self.paths = paths if isinstance(paths, Strings) else Strings(str(path) for path in paths)
        self.root = None if root is None else Path(root)

    def __len__(self) -> int:
        return len(self.paths)

    def source(self, index: int) -> tuple[Path | bytes, str]:
        path = Path(self.paths[index])
        path = path if self.root is None else self.root / path
        return path, str(path)


def check_pictures(files: Iterable[str | Path] | Pictures, *, progress: Progress | None = None) -> dict[str, str]:
    """{path: reason} of the pictures that can't be read, by opening every one."""
    pictures = files if isinstance(files, Pictures) else PictureFiles(files, size=1)
    unreadable: dict[str, str] = {}
    animated: list[str] = []
    total = len(pictures)
    for i in range(total):
        source, name = pictures.source(i)
        try:
            if _read(source, (1, 1), 3, name)[1]:
                animated.append(name)
        except _Unreadable as error:
            unreadable[_printable(name)] = error.reason
        if progress is not None and (i % 100 == 99 or i + 1 == total):
            progress("opening pictures", i + 1, total)
    if animated:
        caution(
            f"{len(animated)} of {total} pictures are animated ({animated[0]} the first); of each the first frame is"
            " taken",
        )
    return unreadable


def tell_squashed(pictures: Pictures) -> None:
    """Say where pictures have sides of another ratio than the size that each is resized to; their heads tell that."""
    height, width = pictures.size
    odd: list[tuple[str, int, int]] = []
    for i in range(len(pictures)):
        source, name = pictures.source(i)
        sides = _sides(source)
        if sides is not None and abs(sides[0] * height / (sides[1] * width) - 1) > SQUASHED:
            odd.append((name, *sides))
    if odd:
        name, wide, high = odd[0]
        caution(
            f"{len(odd)} of {len(pictures)} pictures that were looked at are squashed: {_printable(name)} is {wide} ×"
            f" {high} pixels and becomes {width} × {height}; give fit='crop' or fit='pad' to keep the ratio of their"
            " sides, or fit='squash' if the model was trained on squashed ones",
            stacklevel=6,
        )


def _sides(source: Path | bytes) -> tuple[int, int] | None:
    """(width, height) of a picture as it stands upright; None where it can't be read, which others say."""
    image_module, _ = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(source, Path) and not source.is_file():  # a pipe would wait for ever
                return None
            with image_module.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                wide, high = image.size
                turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except Exception:  # a decoder may raise anything on a broken file
        return None
    return (high, wide) if turned else (wide, high)


def picture_size(size: tuple[int, int] | Sequence[int] | int) -> tuple[int, int]:
    """(height, width) from one number or two."""
    both = (size, size) if isinstance(size, int) else tuple(int(side) for side in size)
    if len(both) != 2 or min(both) < 1:
        raise BadInput(f"size={size} is no size of pictures; give (height, width), or one number for a square")
    if both[0] * both[1] > MOST_PIXELS:
        raise BadInput(f"size={size} is more than {MOST_PIXELS:,} pixels; give a smaller one")
    return both


class _Unreadable(BadInput):
    reason = ""


def _printable(name: str) -> str:
    """A file's name on one line; it may hold line ends, or bytes that are no text."""
    return name if name.isprintable() else ascii(name)


def _unreadable(name: str, reason: str) -> _Unreadable:
    error = _Unreadable(f"{_printable(name)} can't be read as a picture ({reason}); replace it or leave it out")
    error.reason = reason
    return error


def _read(
    source: str | Path | bytes,
    size: tuple[int, int] | None,
    channels: int,
    name: str,
    crop: int | None = None,
    fit: str = SQUASH,
) -> tuple[Tensor, bool]:
    """The picture as bytes, and whether it is animated."""
    image_module, operations = _pillow()
    if not isinstance(source, bytes):
        path = Path(source)
        try:
            if not path.is_file():  # a pipe would wait for ever
                raise _unreadable(name, "it is a folder" if path.is_dir() else "it does not exist")
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
                    raise _unreadable(
                        name, f"its {width} × {height} pixels are more than {MOST_PIXELS:,}; scale it down"
                    )
                animated = bool(getattr(image, "is_animated", False))
                image.load()
                operations.exif_transpose(image, in_place=True)
                picture = _eight_bits(image, channels, name)
                if crop is not None:
                    left, top = round((picture.width - crop) / 2), round((picture.height - crop) / 2)
                    picture = picture.crop((left, top, left + crop, top + crop))
                if size is not None:
                    picture = _fitted(picture, size, fit)
                pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    except _Unreadable:
        raise
    except image_module.UnidentifiedImageError as error:
        raise _unreadable(name, "it is no picture of a known format") from error
    except bomb as error:
        raise _unreadable(name, f"it claims more than {MOST_PIXELS:,} pixels; scale it down") from error
    except Exception as error:  # a decoder may raise anything on a broken file
        raise _unreadable(name, (str(error) or type(error).__name__).splitlines()[0]) from error
    return (pixels.permute(2, 0, 1).contiguous() if channels == 3 else pixels.unsqueeze(0)), animated


def _fitted(picture: Any, size: tuple[int, int], fit: str) -> Any:
    """The picture at `size` = (height, width)."""
    image_module, _ = _pillow()
    (high, wide), bilinear = size, image_module.Resampling.BILINEAR
    if fit == SQUASH:
        return picture.resize((wide, high), bilinear)
    scales = wide / picture.width, high / picture.height
    if fit == "crop":
        scale = max(scales)
        across, down = wide / scale, high / scale
        left, top = (picture.width - across) / 2, (picture.height - down) / 2
        return picture.resize((wide, high), bilinear, box=(left, top, left + across, top + down))
    scale = min(scales)
    inner = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    whole = image_module.new(picture.mode, (wide, high))
    whole.paste(picture.resize(inner, bilinear), ((wide - inner[0]) // 2, (high - inner[1]) // 2))
    return whole


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
    return image if image.mode == mode else image.convert(mode)  # which would copy all of a large one


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as error:
        raise BadInput("Pillow is not installed; install the extra: pip install 'bise[data]'") from error
    return Image, ImageOps
