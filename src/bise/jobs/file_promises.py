"""Promises that a run's files keep among themselves, without its model and its data."""

from __future__ import annotations

import re
from typing import Any

import torch

from bise.base.files import SCHEMA
from bise.jobs.promises import Broken, same
from bise.network.gates import threshold
from bise.runs.reading import Missing, RunFiles


def check_files(run: RunFiles) -> str:
    if run.troubles:
        raise Broken("; ".join(run.troubles))
    first = min((row["schema"] for row in run.rows), default=SCHEMA)
    told = f"schema {SCHEMA}" if first == SCHEMA else f"schema {first} as {SCHEMA}"
    return f"{run.count} files are there and can be read, {told}"


def check_configuration(run: RunFiles) -> str:
    """config.json says what the jobs were in fact given."""
    config = run.need(run.config, "config.json")
    if config.get("job") == "train":
        recipe, source = config["recipe"], config["source"]
        same("the recipe's key", f"recipe:{recipe['name']}", source["model"], source["data"])
        same("the seed", config["seed"], source["data_arguments"]["seed"], recipe["train"]["seed"])
        return "config.json agrees with itself"
    given = {"subnetwork": config.get("extract")}
    given |= dict.fromkeys(("finetuned", "dense_finetuned"), run.summary.get("finetune"))
    given["refitted"] = run.summary.get("refit")
    for job, own in (("finetune", run.finetune), ("refit", run.refit)):
        if own:
            same(f"{job} in summary.json", own[job], run.need(run.summary, "summary.json").get(job))
    for name, saved in run.subnetworks().items():
        recorded = saved.content["record"]["config"]
        run.need(given[name], "summary.json")
        for key in {*recorded, *given[name]}:
            same(f"{key} of {name}", given[name].get(key), recorded.get(key))
    return "config.json says what each job was given"


def check_log(run: RunFiles) -> str:
    """The summary's selection and the masks' sizes are those of the log."""
    summary = run.need(run.summary, "summary.json")
    selected = summary.get("selection", {}).get("run", 1)
    kept = [row for row in run.rows if row["job"] != "extract" or row.get("run", 1) == selected]
    rows = {job: _last_pass(kept, job) for job in {row["job"] for row in kept}}
    if run.config.get("job") == "train":
        same("epochs", run.config["recipe"]["train"]["epochs"], len(rows.get("train", ())))
        return f"{len(rows['train'])} epochs, as configured"
    log, selection = rows.get("extract", {}), summary["selection"]
    epoch = selection["epoch"]
    if epoch and epoch not in log:
        raise Broken(f"the selected epoch {epoch} is not in metrics.jsonl")
    if sorted(log) != list(range(1, len(log) + 1)):
        raise Broken("epochs are missing in metrics.jsonl")
    if "subnetwork" not in run.saved:
        raise Missing("the subnetwork can't be read")
    saved = run.saved["subnetwork"]
    same("the selection", selection, saved.content["record"]["selection"])
    cut = saved.content["record"].get("budget", {}).get("cut", False)  # below any mask of the log
    if selection["kind"] == "best" and not cut:
        by = run.config["extract"]["selection"]
        judged = [row["val"] for row in log.values() if "val" in row and _within(row, run.config["extract"])]
        # a mask that gives every sample one class is taken only where every other does so too
        judged = [val for val in judged if not val.get("constant")] or ([] if epoch == 0 else judged)
        best = max((val[by] for val in judged if val[by] is not None), default=None)
        if epoch:
            same(f"the value of epoch {epoch}", selection["value"], log[epoch]["val"][by])
            same("the best value", selection["value"], best)
        elif best is not None and best >= selection["value"]:
            raise Broken(f"no mask was selected, though one has {best} on val and the model {selection['value']}")
    if epoch and not cut and "zeta" not in saved.content["record"]:  # before the first epoch, all units are open
        same(f"open units of epoch {epoch}", log[epoch]["open"], saved.open)
    for name in ("finetuned", "dense_finetuned"):
        if name in run.saved:
            same(f"epochs of {name}", run.saved[name].content["record"]["config"]["epochs"], len(rows.get(name, ())))
    return f"epoch {epoch} and its figures are in metrics.jsonl"


