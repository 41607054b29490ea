"""Where a job's model and data come from: Python functions, one's own files, a data set by name, or an earlier run."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

PANEL = "Own data"


def _option(flags: str, text: str) -> Any:
    return typer.Option(*flags.split(), help=text, rich_help_panel=PANEL)


OWN: dict[str, Any] = {
    "target": Annotated[str | None, _option("--target", "Column of the target.")],
    "bias": Annotated[
        str | None, _option("--bias", "Column of the bias; several with commas, in quotes where one has a comma.")
    ],
    "split_column": Annotated[str | None, _option("--split-column", "Column that says train, val or test.")],
    "holdout": Annotated[str | None, _option("--holdout", "Without such a column: shares for val,test, as 0.1,0.2.")],
    "image": Annotated[str | None, _option("--image", "Column of picture files.")],
    "text": Annotated[str | None, _option("--text", "Column of sentences.")],
    "features": Annotated[
        str | None, _option("--features", "Columns of features, with commas; default: all that have no other use.")
    ],
    "root": Annotated[Path | None, _option("--root", "Folder of picture files with relative paths.")],
    "size": Annotated[str | None, _option("--size", "Pictures are resized to this: 224, or HEIGHTxWIDTH.")],
    "mean": Annotated[str | None, _option("--mean", "Mean of the pixels (0 to 1), taken off; one, or one a channel.")],
    "std": Annotated[str | None, _option("--std", "Standard deviation of the pixels, divided by.")],
    "tokenizer": Annotated[str | None, _option("--tokenizer", "vocab.txt, or a folder or name for AutoTokenizer.")],
    "length": Annotated[int | None, _option("--length", "Tokens that a sentence is cut or padded to; default 128.")],
    "bias_csv": Annotated[
        Path | None, _option("--bias-csv", "For a folder of pictures: csv with a column `file` and the biases.")
    ],
    "rho": Annotated[
        str | None, _option("--rho", "For a data set by name: its share of aligned samples; two with a comma.")
    ],
    "protocol": Annotated[str | None, _option("--protocol", "For a data set by name: how its splits are made.")],
}
"""The options that describe one's own data, for every command that takes --data."""


_SHORT_SPLIT = Annotated[str | None, _option("--split-column --split", "Column that says train, val or test.")]
"""For commands whose --split has no other meaning."""


