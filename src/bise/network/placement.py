"""Where gates go: the sites of a model and its bottleneck, read off one forward pass."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.network.trace import Call, Trace
from bise.network.tracing import record

PAPER = "paper"
"""What `sites` may say in place of patterns: the places of the paper's supplement, whatever else could be gated."""
STEM = "stem"
"""What `sites` may say in place of patterns: the default places and a ResNet's stem, which the paper leaves out."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A tensor whose channels are units: a module's output, or its first input where the name ends in ":in"."""

    name: str
    units: int
    dim: int
    """The channel dimension; negative where it counts from the end."""
    spread: int = 1
    """How many consecutive channels of the hooked tensor a unit owns: more than one behind a flattening, and where a
    unit is an attention head."""
    norm: str = ""
    """A LayerNorm behind the residual sum that is to take mean and variance over this site's open units alone."""

    @property
    def module(self) -> str:
        return self.name.removesuffix(":in")

    @property
    def at_input(self) -> bool:
        return self.name.endswith(":in")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The sites of a model in the order of the forward pass, and the module whose input is the bottleneck."""

    sites: tuple[Site, ...]
    bottlenecks: tuple[str, ...]
    """Candidates for the last linear layer on the way to the logits; one, unless the model is ambiguous."""
    moved: frozenset[str]
    """Buffers that the forward pass updates, so that a twin needs its own."""
    left_out: tuple[str, ...]
    """Nonlinearities that got no gate, each with the reason."""

    @property
    def units(self) -> int:
        return sum(site.units for site in self.sites)


class Sites(dict[str, int]):
    """{site: number of units}, and what could have units but gets no gate, each with the reason."""

    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max((len(name) for name in self), default=0)
        lines = [f"{name:<{width}}  {units}" for name, units in self.items()]
        return "\n".join(lines + [f"no gate for {what}" for what in _together(self.left_out)])


def sites(model: nn.Module, example: Any, *, patterns: Sequence[str] | str | None = None) -> Sites:
    """The sites, the places in a network that get gates, with their numbers of units.

    Args:
        model: Any module.
        example: A batch of a few inputs, [n, …] or a dict of such tensors.
        patterns: Names or patterns that choose sites, such as "layer*" or "fc:in", or "paper", or "stem" for the places
            that are found and a ResNet's stem; None finds them.

    Returns:
        {site: units}, in the order of the forward pass. `.left_out` says what gets no gate, and why; `print` shows it
        too.

    Raises:
        BadInput: A pattern fits nothing, or the model can't run on the example.

    Example:
        >>> bise.sites(model, example)
        {'1': 64, '3': 32}
    """
    placement = place(model, example, patterns=patterns)
    found = Sites({site.name: site.units for site in placement.sites})
    found.left_out = placement.left_out
    return found


def _together(reasons: Sequence[str]) -> list[str]:
    """What is said several times, once."""
    counts = {what: list(reasons).count(what) for what in reasons}
    return [what + (f" ({count} times)" if count > 1 else "") for what, count in counts.items()]


def place(
    model: nn.Module,
    example: Any,
    *,
    patterns: Sequence[str] | str | None = None,
    gated: bool = True,
    outputs: bool = False,
    gates_at: str = "all",
    norms: str = "plain",
) -> Placement:
    """Run `model` once on `example` and find its sites and its bottleneck; where it is `gated`, it needs a site.

    Patterns may name what gives the `outputs` only where these needn't be logits, whose units are the classes.
    Without patterns, `gates_at` says where gates go, and `norms` whether a LayerNorm knows the mask before it, as in
    ExtractConfig.
    """
    patterns, gates_at, stem = _asked(model, patterns, gates_at)
    trace = record(model, example)
    left_out: list[str] = []
    if patterns is None and gates_at == "layers":
        found = _layers(model, trace)
    elif patterns is None:
        found, left_out = _found(trace)
        found = _family(model, trace, found, stem)
        if gates_at == "all":
            heads, unhooked = _heads(trace)
            found, left_out = _ordered(trace, found + heads), left_out + unhooked
    else:
        found = _named(trace, list(patterns), outputs)
    if gated and not found:
        fed = patterns is None and any(activation.feeds_layer for activation in trace.activations)
        hidden = (
            "its nonlinearities only scale other tensors, or feed layers written as functions, where no hook reaches"
        )
        raise BadInput(
            f"{type(model).__name__} has no site: "
            + (hidden if fed else "no nonlinearity's output feeds a later layer")
            + (f" ({'; '.join(left_out)})" if left_out else "")
            + '; name modules yourself, for instance sites=["layer*"]'
        )
    if norms == "masked":
        found = _with_norms(model, found)
    return Placement(
        sites=tuple(found),
        bottlenecks=tuple(trace.last_linears()),
        moved=trace.moved,
        left_out=tuple(left_out),
    )


def _asked(
    model: nn.Module, patterns: Sequence[str] | str | None, gates_at: str
) -> tuple[Sequence[str] | None, str, bool]:
    """(patterns, where gates go without any, whether a ResNet's stem has one): what the words "paper" and "stem" say.

    In a model that calls a module of its own "stem", that word is the module's name.
    """
    named = [patterns] if isinstance(patterns, str) else patterns
    if named is not None and list(named) == [PAPER]:
        return None, "activations", False
    if named is not None and list(named) == [STEM] and STEM not in dict(model.named_modules()):
        return None, gates_at, True
    return named, gates_at, False


def one_bottleneck(placement: Placement, model: nn.Module, named: str | None) -> str:
    """The module whose input is z: the one that was named, or the only candidate."""
    if named is not None:
        if named not in dict(model.named_modules()) or named == "":
            raise BadInput(
                f"bottleneck={named!r} is no module of {type(model).__name__}; "
                f"candidates are {', '.join(placement.bottlenecks) or 'none, name the layer that gives the logits'}"
            )
        return named
    if len(placement.bottlenecks) == 1:
        return placement.bottlenecks[0]
    if not placement.bottlenecks:
        raise BadInput(
            f"{type(model).__name__} gets its logits from no linear layer that is a module; "
            'name the module whose input is the bottleneck, for instance bottleneck="classifier"'
        )
    raise BadInput(
        f"the bottleneck of {type(model).__name__} is ambiguous: {', '.join(placement.bottlenecks)} all lead to the"
        f' logits; choose one, for instance bottleneck="{placement.bottlenecks[0]}"'
    )


def _found(trace: Trace) -> tuple[list[Site], list[str]]:
    """A site for every nonlinearity whose output feeds a later layer, and why others got none."""
    out: list[Site] = []
    left_out: list[str] = []
    products = set()
    for applied in trace.activations:
        if not applied.feeds_layer:
            continue
        activation = trace.written_out(applied)
        unit = trace.gated(activation) if trace.scales(activation) else activation
        if unit is None or unit.key in products:
            continue
        if unit is not applied:
            products.add(unit.key)
        hook = trace.hook_past(unit)
        if hook is None:
            left_out.append(f"{activation.what} in {activation.module or 'the model itself'}: no module to hook")
            continue
        name, dim, spread = hook
        out.append(Site(name=name, units=activation.units, dim=dim, spread=spread))
    return out, left_out


def _family(model: nn.Module, trace: Trace, found: list[Site], stem: bool = False) -> list[Site]:
    """What the paper places by hand: no gate on a ResNet's stem unless asked, one on BERT's feed-forward outputs."""
    for path, module in model.named_modules():
        kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(module).__mro__}
        prefix = f"{path}." if path else ""
        if kinds & {("torchvision", "ResNet"), ("timm", "ResNet")} and not stem:
            blocks = re.compile(re.escape(prefix) + r"layer\d")
            found = [s for s in found if not s.name.startswith(prefix) or blocks.match(s.name)]
        if any(root == "transformers" for root, _ in kinds):
            outputs = re.compile(re.escape(prefix) + r"(.*\.)?((?<!attention\.)output\.dense|ffn\.lin2|mlp\.fc2)$")
            known = {site.name for site in found}
            # quantised layers return a scale beside the tensor
            calls = [c for c in trace.calls if c.path not in known and c.output_dim is not None]
            found += [_site_of(c, ":out") for c in calls if outputs.match(c.path)]
    return _ordered(trace, found)


def _ordered(trace: Trace, found: list[Site]) -> list[Site]:
    """Sites in the order of the forward pass."""
    last = {call.path: call for call in trace.calls}

    def time(site: Site) -> float:
        call = last.get(site.module)
        if call is None:  # the projection of torch's own attention, which is never called
            return last[site.module.rpartition(".")[0]].exit
        return call.entry if site.at_input else call.exit

    return sorted(found, key=time)


def _heads(trace: Trace) -> tuple[list[Site], list[str]]:
    """A site for the heads of every attention, on what its output projection reads, and why others got none."""
    known, attentions = {call.path for call in trace.single()}, trace.heads.attentions
    out = [Site(name=f"{path}:in", units=heads.units, dim=-1, spread=heads.each) for path, heads in trace.projections()]
    seen = {heads.origin for _, heads in trace.projections()}
    left_out = [f"the heads of {path or 'the model'}" for n, path in enumerate(attentions) if n not in seen]
    for path, (heads, each) in trace.heads.in_modules.items():
        if path in known:
            out.append(Site(name=f"{path}.out_proj:in", units=heads, dim=-1, spread=each))
        else:
            left_out.append(f"the heads of {path or 'the model'}")
    return out, [f"{what}: no module that runs once reads them together" for what in left_out]


def _layers(model: nn.Module, trace: Trace) -> list[Site]:
    """The outputs of linear layers outside of attention, but for those that lead to the logits.

    Departure from the paper's text, whose gates are behind activations: the authors' code has them here in BERT.
    """
    kinds = dict(model.named_modules())
    linear = [call for call in trace.calls if isinstance(kinds.get(call.path), nn.Linear)]
    calls = {c.path: c for c in linear if "attention" not in c.path and c.path not in trace.linears}
    if not calls:
        raise BadInput(
            f"{type(model).__name__} has no linear layer outside of attention before its last one, for"
            ' gates_at="layers"; use gates_at="activations", or name sites'
        )
    return [_site_of(call, ":out") for call in calls.values()]


def _with_norms(model: nn.Module, found: list[Site]) -> list[Site]:
    """The sites on the outputs of feed-forward layers with the LayerNorm beside them, as BERT calls both."""
    modules = dict(model.named_modules())
    out = []
    for site in found:
        norm = f"{site.name.removesuffix('.dense')}.LayerNorm"
        fits = site.name.endswith(".output.dense") and isinstance(modules.get(norm), nn.LayerNorm)
        out.append(replace(site, norm=norm) if fits and modules[norm].normalized_shape == (site.units,) else site)
    if out == found:
        raise BadInput(
            f"{type(model).__name__} has no gate on an output.dense with a LayerNorm beside it, as in BERT, for"
            ' norms="masked"; use norms="plain"'
        )
    return out


def _named(trace: Trace, patterns: list[str], outputs: bool) -> list[Site]:
    """The sites that match the patterns: shell wildcards over module names, ":in" for a module's input."""
    out: dict[str, Site] = {}
    called = {call.path for call in trace.calls}
    uncalled = [site for site in _heads(trace)[0] if site.module not in called]  # in torch's own attention
    for pattern in patterns:
        plain = pattern.removesuffix(":in")
        side = ":in" if pattern.endswith(":in") else ":out"
        heads = {site.name: site for site in uncalled if fnmatch.fnmatchcase(site.name, pattern)}
        out |= heads
        matched = [call for call in trace.calls if call.path and fnmatch.fnmatchcase(call.path, plain)]
        if not matched and not heads:
            raise BadInput(
                f"sites: the pattern {pattern!r} matches no module that the model runs; bise.sites(model, example)"
                " lists what is found by itself, dict(model.named_modules()) all names"
            )
        for call in matched:
            if side == ":out" and call.output_key == trace.logits and not outputs:
                if call.path == plain:
                    raise BadInput(
                        f"sites: {plain!r} gives the logits, whose units are the classes; name earlier modules"
                    )
                continue  # a wildcard's
            site = _site_of(call, side)
            if site.name in out and out[site.name] != site:
                raise BadInput(
                    f"{call.path} runs several times with different widths; gate what follows it, by its own name"
                )
            out[site.name] = site
    return list(out.values())


def _site_of(call: Call, side: str) -> Site:
    shape, dim = (call.input_shape, call.input_dim) if side == ":in" else (call.output_shape, call.output_dim)
    if shape is None or dim is None:
        raise BadInput(f"{call.path}: its {'input' if side == ':in' else 'output'} is no tensor with channels to gate")
    return Site(name=call.path + (":in" if side == ":in" else ""), units=shape[dim], dim=dim)
