"""Which model and data a job has: those that its options name, or those of an earlier run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, caution
from bise.base.plain import check_plain
from bise.data.core.coders import tokenizer_of
from bise.data.own.coding import Coding
from bise.jobs.data_sources import splits_of
from bise.jobs.found_labels import labelled, resolved
from bise.jobs.guessing import with_noted
from bise.jobs.keys import ARGUMENTS, KEYS
from bise.jobs.named_models import agreeing, completed, named_model, telling_of_pixels
from bise.jobs.own_options import OWN
from bise.jobs.python_sources import device_named, made_by, model_of
from bise.network.architectures.named import is_named
from bise.runs.folder import begun_jobs, read_summary
from bise.runs.schema import read
from bise.runs.trust import check_source, check_trusted, is_key, remember


def silent(sentence: str) -> None:
    """Takes what there is to say where nobody listens."""


def described(model: str, weights: Path | None, data: str, own: dict[str, Any]) -> dict[str, Any]:
    """What a run's configuration keeps, so that later commands find model and data again."""
    source: dict[str, Any] = {"model": model, "weights": str(weights.resolve()) if weights else None, "data": data}
    if own:
        files = [name for name in ("root", "bias_csv", "tokenizer") if name in own and Path(own[name]).exists()]
        source["own"] = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
        source["own"] |= {name: str(Path(own[name]).resolve()) for name in files}
        source["own"] |= {"bias_from": resolved(own["bias_from"])} if "bias_from" in own else {}
    if Path(data).exists():
        source["data"] = str(Path(data).resolve())
    for what in ("model", "data"):
        library, _, name = source[what].partition(":")
        folder, colon, part = name.partition(":") if not Path(name).exists() else (name, "", "")
        if library == "hf" and Path(folder).exists():
            source[what] = f"hf:{Path(folder).resolve()}{colon}{part}"
    return source


def described_by(run: Path) -> dict[str, Any]:
    """What a run's configuration says of its model and data, with the whole path of its weights."""
    check_plain(run)
    source = read(run / "config.json").get("source")
    if not isinstance(source, dict):
        raise BadInput(
            f"{run} doesn't say which model and data it was made from; name a run of bise train, extract or demo"
        )
    check_source(run, source, options=OWN, keys=ARGUMENTS)
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
    remember(run, described_by(run))


def source_of(run: Path) -> tuple[Any, Any]:
    """The model and the data of a run that the user trusts, by what its configuration says of them."""
    splits = data_of(run)
    return model_of_run(run), splits


def model_of_run(run: Path, *, remedy: str = "--trust") -> Any:
    """The model of a run, with its weights; a function of its own is called where the user trusts the run."""
    source = described_by(run)
    check_trusted(run, source, "model", remedy=remedy)
    weights = Path(source["weights"]) if source.get("weights") else None
    if is_key(source, "model"):
        make = partial(KEYS[source["model"]].model, **source["model_arguments"])
        return made_by(make, source["model"], weights)
    return model_given(source["model"], weights, local=True)


def model_given(name: str, weights: Path | None, *, local: bool = False) -> Any:
    """The model that a library has by this name, or that the user's function gives; `local` keeps hubs out of it."""
    return named_model(name, weights, local=local) if is_named(name) else model_of(name, weights)


def data_of(run: Path, *, remedy: str = "--trust") -> Any:
    """The data of a run, as a function from a split's name; one of its own is called where the user trusts the run.

    Bias labels of train that the run guessed are those that it noted.
    """
    return with_noted(run, _data_of(run, remedy))


def _data_of(run: Path, remedy: str) -> Any:
    source = described_by(run)
    check_trusted(run, source, "data", remedy=remedy)
    own = dict(source.get("own") or {})
    if is_key(source, "data"):
        splits = partial(KEYS[source["data"]].data, **source["data_arguments"])
        return splits if "bias_from" not in own else labelled(splits, own["bias_from"])
    if "tokenizer" in own:
        own["tokenizer"] = tokenizer_of(own["tokenizer"], local=True)
    return splits_of(source["data"], own, local=True)


NAMED = "--trust, or name your own by --model and --data"
"""The remedy where a command takes these for a run."""


def given_for(
    subject: Path,
    model: str | None,
    weights: Path | None,
    data: str | None,
    own: dict[str, Any],
    device: str,
    *,
    say: Callable[[str], None] = silent,
) -> tuple[Any, Any]:
    """(model on its device, data) for a network of the run `subject`: its own, but for what is given.

    Files are read as the run's training data were: labels have the numbers that they had, and features their scale.
    """
    if weights is not None and model is None:
        raise BadInput("--weights are for a model that --model names; give that too, or leave them out")
    if own and data is None:
        raise BadInput(f"--{next(iter(own)).replace('_', '-')} describes data of your own; name them with --data")
    network = model_of_run(subject, remedy=NAMED) if model is None else model_given(model, weights)
    if data is None:
        return network.to(device_named(device)), data_of(subject, remedy=NAMED)
    like = Coding.of_facts(read_summary(subject).get("data") or {})
    if like is None and (Path(data).exists() or data.startswith("hf:")):
        caution(
            f"{subject} keeps no names of its labels, so those of {data} are numbered by their sorted values, and"
            " features scaled by its own training rows; see that these are the model's",
        )
    source = described_by(subject)
    if model is None and not is_key(source, "model"):
        model, weights = source["model"], source.get("weights")
    own = completed(model or "", network, data, own, own_weights=weights is not None, local=True, say=say)
    splits = telling_of_pixels(model or "", data, own, splits_of(data, own, like=like), say)
    return network.to(device_named(device)), splits


def given(
    model: str | None,
    weights: Path | None,
    data: str | None,
    own: dict[str, Any],
    run: Path | None,
    device: str,
    *,
    trust: bool = False,
    say: Callable[[str], None] = silent,
) -> tuple[Any, Any, dict[str, Any]]:
    """(model on its device, data, description) of a run, or of --model, --weights and --data.

    What a library's model says of its inputs stands in for options that aren't given; `say` hears of it.
    """
    where = device_named(device)
    if run is not None:
        groups = own.get("bias_from")
        if model or weights or data or own.keys() - {"bias_from"}:
            raise BadInput("a run brings model, weights and data; leave --model, --weights, --data and the like out")
        if trust:
            trust_run(run)
        network, splits = source_of(run)
        source = described_by(run)
        if groups is not None:
            source |= {"own": (source.get("own") or {}) | {"bias_from": resolved(groups)}}
            splits = labelled(splits, groups)
        return network.to(where), splits, source
    if trust:
        raise BadInput("--trust is about the functions that a run names, and none is given; leave it out")
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise BadInput(f"{missing} is missing; give --model and --data, or a run folder")
    odd = next((name for name in ("bias", "bias_csv") if name in own and "bias_from" in own), None)
    if odd is not None:
        raise BadInput(
            f"--bias-from and --{odd.replace('_', '-')} both say what the bias is; give one of them, and keep columns"
            " from the model with --ignore"
        )
    network = model_given(model, weights)
    own = completed(model, network, data, own, own_weights=weights is not None, say=say)
    splits = telling_of_pixels(model, data, own, splits_of(data, own), say)
    splits = agreeing(model, network, splits, own_weights=weights is not None)
    return network.to(where), splits, described(model, weights, data, own)