def own_data(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options above; it receives those that were set as one dict, `own`."""
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (OWN if "split" in signature.parameters else OWN | {"split_column": _SHORT_SPLIT}).items()
    ]
    kept = [p for p in signature.parameters.values() if p.name != "own"]

    @wraps(command)
    def wrapper(**arguments: Any) -> Any:
        own = {name: arguments.pop(name) for name in OWN}
        return command(**arguments, own={name: value for name, value in own.items() if value is not None})

    first = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    wrapper.__signature__ = signature.replace(parameters=[*first, *options])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (*first, *options)} | {"return": None}
    return wrapper


def described(model: str, weights: Path | None, data: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration keeps, so that later commands find model and data again."""
    source: dict[str, Any] = {"model": model, "weights": str(weights.resolve()) if weights else None, "data": data}
    if own:
        files = [name for name in ("root", "bias_csv", "tokenizer") if name in own and Path(own[name]).exists()]
        source["own"] = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
        source["own"] |= {name: str(Path(own[name]).resolve()) for name in files}
    if Path(data).exists():
        source["data"] = str(Path(data).resolve())
    return source


def described_by(run: Path) -> dict[str, Any]:
    """What a run's configuration says of its model and data, with the whole path of its weights."""
    from bise.base.errors import BadInput
    from bise.base.files import read_json
    from bise.base.plain import check_plain
    from bise.runs.folder import begun_jobs
    from bise.runs.trust import check_source

    check_plain(run)
    source = read_json(run / "config.json").get("source")
    if not isinstance(source, dict):
        raise BadInput(
            f"{run} doesn't say which model and data it was made from; name a run of bise train, extract or demo"
        )
    check_source(run, source, options=OWN)
    weights = source.get("weights")
    if weights and (run / weights).is_file():
        return source | {"weights": str((run / weights).resolve())}
    if weights and not Path(weights).is_absolute():  # a file of the run's own, and not of the working folder
        jobs = begun_jobs(run)
        remedy = f"run {jobs[0]} again with --resume first" if jobs else "name a run that has its weights"
        raise BadInput(f"{run / weights} does not exist; {remedy}")
    return source


def trust_run(run: Path) -> None:
    """What --trust says: the functions that a run names may be called, until its configuration says otherwise."""
    from bise.runs.trust import remember

    remember(run, described_by(run))


def source_of(run: Path) -> tuple[Any, Any]:
    """The model and the data of a run that the user trusts, by what its configuration says of them."""
    splits = data_of(run)
    return model_of_run(run), splits


def model_of_run(run: Path, *, remedy: str = "--trust") -> Any:
    """The model of a run, with its weights; a function of its own is called where the user trusts the run."""
    from bise.runs.trust import check_trusted

    source = described_by(run)
    check_trusted(run, source, "model", remedy=remedy)
    weights = Path(source["weights"]) if source.get("weights") else None
    return model_of(source["model"], weights, source.get("model_arguments"))


def data_of(run: Path, *, remedy: str = "--trust") -> Any:
    """The data of a run, as a function from a split's name; one of its own is called where the user trusts the run."""
    from bise.runs.trust import check_trusted

    source = described_by(run)
    check_trusted(run, source, "data", remedy=remedy)
    own = dict(source.get("own") or {})
    if "tokenizer" in own:
        from bise.data.core.coders import tokenizer_of

        own["tokenizer"] = tokenizer_of(own["tokenizer"], local=True)
    splits = splits_of(source["data"], own)
    return partial(splits, **source.get("data_arguments") or {})


NAMED = "--trust, or name your own by --model and --data"
"""The remedy where a command takes these for a run."""


def given_for(
    subject: Path, model: str | None, weights: Path | None, data: str | None, own: dict[str, Any], device: str
) -> tuple[Any, Any]:
    """(model on its device, data) for a network of the run `subject`: its own, but for what is given.

    Files are read as the run's training data were: labels have the numbers that they had, and features their scale.
    """
    from bise.base.errors import BadInput, caution
    from bise.data.own.coding import Coding
    from bise.runs.folder import read_summary

    if weights is not None and model is None:
        raise BadInput("--weights are for a model that --model names; give that too, or leave them out")
    if own and data is None:
        raise BadInput(f"--{next(iter(own)).replace('_', '-')} describes data of your own; name them with --data")
    network = model_of_run(subject, remedy=NAMED) if model is None else model_of(model, weights)
    if data is None:
        return network.to(device_named(device)), data_of(subject, remedy=NAMED)
    like = Coding.of_facts(read_summary(subject).get("data") or {})
    if like is None and Path(data).exists():
        caution(
            f"{subject} keeps no names of its labels, so those of {data} are numbered by their sorted values, and"
            " features scaled by its own training rows; see that these are the model's",
        )
    return network.to(device_named(device)), splits_of(data, own, like=like)


def given(
    model: str | None,
    weights: Path | None,
    data: str | None,
    own: dict[str, Any],
    run: Path | None,
    device: str,
    *,
    trust: bool = False,
) -> tuple[Any, Any, dict[str, Any]]:
    """(model on its device, data, description) of the run that --from names, or of --model, --weights and --data."""
    from bise.base.errors import BadInput

    where = device_named(device)
    if run is not None:
        if model or weights or data or own:
            raise BadInput("--from brings model, weights and data; leave --model, --weights, --data and the like out")
        if trust:
            trust_run(run)
        network, splits = source_of(run)
        return network.to(where), splits, described_by(run)
    if trust:
        raise BadInput("--trust is about the functions that a run names, and none is given; leave it out")
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise BadInput(f"{missing} is missing; give --model and --data, or --from with a run folder")
    return model_of(model, weights).to(where), splits_of(data, own), described(model, weights, data, own)


def device_named(name: str) -> Any:
    """The device that is called cpu, cuda or cuda:1; auto is a GPU where there is one."""
    import torch

    from bise.base.errors import BadInput

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"--device {name!r} is unknown; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"--device {name!r} is unknown; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"--device {name} finds no GPU; use cpu")
    return device


def splits_of(
    data: str, own: dict[str, Any], *, labels_only: bool = False, option: str = "--data", like: Any = None
) -> Any:
    """A function from "train", "val" or "test" to that split, or None: from a file, a folder, a name or a function.

    Files are read as the training data were that `like` tells of.
    """
    from bise.base.errors import BadInput
    from bise.data import names

    path = Path(data)
    if path.exists():
        return _table(path, own, labels_only, like).split
    if data in names():
        return _named(data, own)
    if ":" in data:
        _allowed(own, (), f"{option} {data} is a function", option)
        return function(data, option)
    raise BadInput(
        f"{option} {data!r} is no file or folder, no data set ({', '.join(names())}) and no package.module:function"
    )


def _table(path: Path, own: dict[str, Any], labels_only: bool, like: Any) -> Any:
    """The table of a csv or parquet file, a folder of pictures, or a folder of Hugging Face datasets."""
    from bise.base.errors import BadInput
    from bise.data.own.folders import is_hugging_face, read_hugging_face, read_image_folder
    from bise.data.own.tables import read_table

    how: dict[str, Any] = {"labels_only": labels_only, "like": like}
    how |= {name: own[name] for name in ("split_column", "image", "text", "tokenizer", "length") if name in own}
    how |= {name: _listed(own[name]) for name in ("bias", "features") if name in own}
    if "holdout" in own:
        how["holdout"] = _floats(own["holdout"], "--holdout", 2)
    if "size" in own:
        how["size"] = _size(own["size"])
    if "mean" in own or "std" in own:
        how["transform"] = _transform(own)
    if path.is_dir() and not is_hugging_face(path):
        _allowed(own, ("bias", "bias_csv", "holdout", "size", "mean", "std"), f"{path} is a folder of pictures")
        return read_image_folder(path, own.get("bias_csv"), **how)
    if "target" not in own:
        raise BadInput(f"{path} needs a target; name its column with --target")
    columns = set(OWN) - {"bias_csv", "rho", "protocol"}
    if path.is_dir():
        _allowed(own, columns - {"root"}, f"{path} is a folder of datasets")
        return read_hugging_face(path, target=own["target"], **how)
    _allowed(own, columns, f"{path} is a table")
    for option, others in (("image", ("size", "mean", "std")), ("text", ("tokenizer", "length"))):
        odd = next((name for name in others if name in own and option not in own), None)
        if odd is not None:
            raise BadInput(f"--{odd} is for a column that --{option} names; name it, or leave --{odd} out")
    return read_table(path, target=own["target"], root=own.get("root"), **how)


