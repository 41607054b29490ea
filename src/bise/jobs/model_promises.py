"""Promises that a run's files keep towards the model and the data that can be had today."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.files import finite
from bise.data.core.arguments import SPLITS
from bise.data.core.contract import labels
from bise.data.core.identity import Identity, identities, is_older, known_by
from bise.data.facts import facts_of
from bise.engine.inputs import Inputs
from bise.jobs.deployment import shrunk
from bise.jobs.promises import Broken, same
from bise.network.saving import load
from bise.network.shrinking.verify import NotExact, allowed
from bise.network.twin import digest_of, fingerprint, named_tensors
from bise.runs.reading import Missing, RunFiles

SIZES = ("parameters", "macs", "macs_paper", "macs_by_layer", "sparsity_percent")
"""What is noted of a shrunk network and doesn't depend on the day."""


def check_weights(run: RunFiles, model: nn.Module | None, why: str) -> str:
    """The model that can be had today has the weights of then, and so has each subnetwork."""
    expected = run.weights.get("before") or run.weights["sha256"]
    if model is None:
        raise Missing(f"the model can't be had: {why}")
    found = fingerprint(model)
    if found != expected:
        raise Broken(f"the model's weights are SHA-256 {found[:12]}…, and were {str(expected)[:12]}…")
    for name, saved in run.saved.items():
        own = {key: saved.tensors[f"own.{key}"] for key in saved.content["owned"]}
        if digest_of(named_tensors(model) | own) != saved.content["weights"]:
            raise Broken(f"the weights of {name} are not the ones that it was saved with")
    return f"SHA-256 {found[:12]}… of the model's weights, as then"


def check_refitted(run: RunFiles, model: nn.Module | None) -> str:
    """The refit has changed the last layer, or nothing where it was refused, and is what the summary tells of it."""
    if "subnetwork" not in run.saved:
        raise Missing("the subnetwork can't be read")
    refitted, record = run.saved["refitted"].content, run.saved["refitted"].content["record"]
    own = [] if record["refused"] else record["tensors"]
    same("tensors of its own", sorted({*run.saved["subnetwork"].content["owned"], *own}), refitted["owned"])
    same("the hash of the other tensors", record["rest"]["before"], record["rest"]["after"])
    noted = run.need(run.summary, "summary.json")["refitted"]["fit"]
    for key, value in noted.items():
        same(f"{key} in summary.json", value, record[key])
    if record["solver"]["gradient"] > record["solver"]["wanted"]:
        raise Broken(f"the fit had not converged: gradient {record['solver']['gradient']:.1e}")
    if model is not None:
        kept = run.saved["subnetwork"]
        tensors = named_tensors(model) | {key: kept.tensors[f"own.{key}"] for key in kept.content["owned"]}
        rest = digest_of({key: tensor for key, tensor in tensors.items() if key not in record["tensors"]})
        same("the hash of the model's other tensors", record["rest"]["before"], rest)
    if record["refused"]:
        return f"refused, since it was worse on val: {record['layer']} is as it was"
    return f"{record['layer']} was fitted anew; every other tensor is as it was"


def check_data(run: RunFiles, splits: Callable[[str], Any]) -> str:
    """The data that can be had today are those of then, as far as a hash of them goes, and what was noted of them."""
    noted = [content["sha256"] for content in (run.config, run.finetune, run.refit) if "sha256" in (content or {})]
    if not noted:
        raise Missing("the run was written before hashes of data were")
    data = {name: _split(splits, name) for name in SPLITS if any(name in one for one in noted)}
    found = identities(data)
    for name, known in found.items():
        value = None if known is None else known.sha256
        if any(one.get(name, value) != value and not is_older(one[name]) for one in noted):
            raise Broken(f"the samples or labels of {name} are not those that the run had")
    _told(run.need(run.summary, "summary.json"), data.get("train"), data.get("test"), found)
    if older := sorted({name for one in noted for name in data if is_older(one.get(name))}):
        raise Missing(
            f"an earlier version noted the hashes of {', '.join(older)} by what it knew of data; extract anew"
        )
    told = (f"{name} ({known.of})" for name, known in found.items() if known is not None)
    return f"the samples and labels of then: {', '.join(told)}"


