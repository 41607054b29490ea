"""Whether a run keeps its promises: its files are read again, held against one another and against the model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.files import SCHEMA, finite
from bise.data.core.arguments import SPLITS
from bise.data.core.contract import labels
from bise.data.core.identity import Identity, identities, is_older, known_by
from bise.data.facts import facts_of
from bise.engine.inputs import Inputs
from bise.jobs.deployment import shrunk
from bise.network.gates import threshold
from bise.network.saving import load
from bise.network.shrinking.verify import TOLERANCE, NotExact
from bise.network.twin import digest_of, fingerprint, named_tensors
from bise.runs.folder import begun_jobs
from bise.runs.reading import Missing, RunFiles, read_run


@dataclass(frozen=True)
class Promise:
    """One promise, whether it holds, is broken or could not be checked, and why."""

    name: str
    state: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found, promise by promise."""

    promises: tuple[Promise, ...]

    @property
    def holds(self) -> bool:
        """Whether none is broken; some may not have been checked."""
        return all(promise.state != "broken" for promise in self.promises)

    def as_dict(self) -> dict[str, Any]:
        return {"holds": self.holds, "promises": [asdict(promise) for promise in self.promises]}


SIZES = ("parameters", "macs", "macs_paper", "macs_by_layer", "sparsity_percent")
"""What is noted of a shrunk network and doesn't depend on the day."""


class _Broken(Exception):
    """A promise that doesn't hold, and why."""


def verify(folder: str | Path, source: Callable[[], nn.Module], splits: Callable[[str], Any]) -> Verification:
    """Check a run folder of demo, train, extract, refit or finetune against the model and splits that it was made from.

    Where either can't be had, `source` and `splits` raise BadInput, and what needs it is unchecked.
    """
    run = read_run(Path(folder))
    for job in begun_jobs(Path(folder)):
        raise BadInput(f"{folder} isn't finished, so it promises nothing yet; run {job} again with --resume first")
    model, why = _had(source)
    found = [
        _checked("files", _files, run),
        _checked("configuration", _configuration, run),
        _checked("log", _log, run),
    ]
    if "job" in run.config and run.config["job"] == "train":
        found += [_checked("weights", _weights, run, model, why), _checked("data", _data, run, splits)]
        return Verification(promises=tuple(found))
    found += [
        _checked("hashes", _hashes, run),
        _checked("units", _units, run),
        _checked("masks", _masks, run),
        _checked("unchanged", _unchanged, run),
        _checked("weights", _weights, run, model, why),
        _checked("data", _data, run, splits),
    ]
    if "refitted" in run.saved:
        found.append(_checked("refitted", _refitted, run, model))
    needed = ("files", "hashes", "units", "masks", "weights")
    sound = all(promise.state != "broken" for promise in found if promise.name in needed)
    found.append(_checked("shrunk", _shrunk, run, model if sound else None, splits, why))
    return Verification(promises=tuple(found))


def _checked(name: str, check: Callable[..., str], *arguments: Any) -> Promise:
    try:
        return Promise(name, "holds", check(*arguments))
    except _Broken as error:
        return Promise(name, "broken", str(error))
    except Missing as error:
        return Promise(name, "unchecked", str(error))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError) as error:
        what = " ".join(str(error).split())
        return Promise(
            name, "broken", f"the files hold something else than bise writes ({type(error).__name__} {what})"
        )


def _had(source: Callable[[], nn.Module]) -> tuple[nn.Module | None, str]:
    try:
        return source().cpu().eval(), ""
    except BadInput as error:
        return None, " ".join(str(error).split())


def _files(run: RunFiles) -> str:
    if run.troubles:
        raise _Broken("; ".join(run.troubles))
    first = min((row["schema"] for row in run.rows), default=SCHEMA)
    told = f"schema {SCHEMA}" if first == SCHEMA else f"schema {first} as {SCHEMA}"
    return f"{run.count} files are there and can be read, {told}"


