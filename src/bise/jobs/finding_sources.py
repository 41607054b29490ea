"""Where candidates come from: layers, what is read in them, answers, a model of one epoch, columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.data.core.contract import Labelled, Progress
from bise.data.own.beside import columns_beside
from bise.data.own.tables import TableData
from bise.engine.inputs import Inputs
from bise.engine.layers import BOTTLENECK, layer_features
from bise.methods.finding.clusters import check_features, fit_clusters, fit_readings
from bise.methods.finding.columns import Column, columns_of, is_named
from bise.methods.pseudo_labels import pseudo_bias
from bise.network.outputs import device_of, not_finite
from bise.network.placement import Site, one_bottleneck, place
from bise.network.subnetwork import Subnetwork

LAYERS = 3
"""Sites that are looked at, evenly over the network, beside the bottleneck."""
NARROW = 8
"""Units that a site needs: heads of attention, averaged, say little."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Raw:
    """A grouping that has not been measured."""

    name: str
    source: str
    about: str
    groups: tuple[str, ...]
    labels: dict[str, Tensor]
    """{"train", "val": [N]}"""
    assign: Callable[[dict[str, Tensor], Tensor, Labelled], Tensor] | None = None
    """From features, logits and data to the groups of other samples."""
    column: str | None = None

    @property
    def named(self) -> bool:
        """Whether it is a column called by something that people mustn't be told apart by."""
        return self.column is not None and is_named(self.column)


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """What the model made of the data."""

    model: Subnetwork
    sites: tuple[Site, ...]
    bottleneck: str | None
    why_none: str | None
    """Why there is no bottleneck."""
    data: dict[str, Labelled]
    y: dict[str, Tensor]
    logits: dict[str, Tensor]
    features: dict[str, dict[str, Tensor]]
    classes: tuple[str, ...]
    fitted: Tensor
    """The training samples that groups may be fitted on."""
    seed: int
    workers: int | None
    tables: dict[str, Tensor] = field(default_factory=dict)
    """{column: the groups of training samples}, for those who ask what tells a candidate."""

    @property
    def measured(self) -> tuple[Tensor, str]:
        """(samples, split) that differences are measured on."""
        if "val" in self.data:
            return torch.arange(len(self.y["val"])), "val"
        free = torch.ones(len(self.y["train"]), dtype=torch.bool)
        free[self.fitted] = False
        return free.nonzero().flatten(), "train"

    def answers(self, split: str) -> Tensor:
        return self.logits[split].argmax(1)

    def columns_to_tell(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"the target": self.y["train"], **self.tables, **given}

    def labels_of(self, raw: Raw, data: Any) -> Tensor:
        """The groups of these samples, which may be others than those that were looked at."""
        for split, own in self.data.items():
            inner = data.dataset if isinstance(data, Labelled) else data
            if inner is own.dataset and len(data) == len(own):
                return raw.labels[split]
        if raw.assign is None:
            raise BadInput(
                f"{raw.name} was given to bise.find for its training set alone, so other samples have no groups;"
                " choose another candidate"
            )
        hidden = data if isinstance(data, Labelled) else Labelled(data, y=torch.zeros(len(data), dtype=torch.long))
        inputs = Inputs(hidden, device_of(self.model.network), workers=self.workers)
        logits, features = layer_features(self.model, inputs, self.sites, self.bottleneck)
        return raw.assign(features, logits, hidden)