def _named(name: str, own: dict[str, Any]) -> Any:
    from bise.base.errors import NoSplit
    from bise.data import load

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
    from bise.base.errors import BadInput

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
    from bise.base.errors import BadInput

    odd = next((name for name in own if name not in allowed), None)
    if odd is not None:
        raise BadInput(f"{what}, for which --{odd.replace('_', '-')} has no meaning; leave it out")


def function(name: str, option: str) -> Any:
    """What package.module:function names, the working folder included in the search."""
    import importlib

    from bise.base.errors import BadInput

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise BadInput(f"{option} {name!r} names no function; write package.module:function")
    if module.endswith(".py"):
        raise BadInput(f"{option} {name!r} names a file; {_as_module(Path(module))}:{attribute}")
    if module.partition(".")[0] != "bise" and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except SystemExit as error:  # as of argparse, which reads bise's own arguments there
        raise BadInput(
            f"{option} {name!r} can't be imported, since its module {module} ended the program; put the part of it that"
            ' is a script under if __name__ == "__main__":'
        ) from error
    except Exception as error:  # the user's module may raise anything while it is imported
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"{option} {name!r} can't be imported ({what}); run from the folder that holds it") from error


def _as_module(file: Path) -> str:
    """How to name the module in a file: from the working folder where it is below, else from the file's own."""
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    if file.is_absolute() or ".." in file.parts:
        return f"run from its folder {file.parent} and write {file.stem}"
    return f"write {'.'.join(file.with_suffix('').parts)}"


def model_of(name: str, weights: Path | None, arguments: dict[str, Any] | None = None) -> Any:
    """The user's model with its weights; a .pt file is read with weights_only, so that it can't run code."""
    from torch import nn

    from bise.base.errors import BadInput
    from bise.network.weights import fitting, misfit, read_state

    make = function(name, "--model")
    arguments = arguments or {}
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise BadInput(f"--model {name} can't be called without arguments ({error}); name a function") from error
    except ValueError:  # some of those written in C don't say what they take
        pass
    try:
        model = make(**arguments)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise BadInput(f"--model {name} raised {type(error).__name__}: {error}; it should return a model") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"--model {name} returned {type(model).__name__}; it should return a torch module")
    if weights is not None:
        state = fitting(read_state(weights), model)
        try:
            model.load_state_dict(state)
        except (RuntimeError, TypeError, AttributeError) as error:
            why = misfit(state, model) or str(error).splitlines()[-1].strip()
            raise BadInput(
                f"--weights {weights} doesn't fit {name} ({why}); give a file that this very architecture was saved to"
            ) from error
    return model


def _listed(names: str) -> list[str]:
    """Names with commas between them; one that has a comma itself stands in quotes, as in a csv file."""
    import csv

    from bise.base.errors import BadInput

    try:
        (row,) = csv.reader([names], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise BadInput(
            f"{names!r} is no list of columns ({error}); put a name in quotes as a whole, with those within it doubled"
        ) from error
    return [name.strip() for name in row if name.strip()]


def _floats(text: str, option: str, count: int | None = None) -> tuple[float, ...]:
    from bise.base.errors import BadInput

    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"{option} {text!r} holds something that is no number; write them with commas") from error
    if count is not None and len(values) != count:
        raise BadInput(f"{option} {text!r} has {len(values)} numbers; it takes {count}, with a comma")
    return values


def _size(text: str) -> tuple[int, int]:
    from bise.base.errors import BadInput

    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise BadInput(f"--size {text!r} is no size of pictures; write 224, or HEIGHTxWIDTH")
    return int(parts[0]), int(parts[-1])


def _transform(own: dict[str, Any]) -> Any:
    from bise.base.errors import BadInput
    from bise.data.core.transforms import Transform

    mean, std = _floats(own.get("mean", "0"), "--mean"), _floats(own.get("std", "1"), "--std")
    for option, values in (("--mean", mean), ("--std", std)):
        if len(values) not in (1, 3):
            raise BadInput(f"{option} has {len(values)} numbers; give one, or one for each of 3 channels")
    if not all(0 < value < math.inf for value in std):
        raise BadInput(f"--std {own['std']} is not above 0")
    if not all(map(math.isfinite, mean)):
        raise BadInput(f"--mean {own['mean']} is not finite")
    return Transform(mean=mean, std=std)
