"""How an extraction stops and goes on: everything that the rest of the run depends on, to a checkpoint and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bise.engine.checkpoints import generator_states, named, optimizer_tensors, restore_generators, restore_optimizer
from bise.extraction.scores import State
from bise.network.twin import named_tensors

if TYPE_CHECKING:
    from bise.extraction.loop import Learner


def save(learner: Learner, figures: list[Tensor] | None = None) -> None:
    """The state at the end of an epoch, or, with the `figures` of its steps so far, in the middle of one."""
    assert learner.checkpoint is not None
    everything = named_tensors(learner.sub.network)
    tensors = _learned(learner) | {f"own.{name}": everything[name] for name in learner.sub.owned} | learner.began
    if learner.batch_norm is not None:
        tensors |= optimizer_tensors(learner.batch_norm)
    best = None
    if learner.best is not None:
        value, epoch, kept = learner.best
        best = [value, epoch]
        tensors |= _named("best", kept)
    for by, (_, _, kept) in learner.also.items():
        tensors |= _named(f"best by {by}", kept)
    if figures:
        tensors |= {"done": torch.stack(figures)} | _named("alive", learner.alive)
    state = {
        "history": learner.history,
        "best": best,
        "also": {by: [value, epoch] for by, (value, epoch, _) in learner.also.items()},
        "itself": learner.itself,
        "judged": learner.judged,
        "changed": learner.changed,
        "refined": learner.refined,
        "seconds": learner.seconds,
        "notes": learner.notes,
    }
    learner.checkpoint.save(tensors, state)


def resume(learner: Learner) -> None:
    """Go on from the checkpoint, where there is one; the log is told what had happened."""
    found = None if learner.checkpoint is None else learner.checkpoint.load()
    if found is None:
        return
    tensors, state = found
    for name, tensor in _learned(learner).items():
        tensor.copy_(tensors[name])
    everything = named_tensors(learner.sub.network)
    for name in learner.sub.owned:
        everything[name].detach().copy_(tensors[f"own.{name}"])
    restore_generators(learner.generators, tensors)
    learner.began = generator_states(learner.generators)
    if learner.batch_norm is not None:
        restore_optimizer(learner.batch_norm, tensors)
    learner.history, learner.changed, learner.seconds = state["history"], state["changed"], state["seconds"]
    learner.judged, learner.notes, learner.refined = state["judged"], state["notes"], state["refined"]
    learner.itself = state["itself"]
    if state["best"] is not None:
        value, epoch = state["best"]
        learner.best = (value, epoch, _state("best", tensors, learner.device))
    for by, (value, epoch) in state["also"].items():
        learner.also[by] = (value, epoch, _state(f"best by {by}", tensors, learner.device))
    learner.done = tensors.get("done")
    learner.alive = learner.scores.state() if learner.done is None else _state("alive", tensors, learner.device)
    if learner.log is not None:
        for row in learner.history:
            learner.log(row)


def _learned(learner: Learner) -> dict[str, Tensor]:
    return {
        "scores": learner.scores.flat,
        "velocity": learner.scores.velocity,
        "raw": learner.scores.raw,
        "heads": learner.heads.parameters,
        "heads.velocity": learner.heads.velocity,
    }


def _named(name: str, state: State) -> dict[str, Tensor]:
    return {f"{name}.scores": state[0]} | {f"{name}.own.{key}": tensor for key, tensor in state[1].items()}


def _state(name: str, tensors: dict[str, Tensor], device: torch.device) -> State:
    owned = {key: tensor.to(device) for key, tensor in named(tensors, f"{name}.own.").items()}
    return tensors[f"{name}.scores"].to(device), owned