def seen_of(
    model: nn.Module,
    train: Labelled,
    val: Labelled | None,
    *,
    bottleneck: str | None,
    seed: int,
    workers: int | None,
    progress: Progress | None,
) -> Seen:
    """Run the model over all samples once, and keep what its layers say."""
    data = {"train": train} | ({} if val is None else {"val": val})
    inputs = {name: Inputs(part, device_of(model), workers=workers) for name, part in data.items()}
    plain = model.bare() if isinstance(model, Subnetwork) else model
    placement = place(plain, inputs["train"].example(), gated=False)
    sub = model if isinstance(model, Subnetwork) else Subnetwork(model, (), owned=placement.moved)
    why = None
    try:
        bottleneck = one_bottleneck(placement, plain, bottleneck)
    except BadInput as error:
        if bottleneck is not None:
            raise
        why = str(error)
    wide = [site for site in placement.sites if site.units >= NARROW]
    sites = tuple(dict.fromkeys(wide[len(wide) * i // LAYERS] for i in range(LAYERS))) if wide else ()
    if not sites and bottleneck is None:
        raise BadInput(
            f"{type(model).__name__} has no layer whose features could be read ({why}); name one with bottleneck=…"
        )
    logits, features = {}, {}
    for name, part in inputs.items():
        logits[name], features[name] = layer_features(
            sub, part, sites, bottleneck, progress=progress, label=f"reading layers, {name}"
        )
        if (bad := not_finite(logits[name].isfinite().all(1), split=name)) is not None:
            raise BadInput(bad[0])
        for rows in features[name].values():
            check_features(rows)
    count = len(train)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    names = train.names
    classes = max(int(train.y.max()) + 1, train.classes or 0)
    return Seen(
        model=sub,
        sites=sites,
        bottleneck=bottleneck,
        why_none=why,
        data=data,
        y={name: part.y for name, part in data.items()},
        logits=logits,
        features=features,
        classes=tuple(map(str, range(classes))) if names is None else names.classes,
        fitted=order if val is not None else order[: count // 2],
        seed=seed,
        workers=workers,
    )


def found_by(
    seen: Seen,
    *,
    columns: Mapping[str, Sequence[Any]],
    make_model: Callable[[], nn.Module] | None,
    progress: Progress | None,
) -> tuple[list[Raw], list[str]]:
    """(groupings of every source, what gave none and why)."""
    left_out = [] if seen.why_none is None else [f"the bottleneck: {seen.why_none}"]
    found = _answers(seen, left_out)
    layers = list(seen.features["train"])
    for number, layer in enumerate(layers, 1):
        found += _clusters(seen, layer, left_out)
        if layer != BOTTLENECK:  # what a linear layer reads there is the model's answer itself
            found += _reading(seen, layer)
        if progress is not None:
            progress("grouping", number, len(layers))
    if make_model is not None:
        found += _pseudo(seen, make_model, left_out, progress)
    return found + _columns(seen, columns, left_out), left_out


def _called(layer: str) -> str:
    return "the bottleneck" if layer == BOTTLENECK else layer


def _clusters(seen: Seen, layer: str, left_out: list[str]) -> list[Raw]:
    features = {split: layers[layer] for split, layers in seen.features.items()}
    clusters = fit_clusters(features["train"][seen.fitted], seed=seen.seed)
    name = f"clusters of {_called(layer)}"
    if clusters is None:
        left_out.append(f"{name}: its features are one cloud, without groups that stand apart")
        return []
    return [
        Raw(
            name=name,
            source="layer",
            about=f"samples that are alike in what {_called(layer)} says of them; {clusters.k} groups stand apart the"
            f" best (silhouette {clusters.silhouette:.2f})",
            groups=tuple(f"group {k + 1}" for k in range(clusters.k)),
            labels={split: clusters(rows) for split, rows in features.items()},
            assign=lambda found, _, __: clusters(found[layer]),
        )
    ]


def _reading(seen: Seen, layer: str) -> list[Raw]:
    y = seen.y["train"]
    half = torch.randperm(len(y), generator=torch.Generator().manual_seed(seen.seed + 1)) % 2
    features = {split: layers[layer] for split, layers in seen.features.items()}
    readings = fit_readings(features["train"], y, half, seed=seen.seed)
    return [
        Raw(
            name=f"what {layer} gives away",
            source="reading",
            about=f"the class that a linear classifier reads in {layer} alone, of samples that it didn't learn from:"
            " what is so easy to read may be a shortcut",
            groups=tuple(f"looks like {name}" for name in seen.classes),
            labels={split: readings(rows, half if split == "train" else None) for split, rows in features.items()},
            assign=lambda found, _, __: readings(found[layer]),
        )
    ]


def _answers(seen: Seen, left_out: list[str]) -> list[Raw]:
    name = "the model's answers"
    if (seen.answers("train") == seen.y["train"]).all():
        left_out.append(f"{name}: it errs on no training sample, so none would be conflicting")
        return []
    return [
        Raw(
            name=name,
            source="answers",
            about="what the model takes samples for: its errors are the conflicting ones. That accuracy differs"
            " between these groups is no evidence; it does by construction",
            groups=tuple(f"answered {name}" for name in seen.classes),
            labels={split: seen.answers(split).clamp(max=len(seen.classes) - 1) for split in seen.data},
            assign=lambda _, logits, __: logits.argmax(1),
        )
    ]


def _pseudo(
    seen: Seen, make_model: Callable[[], nn.Module], left_out: list[str], progress: Progress | None
) -> list[Raw]:
    name, train = "a model of one epoch", seen.data["train"]
    try:
        found = {
            split: pseudo_bias(make_model, train, on=None if split == "train" else part, progress=progress).b
            for split, part in seen.data.items()
        }
    except BadInput as error:
        left_out.append(f"{name}: {error}")
        return []
    return [
        Raw(
            name=name,
            source="pseudo",
            about="what a second model answers after one epoch, when it knows little more than a shortcut",
            groups=tuple(f"answered {name}" for name in seen.classes),
            labels={split: b for split, b in found.items() if b is not None},
            assign=lambda _, __, data: cast(Tensor, pseudo_bias(make_model, train, on=data).b),
        )
    ]


def _columns(seen: Seen, more: Mapping[str, Sequence[Any]], left_out: list[str]) -> list[Raw]:
    """Candidates of a table's columns, and of those that the user gave; `seen` remembers the groups of all."""
    tables = {split: columns_beside(part) for split, part in seen.data.items() if isinstance(part, TableData)}
    known = columns_of(tables.get("train", {}))
    out = []
    for name, column in known.items():
        labels = {split: column(table.get(name, [])) for split, table in tables.items()}
        if all(len(rows) == len(seen.y[split]) for split, rows in labels.items()) and len(labels) == len(seen.data):
            out.append(_column(column, labels, _assigned(column)))
        else:
            left_out.append(f"column {name}: val has no such column")
    for name, column in columns_of({key: [str(v) for v in values] for key, values in more.items()}).items():
        labels = {"train": column(str(value) for value in more[name])}
        if "val" in seen.data:
            left_out.append(
                f"column {name}: it was given for the training set alone, and differences are measured on val"
            )
            seen.tables[name] = labels["train"]
            continue
        out.append(_column(column, labels, None))
    seen.tables.update({raw.column: raw.labels["train"] for raw in out if raw.column is not None})
    return out


def _column(column: Column, labels: dict[str, Tensor], assign: Any) -> Raw:
    how = "its values" if column.edges is None else f"its numbers, in {len(column.groups)} bins"
    return Raw(
        name=f"column {column.name}",
        source="column",
        about=f"the table's column {column.name}: {how}",
        groups=column.groups,
        labels=labels,
        assign=assign,
        column=column.name,
    )


def _assigned(column: Column) -> Callable[[dict[str, Tensor], Tensor, Labelled], Tensor]:
    def assign(_: dict[str, Tensor], __: Tensor, data: Labelled) -> Tensor:
        cells = columns_beside(data).get(column.name) if isinstance(data, TableData) else None
        if cells is None:
            raise BadInput(f"these data have no column {column.name!r}, by which they could be labelled")
        return column(cells)

    return assign