def _configuration(run: RunFiles) -> str:
    """config.json says what the jobs were in fact given."""
    config = run.need(run.config, "config.json")
    if config.get("job") == "train":
        recipe, source = config["recipe"], config["source"]
        _same("the recipe's key", f"recipe:{recipe['name']}", source["model"], source["data"])
        _same("the seed", config["seed"], source["data_arguments"]["seed"], recipe["train"]["seed"])
        return "config.json agrees with itself"
    given = {"subnetwork": config.get("extract")}
    given |= dict.fromkeys(("finetuned", "dense_finetuned"), run.summary.get("finetune", config.get("finetune")))
    given["refitted"] = run.summary.get("refit")
    for job, own in (("finetune", run.finetune), ("refit", run.refit)):
        if own:
            _same(f"{job} in summary.json", own[job], run.need(run.summary, "summary.json").get(job))
    for name, saved in run.subnetworks().items():
        recorded = saved.content["record"]["config"]
        run.need(given[name], "summary.json")
        for key in {*recorded, *given[name]}:
            _same(f"{key} of {name}", given[name].get(key), recorded.get(key))
    return "config.json says what each job was given"


def _log(run: RunFiles) -> str:
    """The summary's selection and the masks' sizes are those of the log."""
    summary = run.need(run.summary, "summary.json")
    selected = summary.get("selection", {}).get("run", 1)
    kept = [row for row in run.rows if row["job"] != "extract" or row.get("run", 1) == selected]
    rows = {job: _last_pass(kept, job) for job in {row["job"] for row in kept}}
    if run.config.get("job") == "train":
        _same("epochs", run.config["recipe"]["train"]["epochs"], len(rows.get("train", ())))
        return f"{len(rows['train'])} epochs, as configured"
    log, selection = rows.get("extract", {}), summary["selection"]
    epoch = selection["epoch"]
    if epoch and epoch not in log:
        raise _Broken(f"the selected epoch {epoch} is not in metrics.jsonl")
    if sorted(log) != list(range(1, len(log) + 1)):
        raise _Broken("epochs are missing in metrics.jsonl")
    if "subnetwork" not in run.saved:
        raise Missing("the subnetwork can't be read")
    saved = run.saved["subnetwork"]
    _same("the selection", selection, saved.content["record"]["selection"])
    if selection["kind"] == "best":
        by = run.config["extract"]["selection"]
        values = [row["val"][by] for row in log.values() if "val" in row]
        best = max((v for v in values if v is not None), default=None)
        if epoch:
            _same(f"the value of epoch {epoch}", selection["value"], log[epoch]["val"][by])
            _same("the best value", selection["value"], best)
        elif best is not None and best >= selection["value"]:
            raise _Broken(f"no mask was selected, though one has {best} on val and the model {selection['value']}")
    if epoch and "zeta" not in saved.content["record"]:  # before the first epoch, all units are open
        _same(f"open units of epoch {epoch}", log[epoch]["open"], saved.open)
    for name, job in (("finetuned", "finetune" if "finetune" in rows else "finetuned"), ("dense_finetuned",) * 2):
        if name in run.saved:
            _same(f"epochs of {name}", run.saved[name].content["record"]["config"]["epochs"], len(rows.get(job, ())))
    return f"epoch {epoch} and its figures are in metrics.jsonl"


