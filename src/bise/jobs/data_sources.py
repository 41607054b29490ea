"""Where data come from: one's own files, a folder, a data set by name, or a function of Python."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, NoSplit
from bise.data import load, names
from bise.data.core.transforms import Transform
from bise.data.own.hub_files import folder_of
from bise.jobs.found_labels import labelled
from bise.jobs.own_options import OWN
from bise.jobs.python_sources import function


def splits_of(
    data: str,
    own: dict[str, Any],
    *,
    labels_only: bool = False,
    option: str = "--data",
    like: Any = None,
    local: bool = False,
) -> Any:
    """A function from "train", "val" or "test" to that split, or None: from a file, a folder, a name or a function.

    Files are read as the training data were that `like` tells of. No hub is asked for a name where `local`.
    """
    if (groups := own.get("bias_from")) is not None:
        rest = {name: value for name, value in own.items() if name != "bias_from"}
        found = splits_of(data, rest, labels_only=labels_only, option=option, like=like, local=local)
        return labelled(found, groups, checked=not labels_only)
    path = Path(data)
    if path.exists():
        return _table(path, own, labels_only, like).split
    if data.startswith("hf:") and data != "hf:":
        return _table(folder_of(data.removeprefix("hf:"), local=local), own, labels_only, like, hub=True).split
    if data in names():
        return _named(data, own)
    if ":" in data:
        _allowed(own, (), f"{option} {data} is a function", option)
        return function(data, option)
    raise BadInput(
        f"{option} {data!r} is no file or folder, no data set ({', '.join(names())}), no hf:FOLDER_OR_NAME and no"
        " package.module:function"
    )


def _table(path: Path, own: dict[str, Any], labels_only: bool, like: Any, hub: bool = False) -> Any:
    """The table of a csv or parquet file, a folder of pictures, or a folder of Hugging Face datasets."""
    from bise.data.own.folders import read_image_folder
    from bise.data.own.hub_files import is_hugging_face
    from bise.data.own.hugging_face import read_hugging_face
    from bise.data.own.tables import read_table

    how: dict[str, Any] = {"labels_only": labels_only, "like": like}
    how |= {name: own[name] for name in ("split_column", "image", "text", "tokenizer", "length", "fit") if name in own}
    how |= {name: _listed(own[name]) for name in ("bias", "features", "ignore") if name in own}
    if "holdout" in own:
        how["holdout"] = _floats(own["holdout"], "--holdout", 2)
    if "size" in own:
        how["size"] = _size(own["size"])
    if "mean" in own or "std" in own:
        how["transform"] = _transform(own)
    if path.is_dir() and not hub and not is_hugging_face(path):
        _allowed(own, ("bias", "bias_csv", "holdout", "size", "fit", "mean", "std"), f"{path} is a folder of pictures")
        return read_image_folder(path, own.get("bias_csv"), **how)
    if "target" not in own:
        raise BadInput(f"{path} needs a target; name its column with --target")
    columns = set(OWN) - {"bias_csv", "rho", "protocol"}
    if path.is_dir():
        _allowed(own, columns - {"root"}, f"{path} is a folder of datasets")
        return read_hugging_face(path, target=own["target"], **how)
    _allowed(own, columns, f"{path} is a table")
    for option, others in (("image", ("size", "fit", "mean", "std")), ("text", ("tokenizer", "length"))):
        odd = next((name for name in others if name in own and option not in own), None)
        if odd is not None:
            raise BadInput(f"--{odd} is for a column that --{option} names; name it, or leave --{odd} out")
    return read_table(path, target=own["target"], root=own.get("root"), **how)


def _named(name: str, own: dict[str, Any]) -> Any:
    _allowed(own, ("rho", "protocol", "root"), f"{name} is a data set by name")
    rho = rho_of(own.get("rho"))

    def split(which: str) -> Any:
        try:
            return load(name, split=which, rho=rho, protocol=own.get("protocol"), root=own.get("root"))
        except NoSplit:
            return None

    return split


def rho_of(text: str | None) -> float | tuple[float, float] | None:
    """ρ as it is typed: one number, or two with a comma between them."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise BadInput(f"--rho {text!r} is no number; give 0.99, or 0.99,0.95 for two biases")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _allowed(own: dict[str, Any], allowed: Any, what: str, option: str = "--data") -> None:
    odd = next((name for name in own if name not in allowed), None)
    if odd is not None:
        raise BadInput(f"{what}, for which --{odd.replace('_', '-')} has no meaning; leave it out")


def _listed(names: str) -> list[str]:
    """Names with commas between them; one that has a comma itself stands in quotes, as in a csv file."""
    try:
        (row,) = csv.reader([names], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise BadInput(
            f"{names!r} is no list of columns ({error}); put a name in quotes as a whole, with those within it doubled"
        ) from error
    return [name.strip() for name in row if name.strip()]


def _floats(text: str, option: str, count: int | None = None) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"{option} {text!r} holds something that is no number; write them with commas") from error
    if count is not None and len(values) != count:
        raise BadInput(f"{option} {text!r} has {len(values)} numbers; it takes {count}, with a comma")
    return values


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise BadInput(f"--size {text!r} is no size of pictures; write 224, or HEIGHTxWIDTH")
    return int(parts[0]), int(parts[-1])


def _transform(own: dict[str, Any]) -> Any:
    mean, std = _floats(own.get("mean", "0"), "--mean"), _floats(own.get("std", "1"), "--std")
    for option, values in (("--mean", mean), ("--std", std)):
        if len(values) not in (1, 3):
            raise BadInput(f"{option} has {len(values)} numbers; give one, or one for each of 3 channels")
    if not all(0 < value < math.inf for value in std):
        raise BadInput(f"--std {own['std']} is not above 0")
    if not all(map(math.isfinite, mean)):
        raise BadInput(f"--mean {own['mean']} is not finite")
    return Transform(mean=mean, std=std)
