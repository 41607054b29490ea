"""Fit the last linear layer anew on masked features, all cells evenly, and leave every other weight as it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, caution
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels, unloaded
from bise.engine.checks import check_model, check_outputs
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.validation import Validation
from bise.methods.refit.config import L2, RefitConfig
from bise.methods.refit.fitting_data import Part, pooled
from bise.methods.refit.l2_choice import Choice, chosen_fit
from bise.methods.refit.last_layer import LastLayer, last_layer
from bise.methods.refit.logistic import Optimum
from bise.network.outputs import device_of
from bise.network.subnetwork import Subnetwork
from bise.network.tracing import record
from bise.network.twin import digest_of, named_tensors

LOOKED_AT = 64
"""Samples on which the network's logits are held against the last layer's own."""


def refit(
    model: Subnetwork | nn.Module,
    train: Any,
    *,
    val: Any = None,
    on: str = "train",
    l2: Sequence[float] = L2,
    folds: int = 5,
    seed: int = 0,
    keep_worse: bool = False,
    bottleneck: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Subnetwork:
    """Fit the last linear layer anew on the features that the gates leave, each cell (y, b) with the same weight.

    The objective is convex: multinomial logistic regression in float64, or binary for one logit, solved to the end.
    What is handed in is not changed.

    Args:
        model: A subnetwork, or a plain model as the control.
        train: A data set or DataLoader that yields (x, y, b).
        val: An unbiased one, which chooses λ and decides whether the new layer stays.
        on: The samples that are fitted: "train", "val" or "both".
        l2: The values of λ to choose from, by the best mean over cells on val.
        folds: Parts of a cross-validation, where val is fitted on itself or isn't there.
        seed: Draws these parts.
        keep_worse: Whether the new layer stays even where the mean over groups on val falls; else the old one stays,
            and `record` says so.
        bottleneck: The layer, by its name; None finds the last linear one.
        workers: Processes that read data that are not in memory; None is up to four for picture files.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        A subnetwork that owns this layer's tensors; every other one is still the model's.

    Raises:
        BadInput: There is no last linear layer, or several, or data and settings can't be worked with.

    Example:
        >>> refitted = bise.refit(sub, train, val=val)
        >>> torch.equal(refitted.network[0].weight, model[0].weight)
        True
    """
    config = RefitConfig(on=on, l2=tuple(l2), folds=folds, seed=seed, keep_worse=keep_worse)
    check_model(model)
    if on != "train" and val is None:
        raise BadInput(f"on={on!r} fits the last layer on val, and there is none; give val, or fit on train")
    started = time.perf_counter()
    train, val = unloaded(train), unloaded(val)
    cells = labels(train, progress=progress)
    inputs = Inputs(train, device_of(model), workers=workers)
    validation = None if val is None else Validation(val, cells, inputs, progress)
    sub = model if isinstance(model, Subnetwork) else Subnetwork(model, ())
    sub.place(inputs.example())
    trace = record(sub.bare(), inputs.example())
    layer = last_layer(sub, trace, bottleneck)
    before = _rest(sub, layer)
    work = _copied(sub, sub.owned | trace.moved | set(layer.tensors), layer)
    fit = _fitted(work, layer, (cells, inputs), validation, config, progress)
    result = _copied(sub, sub.owned | trace.moved | set(() if fit.refused else layer.tensors), layer)
    if not fit.refused:
        layer.put(result, fit.chosen.weight, fit.chosen.bias)
    if (after := _rest(result, layer)) != before:
        raise RuntimeError("the refit changed more than the last layer; this is a bug, please report it")
    result.record = {
        "job": "refit",
        "config": asdict(config),
        "layer": layer.name,
        "tensors": list(layer.tensors),
        **fit.as_dict(),
        "rest": {"before": before, "after": after},
        "seconds": time.perf_counter() - started,
    }
    for note in fit.notes:
        caution(note)
    return result


def check_refittable(model: nn.Module, example: Any, bottleneck: str | None = None) -> None:
    """Refuse a model whose last layer couldn't be fitted anew, before there is work."""
    sub = model if isinstance(model, Subnetwork) else Subnetwork(model, ())
    last_layer(sub, record(sub.bare(), example), bottleneck)


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A layer that was fitted anew, and how that went."""

    chosen: Choice
    samples: dict[str, int]
    """{split: how many of its samples were fitted on}."""
    n_by_cell: dict[str, int]
    figures: dict[str, Any] | None
    """On val, before and after."""
    refused: bool
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """What a record tells of it."""
        return {
            "refused": self.refused,
            "samples": self.samples,
            "n_by_cell": self.n_by_cell,
            **self.chosen.as_dict(),
            "val": self.figures,
            "notes": self.notes,
        }


def _fitted(
    work: Subnetwork,
    layer: LastLayer,
    train: tuple[Cells, Inputs],
    validation: Validation | None,
    config: RefitConfig,
    progress: Progress | None,
) -> _Fit:
    """The best layer for the features of `work`, which has it from then on; refused where val gets worse by it."""
    given = {"train": train} if config.on != "val" else {}
    if validation is not None:
        given["val"] = (validation.cells, validation.inputs)
    parts = {name: _part(work, layer, name, *both, progress=progress) for name, both in given.items()}
    fitted = pooled([part for name, part in parts.items() if config.on in (name, "both")])
    chosen = chosen_fit(fitted, parts.get("val"), layer, config, device_of(work), progress)
    _check_converged(chosen.optimum)
    layer.put(work, chosen.weight, chosen.bias)
    for name, part in parts.items():
        _check_alone(work, layer, given[name][1], part)
    figures = None if validation is None else _figures(work, parts["val"], validation, chosen, config.on, progress)
    worse = figures is not None and figures["after"]["unbiased"] < figures["before"]["unbiased"]
    refused = worse and not config.keep_worse
    notes = fitted.notes() + ([_worse(layer, figures)] if refused and figures is not None else [])
    return _Fit(
        chosen=chosen,
        samples={name: len(part.y) for name, part in parts.items() if config.on in (name, "both")},
        n_by_cell=fitted.counts(),
        figures=figures,
        refused=refused,
        notes=notes,
    )


def _rest(sub: Subnetwork, layer: LastLayer) -> str:
    """SHA-256 over every tensor but the last layer's."""
    return digest_of({key: t for key, t in named_tensors(sub.network).items() if key not in layer.tensors})