def _last_pass(rows: list[dict[str, Any]], job: str) -> dict[int, dict[str, Any]]:
    """{epoch: row} of a job; one that was run again counts from its last first epoch on."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["job"] == job:
            found = {} if row["epoch"] == 1 else found
            found[row["epoch"]] = row
    return found


def _hashes(run: RunFiles) -> str:
    for name, saved in run.subnetworks().items():
        if "sha256" not in saved.content:
            raise Missing(f"{name} was written before hashes were")
        if saved.content["sha256"] != saved.sha256:
            raise _Broken(f"{name}/subnetwork.safetensors is not the file that was written")
    return "each safetensors file has the hash that was noted beside it"


def _units(run: RunFiles) -> str:
    for name, saved in run.subnetworks().items():
        for site, units in saved.units.items():
            for kind in ("scores", "masks"):
                _same(f"units of {name}, {kind}, {site}", [units], list(saved.tensors[f"{kind}.{site}"].shape))
        sites = {key.partition(".")[2] for key in saved.tensors if key.startswith(("scores.", "masks."))}
        _same(f"sites of {name} and its tensors", sorted(saved.units), sorted(sites))
        masked = {} if name == "dense_finetuned" else run.saved.get("subnetwork", saved).units
        _same(f"sites of {name}", masked, saved.units)
        counted = run.summary.get(name, {}).get("units")
        if counted is not None:
            _same(f"open units of {name}", counted["open"], saved.open)
            _same(f"units of {name}", counted["all"], sum(saved.units.values()))
    total = {name: f"{saved.open} of {sum(saved.units.values())}" for name, saved in run.saved.items() if saved.units}
    return ", ".join(f"{name}: {text} open" for name, text in total.items())


def _masks(run: RunFiles) -> str:
    """Every mask is m ≥ 0, or σ(m) ≥ ζ where another ζ was noted; finetuning left it as it was."""
    cut = next(iter(run.subnetworks().values())).content["record"].get("zeta", 0.5)
    for name, saved in run.saved.items():
        for site in saved.units:
            scores, mask = saved.tensors[f"scores.{site}"].double(), saved.tensors[f"masks.{site}"]
            if scores.shape != mask.shape:
                raise Missing(f"{name}, {site}: there is not one score for each gate")
            if not scores.isfinite().all():
                raise _Broken(f"{name}, {site}: a score is not finite")
            wrong = int((mask != (scores >= threshold(cut))).sum())
            if wrong:
                raise _Broken(f"{name}, {site}: {wrong} of {len(mask)} gates are not what their scores say")
            first = run.saved.get("subnetwork", saved).tensors.get(f"masks.{site}")
            if first is None or not torch.equal(first, mask):
                raise _Broken(f"{name}, {site}: the mask is another than the subnetwork's")
    return "each gate is open where its score is at least 0" + (f", cut at ζ = {cut:g}" if cut != 0.5 else "")


def _unchanged(run: RunFiles) -> str:
    """The model's weights had one hash before extraction and after."""
    before, after = run.weights["before"], run.weights["after"]
    if not re.fullmatch("[0-9a-f]{64}", str(before)):
        raise _Broken(f"{before!r} is no SHA-256")
    if before != after:
        raise _Broken(f"the weights were changed: {before[:12]}… before, {str(after)[:12]}… after")
    saved = run.saved.get("subnetwork")
    if saved is not None:
        record = saved.content["record"]
        _same("the hash in subnetwork.json", before, record["weights_before"], record["weights_after"])
        if not saved.content["owned"]:
            _same("the subnetwork's own hash", before, saved.content["weights"])
    return f"SHA-256 {before[:12]}… before and after"


def _weights(run: RunFiles, model: nn.Module | None, why: str) -> str:
    """The model that can be had today has the weights of then, and so has each subnetwork."""
    expected = run.weights.get("before") or run.weights["sha256"]
    if model is None:
        raise Missing(f"the model can't be had: {why}")
    found = fingerprint(model)
    if found != expected:
        raise _Broken(f"the model's weights are SHA-256 {found[:12]}…, and were {str(expected)[:12]}…")
    for name, saved in run.saved.items():
        own = {key: saved.tensors[f"own.{key}"] for key in saved.content["owned"]}
        if digest_of(named_tensors(model) | own) != saved.content["weights"]:
            raise _Broken(f"the weights of {name} are not the ones that it was saved with")
    return f"SHA-256 {found[:12]}… of the model's weights, as then"


