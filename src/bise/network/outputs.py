"""What models return and take: logits in several wrappings, inputs as tensors or dicts of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput

SHOWN = 5
"""Samples that a sentence names."""
ENOUGH = 8
"""Outputs of fewer samples can lie between 0 and 1 by chance."""


def call(model: nn.Module, x: Any) -> Any:
    """The model on one batch: a dict of tensors is passed as keywords, as text models take it."""
    return model(**x) if isinstance(x, Mapping) else model(x)


def logits_tensor(output: Any) -> Tensor:
    """The tensor that holds the logits: the output itself, its `.logits`, or the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]
    if isinstance(getattr(output, "logits", None), Tensor):
        return output.logits
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], Tensor):
        return output[0]
    raise BadInput(
        f"the model returns {type(output).__name__}; it should return logits, a tuple that starts with them,"
        " or an object with .logits"
    )


def plain_output(output: Any) -> Any:
    """The tensors that a model returns, in dicts and tuples; what else it returns, a decoder's cache, is left out."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return {key: plain_output(value) for key, value in output.items() if _holds_tensors(value)}
    if isinstance(output, (tuple, list)):
        return tuple(plain_output(value) for value in output if _holds_tensors(value))
    return logits_tensor(output)


def _holds_tensors(value: Any) -> bool:
    return next(tensors_in(value), None) is not None


def nondeterminism(model: nn.Module, x: Any) -> str | None:
    """A sentence where a model in eval mode gives other outputs each time, by more than rounding."""
    with torch.no_grad():
        first, second = (next(tensors_in(plain_output(call(model, x)))).double() for _ in range(2))
    if not (first - second).abs().max() > 0.01 * first.abs().max():
        return None
    return (
        "the model gives other outputs each time that it runs on the same samples, though in eval mode; dropout or"
        " noise in its forward has to ask self.training"
    )


def class_logits(output: Any) -> Tensor:
    """Logits [N, C] of whatever a model returns; a single logit s becomes (0, s), whose softmax is its sigmoid."""
    logits = logits_tensor(output)
    if not logits.is_floating_point():
        raise BadInput(
            f"the model returns {str(logits.dtype).removeprefix('torch.')}, as of classes; have it return logits"
        )
    if logits.dim() == 1:
        logits = logits.unsqueeze(1)
    if logits.dim() != 2:
        raise BadInput(f"the model's logits have shape {tuple(logits.shape)}; a classifier gives [samples, classes]")
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], 1)
    return logits


def not_finite(good: Tensor, *, index: Tensor | None = None, split: str = "") -> tuple[str, list[int]] | None:
    """A sentence where logits are no numbers, of which argmax would make predictions, and the samples that have them.

    `good` [N] says whether those of the samples `index` [N] of `split`, or of all in their order, are finite.
    """
    bad = (~good.cpu()).nonzero().flatten()
    if not len(bad):
        return None
    samples = (bad if index is None else index.cpu()[bad]).tolist()
    shown, more = ", ".join(map(str, samples[:SHOWN])), len(samples) - SHOWN
    which = (
        f"sample{'s' * (len(samples) > 1)} {shown}{f' and {more:,} more' * (more > 0)}{f' of {split}' * bool(split)}"
    )
    return f"the model's logits for {which} are not finite; check its weights and the input's scale", samples


def doubt(logits: Tensor) -> str | None:
    """What speaks against these [N, C] being logits: that they look like probabilities."""
    if len(logits) < ENOUGH or not ((logits >= 0) & (logits <= 1)).all():
        return None
    if logits.shape[1] == 2 and not logits[:, 0].any():  # one output, as `class_logits` has it
        return (
            "every output of the model lies between 0 and 1, as after a sigmoid, and is taken for a logit, so that all"
            " of them say class 1; leave the sigmoid out"
        )
    if ((logits.sum(1) - 1).abs() < 1e-3).all():
        return (
            "the model's outputs add up to 1 for every sample, as after a softmax, and are taken for logits; leave the"
            " softmax out"
        )
    return None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def to_device(x: Any, device: torch.device) -> Any:
    """x, tensor or dict of tensors, on `device`."""
    if isinstance(x, Mapping):
        return {key: to_device(value, device) for key, value in x.items()}
    return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x


def device_of(model: nn.Module) -> torch.device:
    """Where the model lives: the device of its first parameter or buffer."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")