def _copied(sub: Subnetwork, owned: frozenset[str], layer: LastLayer) -> Subnetwork:
    """The same network and mask, which owns other tensors."""
    return Subnetwork(sub.bare(), sub.sites, scores=sub.scores, masks=sub.masks, bottleneck=layer.name, owned=owned)


def _part(
    work: Subnetwork, layer: LastLayer, name: str, cells: Cells, inputs: Inputs, *, progress: Progress | None
) -> Part:
    """Masked features and logits of one split."""
    found = infer(work, inputs, features=layer.name, progress=progress, label=f"features of {name}")
    assert found.z is not None
    check_outputs(found.logits, cells)
    part = Part(name=name, cells=cells, z=found.z, logits=found.logits)
    part.check_finite()
    if not layer.computes(work, part.z[:LOOKED_AT], part.logits[:LOOKED_AT]):
        raise BadInput(
            f"{layer.name} doesn't give the logits by itself (something comes behind it, or its weight isn't used as it"
            ' is), so it can\'t be fitted anew; name the last linear layer, for instance bottleneck="fc", or finetune'
        )
    return part


def _check_converged(optimum: Optimum) -> None:
    if not optimum.converged:
        raise BadInput(
            f"the last layer's fit didn't converge at L2 {optimum.l2:g}: the gradient's norm is {optimum.gradient:.1e}"
            f" after {optimum.steps} steps of Newton's method, and {optimum.wanted:.0e} is wanted; leave the smallest"
            " values out of l2"
        )


def _check_alone(work: Subnetwork, layer: LastLayer, inputs: Inputs, part: Part) -> None:
    """Refuse a layer whose tensors are used elsewhere too, by a function: then new values move more than the logits."""
    some = torch.arange(min(LOOKED_AT, len(part.y)))
    again = infer(work, inputs, index=some, features=layer.name)
    if not layer.computes(work, part.z[: len(some)], again.logits):
        raise BadInput(
            f"the weights of {layer.name} are used elsewhere in the network too, so it can't be fitted anew by itself;"
            " finetune this network instead"
        )


def _figures(
    work: Subnetwork, val: Part, validation: Validation, chosen: Choice, on: str, progress: Progress | None
) -> dict[str, Any]:
    """Accuracies on val before and after, by fits that haven't seen the sample that they are asked about."""
    after = validation(work, progress) if on == "train" else validation.figures(val.right(chosen.held))
    return {"before": validation.figures(val.right(val.logits)), "after": after, "by": chosen.by}


def _worse(layer: LastLayer, figures: dict[str, Any]) -> str:
    before, after = (figures[key]["unbiased"] for key in ("before", "after"))
    return (
        f"the refit was refused, and {layer.name} stays as it was: the mean over groups on val would fall from"
        f" {before:.1%} to {after:.1%}; keep_worse=True takes it all the same"
    )
