"""What a value holds, as a hash that is the same in every process: tensors, arrays, lists, pictures, settings."""

from __future__ import annotations

import functools
import hashlib
import random
import struct
import sys
import types
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor, nn

from bise.data.core.strings import Strings

BLOCK = 8 << 20
"""Bytes that are brought to the CPU, or into one piece, at once."""
REMEMBERED = 1 << 20
"""Bytes from which on a tensor's hash is kept: many subsets may share one."""
GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
"""Each draw changes them, so that only their being there counts."""
_WRITTEN = (Decimal, Fraction, date, time, timedelta, UUID, range, slice, np.dtype, torch.dtype, torch.device)
"""Whose repr is all that they hold."""


class Content:
    """SHA-256 of values. Lists and tuples count alike, the order of keys doesn't; 0.0 and −0.0 have other bits.

    Objects count by the name of their class and their public attributes, functions by their names, defaults and what
    they close over. No address and no text that may hold one is in a hash.
    """

    def __init__(self) -> None:
        self._within: set[int] = set()
        """Objects that are being hashed, by which those that hold themselves are known."""
        self._kept: dict[int, tuple[Any, bytes]] = {}
        """Hashes of large tensors and arrays, with these so that no other takes their place in memory."""
        self.bytes = 0
        """Of tensors, arrays and plain values, that were hashed."""

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, (Tensor, np.ndarray)):
            return self._remembered(value)
        if (plain := _plain(value)) is not None:
            self.bytes += len(plain)
            return digest(type(value).__name__, plain)
        if id(value) in self._within:
            return digest("itself")
        self._within.add(id(value))
        try:
            return self._compound(value)
        finally:
            self._within.remove(id(value))

    def all(self, name: str, *values: Any) -> bytes:
        """Of several values, in their order."""
        return digest(name, *map(self, values))

    def _compound(self, value: Any) -> bytes:
        """What is made of parts."""
        if isinstance(value, (list, tuple, deque)):
            return self._sequence(value)
        if isinstance(value, Mapping):
            return digest("dict", *sorted(self.all("entry", key, value[key]) for key in value))
        if isinstance(value, AbstractSet):
            return digest("set", *sorted(map(self, value)))
        if isinstance(value, Strings):
            return digest("strings", value.buffer, value.ends.tobytes())
        if _is_picture(value):
            seen = value.mode, value.size, value.getpalette(), value.info.get("transparency")
            return self.all("picture", *seen, value.tobytes())
        if type(value).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(value, "to_numpy"):
            index: Any = getattr(value, "index", None)  # polars has none
            kind = str(getattr(value, "dtype", None))
            return self.all("column", kind, value.to_numpy(), index.to_numpy() if hasattr(index, "to_numpy") else None)
        return self._function(value) or self._object(value)

    def _sequence(self, values: Sequence[Any]) -> bytes:
        """Numbers or texts alone at once: one by one, millions would take their time."""
        kinds = set(map(type, values))
        if kinds == {float}:
            return digest("floats", array("d", values).tobytes())
        if kinds == {str}:
            texts = [text.encode("utf-8", "surrogatepass") for text in values]
            return digest("texts", array("q", map(len, texts)).tobytes(), b"".join(texts))
        if kinds == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 63:
            return digest("ints", array("q", values).tobytes())
        return digest("list", *map(self, values))

    def _function(self, value: Any) -> bytes | None:
        """A function, bound or not, with what it was given; its code isn't looked at, and other Pythons' is another."""
        if isinstance(value, functools.partial):
            return self.all("partial", value.func, value.args, value.keywords)
        if isinstance(value, types.MethodType):
            return self.all("method", value.__func__.__qualname__, value.__self__)
        if isinstance(value, types.FunctionType):
            closed = [_held(cell) for cell in value.__closure__ or ()]
            return self.all("function", value.__qualname__, value.__defaults__, value.__kwdefaults__, closed)
        if isinstance(value, (type, types.BuiltinFunctionType, np.ufunc, types.ModuleType)):
            return self.all("named", getattr(value, "__qualname__", value.__name__))
        return None

    def _object(self, value: Any) -> bytes:
        name = type(value).__qualname__
        if isinstance(value, GENERATORS):
            return self.all("generator", name)
        held = attributes(value)
        if isinstance(value, nn.Module):
            held.pop("training", None)
            held |= {f"parameter {key}": tensor for key, tensor in value.named_parameters(recurse=False)}
            held |= {f"buffer {key}": tensor for key, tensor in value.named_buffers(recurse=False)}
            held |= {f"module {key}": module for key, module in value.named_children()}
        return self.all(name, {key: part for key, part in held.items() if not key.startswith("_")})

    def _remembered(self, value: Any) -> bytes:
        if id(value) in self._kept:
            return self._kept[id(value)][1]
        before = self.bytes
        found = self._tensor(value) if isinstance(value, Tensor) else self._array(value)
        if self.bytes - before >= REMEMBERED:
            self._kept[id(value)] = value, found
        return found

    def _tensor(self, x: Tensor) -> bytes:
        x = x.detach()
        x = x if type(x) is Tensor else x.as_subclass(Tensor)
        if x.is_nested:
            return self.all("nested", *x.unbind())
        if x.layout != torch.strided:
            x = x.to_sparse_coo().coalesce()
            return self.all("sparse", tuple(x.shape), x.indices(), x.values())
        if x.is_quantized:
            return self.all("quantized", str(x.dtype), x.dequantize())
        x = x.resolve_conj().resolve_neg()
        return self._blocks(f"tensor {x.dtype} {tuple(x.shape)}", _tensor_blocks(x))

    def _array(self, x: np.ndarray[Any, Any]) -> bytes:
        if isinstance(x, np.ma.MaskedArray):
            return self.all("masked", np.asarray(x.data), np.ma.getmaskarray(x))
        x = np.asarray(x)
        if x.dtype.hasobject or x.dtype.kind == "T":  # texts of any length are kept elsewhere too
            return self.all("objects", x.shape, x.reshape(-1).tolist())
        kind = str(x.dtype.descr) if x.dtype.fields else x.dtype.str
        return self._blocks(f"array {kind} {x.shape}", _array_blocks(x))

    def _blocks(self, name: str, blocks: Iterator[np.ndarray[Any, Any]]) -> bytes:
        """Of a shape and what fills it, one block at a time, wherever it is cut."""
        made = hashlib.sha256(name.encode() + b"\0")
        for block in blocks:
            self.bytes += len(block)
            made.update(block.data)
        return made.digest()


