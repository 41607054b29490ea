"""The state of a run of Algorithm 1: all that changes while it runs is declared here, saved here and restored here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bise.engine.checkpoints import (
    Checkpoint,
    generator_states,
    optimizer_tensors,
    restore_generators,
    restore_optimizer,
    under_prefix,
)
from bise.extraction.bias_head import BiasHeads
from bise.extraction.budget import Budget
from bise.extraction.problem import Problem
from bise.extraction.scores import Scores, Snapshot

Best = tuple[float, int, Snapshot]
"""A mask's figure on val, its epoch, and the mask; epoch 0 is the model itself."""


@dataclass(kw_only=True)
class State:
    """Everything that the rest of the run depends on."""

    scores: Scores
    """m of every unit, with its momentum and the largest gradient that its gate has seen."""
    heads: BiasHeads
    """C_aux for each bias, with its momentum."""
    batch_norm: torch.optim.SGD | None
    """Learns β and γ of BatchNorm, where these are learned too."""
    generators: dict[str, torch.Generator]
    """The run's own and those of the loaders."""
    epoch_start: dict[str, Tensor]
    """The generators at the start of this epoch, from which its order is drawn."""
    budget: Budget | None
    """Closes units where the shrunk network is limited."""
    last_valid: Snapshot
    """The mask at the end of the epoch before, which closed no site wholly."""
    baseline_score: float | None = None
    """What the model itself, all gates open, has on val."""
    best: Best | None = None
    """The best mask on val so far."""
    also: dict[str, Best] = field(default_factory=dict)
    """The best by other selections."""
    judged: dict[str, float] = field(default_factory=dict)
    """The figures of the last validation."""
    changed: bool = True
    """Whether the network is another one than at the last validation."""
    refined: int = 0
    """Annealings before which the heads have been refined."""
    done: Tensor | None = None
    """The figures of this epoch's steps that were taken before a stop."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """A row for each epoch."""
    notes: list[str] = field(default_factory=list)
    """What the user should know."""
    seconds: dict[str, float] = field(default_factory=lambda: {"mask steps": 0.0, "head": 0.0, "evaluation": 0.0})

    @classmethod
    def at_start(cls, problem: Problem) -> State:
        """All scores 0, heads drawn at random, nothing learned."""
        c, sub = problem.config, problem.sub
        generators = {"own": torch.Generator().manual_seed(c.seed), "loader": problem.inputs.seeds}
        if problem.validation is not None:
            generators["val"] = problem.validation.inputs.seeds
        scores = Scores(sub, problem.device)
        heads = BiasHeads(
            problem.widths[0],
            problem.cells.bias_classes,
            lr=c.head_lr,
            momentum=c.head_momentum,
            weight_decay=c.head_weight_decay,
            generator=generators["own"],
            device=problem.device,
            complete=problem.cells.unknown == 0,
        )
        optimizer = None
        if c.bn == "all":
            learned = [p.requires_grad_() for name, p in sub.network.named_parameters() if name in sub.owned]
            optimizer = torch.optim.SGD(learned, lr=c.lr, momentum=c.momentum, weight_decay=c.weight_decay)
        return cls(
            scores=scores,
            heads=heads,
            batch_norm=optimizer,
            generators=generators,
            epoch_start=generator_states(generators),
            budget=problem.limited(scores),
            last_valid=scores.snapshot(),
        )

    @property
    def generator(self) -> torch.Generator:
        """The run's own."""
        return self.generators["own"]

    def begin_epoch(self) -> None:
        """The next order is drawn from the generators as they are now."""
        self.epoch_start = generator_states(self.generators)

    def tensors_of_a_step(self) -> Iterator[Tensor]:
        """Every tensor that a mask step changes."""
        yield from (self.scores.flat, self.scores.velocity, self.scores.raw)
        yield from (self.heads.parameters, self.heads.velocity)
        yield from self.scores.owned().values()
        if self.batch_norm is not None:
            for remembered in self.batch_norm.state.values():
                yield from (value for value in remembered.values() if isinstance(value, Tensor))

    @contextmanager
    def clock(self, phase: str, device: torch.device) -> Iterator[None]:
        """Add the seconds while open to a phase of the run; a GPU is waited for, once a phase."""
        start = time.perf_counter()
        yield
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # others may be at work beside it
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    def save(self, checkpoint: Checkpoint, figures: list[Tensor] | None = None) -> None:
        """The state at the end of an epoch, or, with the `figures` of its steps so far, in the middle of one."""
        tensors = self._learned() | {f"own.{name}": t for name, t in self.scores.owned().items()} | self.epoch_start
        if self.batch_norm is not None:
            tensors |= optimizer_tensors(self.batch_norm)
        if self.best is not None:
            tensors |= _flat("best", self.best[2])
        for by, (_, _, kept) in self.also.items():
            tensors |= _flat(f"best by {by}", kept)
        if figures:
            tensors |= {"done": torch.stack(figures)} | _flat("alive", self.last_valid)
        checkpoint.save(
            tensors,
            {
                "history": self.history,
                "best": None if self.best is None else list(self.best[:2]),
                "also": {by: [value, epoch] for by, (value, epoch, _) in self.also.items()},
                "itself": self.baseline_score,
                "judged": self.judged,
                "changed": self.changed,
                "refined": self.refined,
                "priced": 0 if self.budget is None else self.budget.priced,
                "seconds": self.seconds,
                "notes": self.notes,
            },
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from the checkpoint, where there is one."""
        found = checkpoint.load()
        if found is None:
            return
        tensors, state = found
        for name, tensor in self._learned().items():
            tensor.copy_(tensors[name])
        for name, tensor in self.scores.owned().items():
            tensor.detach().copy_(tensors[f"own.{name}"])
        restore_generators(self.generators, tensors)
        self.begin_epoch()
        if self.batch_norm is not None:
            restore_optimizer(self.batch_norm, tensors)
        self.history, self.notes, self.seconds = state["history"], state["notes"], state["seconds"]
        self.judged, self.changed, self.refined = state["judged"], state["changed"], state["refined"]
        if self.budget is not None:
            self.budget.priced = state["priced"]
        self.baseline_score = state["itself"]
        device = self.scores.flat.device
        if state["best"] is not None:
            value, epoch = state["best"]
            self.best = (value, epoch, _snapshot("best", tensors, device))
        for by, (value, epoch) in state.get("also", {}).items():
            self.also[by] = (value, epoch, _snapshot(f"best by {by}", tensors, device))
        self.done = tensors.get("done")
        self.last_valid = self.scores.snapshot() if self.done is None else _snapshot("alive", tensors, device)

    def _learned(self) -> dict[str, Tensor]:
        return {
            "scores": self.scores.flat,
            "velocity": self.scores.velocity,
            "raw": self.scores.raw,
            "heads": self.heads.parameters,
            "heads.velocity": self.heads.velocity,
            **({} if self.budget is None else self.budget.tensors()),
        }


def _flat(name: str, snapshot: Snapshot) -> dict[str, Tensor]:
    """A snapshot under names of its own in a checkpoint."""
    return {f"{name}.scores": snapshot[0]} | {f"{name}.own.{key}": tensor for key, tensor in snapshot[1].items()}


def _snapshot(name: str, tensors: dict[str, Tensor], device: torch.device) -> Snapshot:
    owned = {key: tensor.to(device) for key, tensor in under_prefix(tensors, f"{name}.own.").items()}
    return tensors[f"{name}.scores"].to(device), owned