def _within(row: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether an epoch's mask kept to the budget, if there was one."""
    return all(share <= config[f"max_{kind}"] for kind, share in row.get("budget", {}).items())


def _last_pass(rows: list[dict[str, Any]], job: str) -> dict[int, dict[str, Any]]:
    """{epoch: row} of a job; one that was run again counts from its last first epoch on."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["job"] == job:
            found = {} if row["epoch"] == 1 else found
            found[row["epoch"]] = row
    return found


def check_hashes(run: RunFiles) -> str:
    for name, saved in run.subnetworks().items():
        if "sha256" not in saved.content:
            raise Missing(f"{name} was written before hashes were")
        if saved.content["sha256"] != saved.sha256:
            raise Broken(f"{name}/subnetwork.safetensors is not the file that was written")
    return "each safetensors file has the hash that was noted beside it"


def check_units(run: RunFiles) -> str:
    for name, saved in run.subnetworks().items():
        for site, units in saved.units.items():
            for kind in ("scores", "masks"):
                same(f"units of {name}, {kind}, {site}", [units], list(saved.tensors[f"{kind}.{site}"].shape))
        sites = {key.partition(".")[2] for key in saved.tensors if key.startswith(("scores.", "masks."))}
        same(f"sites of {name} and its tensors", sorted(saved.units), sorted(sites))
        masked = {} if name == "dense_finetuned" else run.saved.get("subnetwork", saved).units
        same(f"sites of {name}", masked, saved.units)
        counted = run.summary.get(name, {}).get("units")
        if counted is not None:
            same(f"open units of {name}", counted["open"], saved.open)
            same(f"units of {name}", counted["all"], sum(saved.units.values()))
    total = {name: f"{saved.open} of {sum(saved.units.values())}" for name, saved in run.saved.items() if saved.units}
    return ", ".join(f"{name}: {text} open" for name, text in total.items())


def check_masks(run: RunFiles) -> str:
    """Every mask is m ≥ 0, or σ(m) ≥ ζ where another ζ was noted; finetuning left it as it was."""
    cuts = {name: saved.content["record"].get("zeta", 0.5) for name, saved in run.subnetworks().items()}
    chosen = cuts.get("subnetwork", 0.5)
    for name, saved in run.saved.items():
        cut = cuts.get(name, chosen)
        cut = chosen if cut == 0.5 else cut
        for site in saved.units:
            scores, mask = saved.tensors[f"scores.{site}"].double(), saved.tensors[f"masks.{site}"]
            if scores.shape != mask.shape:
                raise Missing(f"{name}, {site}: there is not one score for each gate")
            if not scores.isfinite().all():
                raise Broken(f"{name}, {site}: a score is not finite")
            wrong = int((mask != (scores >= threshold(cut))).sum())
            if wrong:
                raise Broken(f"{name}, {site}: {wrong} of {len(mask)} gates are not what their scores say")
            if cut != chosen:
                continue
            first = run.saved.get("subnetwork", saved).tensors.get(f"masks.{site}")
            if first is None or not torch.equal(first, mask):
                raise Broken(f"{name}, {site}: the mask is another than the subnetwork's")
    return "each gate is open where its score is at least 0" + "".join(
        f", {name} cut at ζ = {cut:g}" for name, cut in cuts.items() if cut != 0.5
    )


def check_unchanged(run: RunFiles) -> str:
    """The model's weights had one hash before extraction and after."""
    before, after = run.weights["before"], run.weights["after"]
    if not re.fullmatch("[0-9a-f]{64}", str(before)):
        raise Broken(f"{before!r} is no SHA-256")
    if before != after:
        raise Broken(f"the weights were changed: {before[:12]}… before, {str(after)[:12]}… after")
    saved = run.saved.get("subnetwork")
    if saved is not None:
        record = saved.content["record"]
        same("the hash in subnetwork.json", before, record["weights_before"], record["weights_after"])
        if not saved.content["owned"]:
            same("the subnetwork's own hash", before, saved.content["weights"])
    return f"SHA-256 {before[:12]}… before and after"