def digest(name: str, *parts: Any) -> bytes:
    """SHA-256 of a name and some bytes or buffers."""
    made = hashlib.sha256(name.encode("utf-8", "surrogatepass"))
    for part in parts:
        made.update(f"\0{len(part)}\0".encode())
        made.update(part)
    return made.digest()


def attributes(value: Any) -> dict[str, Any]:
    """What an object keeps under names, private ones too, but for what it has only worked out for later."""
    kinds = type(value).__mro__
    later = {name for kind in kinds for name, part in vars(kind).items() if isinstance(part, functools.cached_property)}
    slots = [slot for kind in kinds for slot in _names(vars(kind).get("__slots__", ()))]
    found = {slot: getattr(value, slot) for slot in slots if not slot.startswith("__") and hasattr(value, slot)}
    found |= getattr(value, "__dict__", {})
    return {name: part for name, part in found.items() if name not in later}


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _plain(value: Any) -> bytes | None:
    """What is no more than its value, as bytes; None where it is made of parts."""
    if isinstance(value, np.generic):
        return f"{value.dtype.str} ".encode() + value.tobytes() if not value.dtype.hasobject else None
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}".encode()
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, PurePath):
        return value.as_posix().encode("utf-8", "surrogatepass")
    if value is None or value is ... or isinstance(value, (int, *_WRITTEN)):
        return repr(value).encode()
    return None


def _is_picture(value: Any) -> bool:
    """Whether it is one of Pillow's, which isn't imported for that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def _held(cell: types.CellType) -> Any:
    """What a function closes over; a name may not have been set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _tensor_blocks(x: Tensor) -> Iterator[np.ndarray[Any, Any]]:
    if x.numel() == 0:
        return
    if x.is_contiguous():
        x = x.view(-1)
    if x.nbytes <= BLOCK:
        yield _bytes(x)
        return
    each = max(1, x[0].numel() * x.element_size())
    for part in x.split(max(1, BLOCK // each)):
        yield _bytes(part)


def _bytes(x: Tensor) -> np.ndarray[Any, Any]:
    return x.contiguous().cpu().view(-1).view(torch.uint8).numpy()


def _array_blocks(x: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Pieces of an array, or of a file that is mapped to memory, of which no more than one is copied at a time."""
    if x.nbytes == 0:
        return
    if x.flags.c_contiguous:
        x = x.reshape(-1)
    each = max(1, x[0].nbytes)
    rows = max(1, BLOCK // each)
    for start in range(0, len(x), rows):
        yield np.ascontiguousarray(x[start : start + rows]).reshape(-1).view(np.uint8)