def _refitted(run: RunFiles, model: nn.Module | None) -> str:
    """The refit has changed the last layer, or nothing where it was refused, and is what the summary tells of it."""
    if "subnetwork" not in run.saved:
        raise Missing("the subnetwork can't be read")
    refitted, record = run.saved["refitted"].content, run.saved["refitted"].content["record"]
    own = [] if record["refused"] else record["tensors"]
    _same("tensors of its own", sorted({*run.saved["subnetwork"].content["owned"], *own}), refitted["owned"])
    _same("the hash of the other tensors", record["rest"]["before"], record["rest"]["after"])
    noted = run.need(run.summary, "summary.json")["refitted"]["fit"]
    for key, value in noted.items():
        _same(f"{key} in summary.json", value, record[key])
    if record["solver"]["gradient"] > record["solver"]["wanted"]:
        raise _Broken(f"the fit had not converged: gradient {record['solver']['gradient']:.1e}")
    if model is not None:
        kept = run.saved["subnetwork"]
        tensors = named_tensors(model) | {key: kept.tensors[f"own.{key}"] for key in kept.content["owned"]}
        rest = digest_of({key: tensor for key, tensor in tensors.items() if key not in record["tensors"]})
        _same("the hash of the model's other tensors", record["rest"]["before"], rest)
    if record["refused"]:
        return f"refused, since it was worse on val: {record['layer']} is as it was"
    return f"{record['layer']} was fitted anew; every other tensor is as it was"


def _data(run: RunFiles, splits: Callable[[str], Any]) -> str:
    """The data that can be had today are those of then, as far as a hash of them goes, and what was noted of them."""
    noted = [content["sha256"] for content in (run.config, run.finetune, run.refit) if "sha256" in (content or {})]
    if not noted:
        raise Missing("the run was written before hashes of data were")
    data = {name: _split(splits, name) for name in SPLITS if any(name in one for one in noted)}
    found = identities(data)
    for name, known in found.items():
        value = None if known is None else known.sha256
        if any(one.get(name, value) != value and not is_older(one[name]) for one in noted):
            raise _Broken(f"the samples or labels of {name} are not those that the run had")
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
        facts |= known_by(known) | ({} if test is None else {"test": len(test)})  # which the demo notes too
        for key, value in summary.get("data", {}).items():
            if not _alike(value, facts.get(key)):
                raise _Broken(f"summary.json tells {key!r} of the training data otherwise than these have it")
        if "rho" in summary and not _alike(summary["rho"], list(cells.rho)):
            raise _Broken(f"rho: {summary['rho']} is noted, {list(cells.rho)} is found")
    for name in ("vanilla", "subnetwork", "refitted", "finetuned", "dense_finetuned"):
        if test is not None and "n" in summary.get(name, {}):
            _same(f"samples that {name} was audited on", summary[name]["n"], len(test))


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


def _shrunk(run: RunFiles, model: nn.Module | None, splits: Callable[[str], Any], why: str) -> str:
    """Shrunk again, each subnetwork computes what the masked one does."""
    noted = {name: run.summary.get(name, {}).get("shrunk") or {} for name in ("subnetwork", "refitted", "finetuned")}
    for name, figures in noted.items():
        if not (figures.get("difference_float64") or 0) <= TOLERANCE:
            raise _Broken(f"{name} was noted to differ by {figures['difference_float64']:.1e}")
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
            sizes = shrunk(sub, examples[0])[1]
            # sentences of another length take other work: extraction counts it on train, shrinking on test
            if len(examples) > 1 and _unlike(noted[name], sizes):
                sizes = shrunk(sub, examples[1])[1]
        except NotExact as error:
            raise _Broken(f"{name}: {error}") from error
        except (BadInput, RuntimeError) as error:  # the model's own, which says nothing about the files
            raise Missing(f"{name}: {' '.join(str(error).split())}") from error
        worst = max(worst, sizes["difference_float64"])
        for key in _unlike(noted[name], sizes):
            _same(f"{key} of {name}, shrunk", noted[name][key], sizes[key])
    return f"shrunk again and compared: largest relative difference {worst:.0e} in float64"


def _unlike(noted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """The sizes that are noted otherwise than they are found."""
    return [key for key in SIZES if key in noted and noted[key] != found[key]]


def _same(what: str, noted: Any, *found: Any) -> None:
    for value in found:
        if value != noted:
            raise _Broken(f"{what}: {noted!r} is noted, {value!r} is found")