def _told(summary: Mapping[str, Any], train: Any, test: Any, known: Mapping[str, Identity | None]) -> None:
    """What the summary tells of the data is what they give: by its names and features other files are read."""
    if train is not None:
        cells = labels(train)
        facts = json.loads(json.dumps(finite(facts_of(cells, train))))
        facts |= known_by(known)
        for key, value in summary.get("data", {}).items():
            if not _alike(value, facts.get(key)):
                raise Broken(f"summary.json tells {key!r} of the training data otherwise than these have it")
        if "rho" in summary and not _alike(summary["rho"], list(cells.rho)):
            raise Broken(f"rho: {summary['rho']} is noted, {list(cells.rho)} is found")
    for name in ("vanilla", "subnetwork", "refitted", "finetuned", "dense_finetuned"):
        if test is not None and "n" in summary.get(name, {}):
            same(f"samples that {name} was audited on", summary[name]["n"], len(test))


def _alike(noted: Any, found: Any) -> bool:
    """Whether what is noted is found, up to what another machine rounds; a later version may find more."""
    if isinstance(noted, dict) and isinstance(found, dict):
        return all(key in found and _alike(value, found[key]) for key, value in noted.items())
    if isinstance(noted, list) and isinstance(found, list):
        return len(noted) == len(found) and all(map(_alike, noted, found))
    if isinstance(noted, float) and isinstance(found, float):
        return math.isclose(noted, found, rel_tol=1e-9, abs_tol=1e-12)
    return bool(noted == found)


def _split(splits: Callable[[str], Any], name: str) -> Any:
    try:
        return splits(name)
    except Exception as error:  # a user's function may raise anything
        raise Missing(f"the data can't be had: {' '.join(str(error).split())}") from error


def check_shrunk(run: RunFiles, model: nn.Module | None, splits: Callable[[str], Any], why: str) -> str:
    """Shrunk again, each subnetwork computes what the masked one does."""
    noted = {name: run.summary.get(name, {}).get("shrunk") or {} for name in ("subnetwork", "refitted", "finetuned")}
    if "shrunk" in run.summary.get("dense_finetuned", {}):  # it has no gates, and is shrunk for deployment alone
        noted["dense_finetuned"] = run.summary["dense_finetuned"]["shrunk"]
    for name, figures in noted.items():
        if not (figures.get("difference_float64") or 0) <= allowed(figures.get("noise") or 0.0):
            raise Broken(f"{name} was noted to differ by {figures['difference_float64']:.1e}")
    if model is None:
        raise Missing(f"the model can't be had: {why}" if why else "a promise that it builds on is broken")
    found = [data for data in (_split(splits, "test"), _split(splits, "train")) if data is not None]
    if not found:
        raise Missing("the data can't be had: there is neither test nor train")
    try:
        examples = [Inputs(data, torch.device("cpu")) for data in found]
        for inputs in examples:
            inputs.example()
    except Exception as error:  # a user's data set may raise anything
        raise Missing(f"the data can't be had: {' '.join(str(error).split())}") from error
    worst = 0.0
    for name in (name for name in noted if name in run.saved):
        try:
            sub = load(run.folder / name, model)
            widths = noted[name].get("widths") or {}
            sizes = shrunk(sub, examples[0], **widths)[1]
            # sentences of another length take other work: extraction counts it on train, shrinking on test
            if len(examples) > 1 and _unlike(noted[name], sizes):
                sizes = shrunk(sub, examples[1], **widths)[1]
        except NotExact as error:
            raise Broken(f"{name}: {error}") from error
        except (BadInput, RuntimeError) as error:  # the model's own, which says nothing about the files
            raise Missing(f"{name}: {' '.join(str(error).split())}") from error
        worst = max(worst, sizes["difference_float64"])
        for key in _unlike(noted[name], sizes):
            same(f"{key} of {name}, shrunk", noted[name][key], sizes[key])
    return f"shrunk again and compared: largest relative difference {worst:.0e} in float64"


def _unlike(noted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """The sizes that are noted otherwise than they are found."""
    return [key for key in SIZES if key in noted and noted[key] != found[key]]
