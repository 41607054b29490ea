"""The subnetwork: a twin of the model with one gate per unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.base.files import write_json, write_tensors
from bise.base.markup import tag
from bise.base.notebook import MOST_ROWS, table
from bise.network.gates import Gate, Gated, threshold
from bise.network.outputs import device_of
from bise.network.placement import Site, place
from bise.network.twin import fingerprint, named_tensors, own, twin


class Subnetwork(Gated):
    """Model + masks: computes the masked network on the model's own weights, none of them changed.

    `owned` names the tensors that are its own: none after extraction, BatchNorm's where those were updated,
    all after finetuning. `record` is what the job that made it wrote down.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: tuple[Site, ...],
        *,
        scores: Mapping[str, Tensor] | None = None,
        masks: Mapping[str, Tensor] | None = None,
        bottleneck: str | None = None,
        owned: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.network = twin(model)
        own(self.network, owned)
        self.bottleneck = bottleneck
        self.owned = owned
        self.record: dict[str, Any] = {}
        self.kept: dict[str, Tensor] = {}
        """Scores, and what it owned, of other epochs than the one it has: of the "last", or the best by a selection."""
        self.sites: tuple[Site, ...] = ()
        self.gates = nn.ModuleList()
        self._hooks: list[tuple[str, str, int]] = []
        self._waiting: Mapping[str, Tensor] | None = None
        self._gate(sites, scores, masks)

    def _gate(
        self, sites: tuple[Site, ...], scores: Mapping[str, Tensor] | None, masks: Mapping[str, Tensor] | None
    ) -> None:
        self.sites = sites
        device = device_of(self.network)
        modules = dict(self.network.named_modules())
        for site in sites:
            score = torch.zeros(site.units, dtype=torch.float32) if scores is None else scores[site.name].float()
            mask = score >= 0 if masks is None else masks[site.name].bool()
            if scores is None and masks is not None:  # a mask from elsewhere: scores that agree with it
                score = mask.float() * 2 - 1
            for what, tensor in (("mask", mask), ("scores", score)):
                if tensor.shape != (site.units,):
                    raise BadInput(f"{site.name}: {what} has shape {tuple(tensor.shape)} for {site.units} units")
            gate = Gate(site, score.to(device), mask.to(device))
            self.gates.append(gate)
            module = modules[site.module]
            if site.at_input:
                handle = module.register_forward_pre_hook(gate.on_input)
                self._hooks.append((site.module, "_forward_pre_hooks", handle.id))
            else:
                handle = module.register_forward_hook(gate.on_output)
                self._hooks.append((site.module, "_forward_hooks", handle.id))
            if site.norm:
                handle = modules[site.norm].register_forward_hook(gate.on_norm)
                self._hooks.append((site.norm, "_forward_hooks", handle.id))

    def place(self, example: Any) -> None:
        """Put the gates of masks that came without an example where `example` shows their channels to be."""
        if self._waiting is not None:
            masks, self._waiting = self._waiting, None
            self._gate(_placed(self.network, masks, example), None, masks)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._waiting is not None:
            self.place(kwargs or args[0])
        return self.network(*args, **kwargs)

    def train(self, mode: bool = True) -> Subnetwork:
        """Training mode for what it owns; layers with the caller's buffers stay in eval mode, else they'd change."""
        super().train(mode)
        for path, module in self.network.named_modules():
            names = (f"{path}.{key}" if path else key for key in module._buffers)
            if any(name not in self.owned for name in names):
                module.training = False
        return self

    def _site_gates(self) -> Iterator[tuple[Site, Gate]]:
        return zip(self.sites, (cast(Gate, gate) for gate in self.gates), strict=True)

    def _check_placed(self) -> None:
        if self._waiting is not None:
            raise BadInput(
                "these masks wait for an input to show where their channels are; give bise.subnetwork an example,"
                " or run it once"
            )

    @property
    def masks(self) -> dict[str, Tensor]:
        """{site: bool [units]}, True where the unit is kept."""
        if self._waiting is not None:
            return {name: mask.clone() for name, mask in self._waiting.items()}
        return {site.name: gate.mask.clone() for site, gate in self._site_gates()}

    @property
    def scores(self) -> dict[str, Tensor]:
        """{site: float32 [units]}, the learned m."""
        self._check_placed()
        return {site.name: gate.scores.clone() for site, gate in self._site_gates()}

    @property
    def units(self) -> tuple[int, int]:
        """(open, all)."""
        masks = self.masks.values()
        return sum(int(mask.sum()) for mask in masks), sum(len(mask) for mask in masks)

    def bare(self) -> nn.Module:
        """The network without gates: a twin of the twin, with our hooks taken off."""
        self._check_placed()
        copied = twin(self.network)
        modules = dict(copied.named_modules())
        for path, kind, handle in self._hooks:
            del getattr(modules[path], kind)[handle]
        return copied

    def with_scores(self, scores: Mapping[str, Tensor], zeta: float = 0.5) -> Subnetwork:
        """The same network and weights under other scores, cut at ζ."""
        cut = threshold(zeta)
        masks = {name: score.double() >= cut for name, score in scores.items()}
        return Subnetwork(
            self.bare(), self.sites, scores=scores, masks=masks, bottleneck=self.bottleneck, owned=self.owned
        )

    def at(self, zeta: float) -> Subnetwork:
        """The subnetwork that keeps units with σ(m) ≥ ζ (at τ = 1): 0 keeps all, 0.5 is the learned mask, 1 none."""
        cut = self.with_scores(self.scores, zeta)
        cut.record = self.record | {"zeta": zeta}
        return cut

    @property
    def last(self) -> Subnetwork:
        """The mask of the last epoch, where an earlier one was selected as best; else this one."""
        return self._kept("last") or self

    def best_by(self, selection: str) -> Subnetwork:
        """The best mask by another selection, of those that the configuration asked for beside (`also`)."""
        if self.record.get("selection", {}).get("on") == f"val, {selection}":
            return self
        if (found := self._kept(selection)) is None:
            raise BadInput(f"no best mask by {selection!r} was kept; extract with also=({selection!r},), and val")
        return found

    def _kept(self, name: str) -> Subnetwork | None:
        places = {site.name: f"{name}.scores.{site.name}" for site in self.sites}
        if not places or not all(place in self.kept for place in places.values()):
            return None
        other = self.with_scores({site: self.kept[place] for site, place in places.items()})
        everything = named_tensors(other.network)
        for tensor in self.owned:
            everything[tensor].detach().copy_(self.kept[f"{name}.own.{tensor}"])
        return other

    def keep(self, name: str, scores: Mapping[str, Tensor]) -> None:
        """Remember `scores` and what it owns now under a name, before others are restored."""
        everything = named_tensors(self.network)
        self.kept |= {f"{name}.scores.{site}": score.detach().clone() for site, score in scores.items()}
        self.kept |= {f"{name}.own.{tensor}": everything[tensor].detach().clone() for tensor in self.owned}

    def shrink(
        self,
        example: Any,
        *,
        align: int | Literal["auto"] = 1,
        streams: Literal["narrow", "union", "auto"] | None = None,
        fold_batchnorm: bool = False,
        on_barrier: Literal["keep", "raise"] = "keep",
    ) -> nn.Module:
        """A plain module without the closed units, checked against this one in float64 on a batch like `example`."""
        from bise.network.shrinking.removal import shrink

        return shrink(self, example, align=align, streams=streams, fold_batchnorm=fold_batchnorm, on_barrier=on_barrier)

    @contextmanager
    def features(self, bottleneck: str | None = None) -> Iterator[list[Tensor]]:
        """While open, each forward pass leaves its bottleneck z [N, d] in the list that is handed out."""
        name = bottleneck or self.bottleneck
        if name is None:
            raise BadInput('this subnetwork has no bottleneck; name it, for instance bottleneck="fc"')
        caught: list[Tensor] = []

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            z = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
            if z is None:
                raise BadInput(f"{name} takes no tensor, so it has no bottleneck as its input; name another module")
            caught[:] = [pooled(z)]

        # our gates on the same module's input were registered before, so z is what the layer gets: gated
        handle = dict(self.network.named_modules())[name].register_forward_pre_hook(hook, with_kwargs=True)
        try:
            yield caught
        finally:
            handle.remove()

    def extra_repr(self) -> str:
        kept, total = self.units
        return f"{kept} of {total} units open at {len(self.sites)} site{'s' * (len(self.sites) != 1)}"

    def __str__(self) -> str:
        """What it keeps, site by site; `repr` shows every module."""
        lines = [f"Subnetwork of {type(self.network).__name__}: {self.extra_repr()}"]
        masks = self.masks
        width = max((len(name) for name in masks), default=0)
        lines += [f"  {name:<{width}}  {int(mask.sum())} of {len(mask)}" for name, mask in masks.items()]
        if self.owned:
            lines.append(f"  {len(self.owned)} tensors of its own, the rest shared with the model")
        else:
            lines.append("  every weight is the model's own, unchanged")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Units kept at each site."""
        kept, total = self.units
        masks = list(self.masks.items())
        rows: list[tuple[Any, ...]] = [
            (name, int(mask.sum()), len(mask), f"{100 * float(mask.float().mean()):.0f} %")
            for name, mask in masks[:MOST_ROWS]
        ]
        if len(masks) > MOST_ROWS:
            rows.append((f"… and {len(masks) - MOST_ROWS} more sites", "", "", ""))
        title = f"Subnetwork of {type(self.network).__name__}: {kept:,} of {total:,} units open"
        return str(tag("div", table(title, ("site", "open", "units", "share"), rows)))

    def save(self, folder: str | Path) -> None:
        """Scores, masks and whatever it owns as safetensors, the rest as JSON; nothing is pickled."""
        folder = Path(folder)
        tensors = {f"scores.{name}": t for name, t in self.scores.items()}
        tensors |= {f"masks.{name}": t for name, t in self.masks.items()}
        tensors |= self.kept
        everything = named_tensors(self.network)
        tensors |= {f"own.{name}": everything[name] for name in sorted(self.owned)}
        sha256 = write_tensors(folder / "subnetwork.safetensors", tensors)
        write_json(
            folder / "subnetwork.json",
            {
                "sha256": sha256,
                "sites": [asdict(site) for site in self.sites],
                "bottleneck": self.bottleneck,
                "owned": sorted(self.owned),
                "weights": fingerprint(self.bare()),
                "record": self.record,
            },
        )


def subnetwork(
    model: nn.Module,
    masks: Mapping[str, Any],
    *,
    example: Any = None,
    bottleneck: str | None = None,
) -> Subnetwork:
    """A subnetwork from masks that come from elsewhere.

    Args:
        model: The model; it is not changed.
        masks: {site: bool [units]}, True where a unit stays. Sites that it leaves out stay whole; no masks make the
            dense network.
        example: A batch of a few inputs, which shows where each site's channels are; without it the first forward
            pass does.
        bottleneck: The layer whose input is z, by its name.

    Returns:
        The subnetwork, on the model's own weights.

    Raises:
        BadInput: A site is unknown, or a mask has another length than its site.

    Example:
        >>> half = bise.subnetwork(model, {"1": torch.arange(64) < 32}, example=example)
        >>> half.units
        (32, 64)
    """
    tensors = {name: _mask(name, mask) for name, mask in masks.items()}
    modules = dict(model.named_modules())
    for name in tensors:
        if name.removesuffix(":in") not in modules or not name.removesuffix(":in"):
            raise BadInput(f"masks: {name!r} is no module of {type(model).__name__}; see bise.sites(model, example)")
    sub = Subnetwork(model, (), bottleneck=bottleneck)
    sub._waiting = tensors or None
    if example is not None:
        sub.place(example)
    return sub


def _mask(name: str, given: Any) -> Tensor:
    """A mask as bool; scores or names would all be open, so what is neither bool nor 0 or 1 is refused."""
    remedy = "give bool, or 0 and 1, one for each unit"
    try:
        mask = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"masks: that of {name!r} is no mask ({given!s:.40}); {remedy}") from error
    odd = mask[(mask != 0) & (mask != 1)].flatten()
    if len(odd):
        raise BadInput(f"masks: that of {name!r} holds {odd[0].item():g}; {remedy}")
    return mask.bool()


def _placed(model: nn.Module, masks: Mapping[str, Tensor], example: Any) -> tuple[Site, ...]:
    """The sites that the masks name: as found by themselves where a mask fits that, else as plain inputs or outputs."""
    found = {site.name: site for site in place(model, example, gated=False).sites}
    named = [name for name, mask in masks.items() if name not in found or mask.shape != (found[name].units,)]
    plain = place(model, example, patterns=named, outputs=True).sites if named else ()
    found |= {site.name: site for site in plain if site.name not in found or masks[site.name].shape == (site.units,)}
    return tuple(found[name] for name in found if name in masks)


def pooled(z: Tensor) -> Tensor:
    """The bottleneck as [N, d]: averaged over positions where the layer sees a map or a sequence."""
    if z.dim() <= 2:
        return z
    return z.mean(1) if z.dim() == 3 else z.flatten(2).mean(2)
