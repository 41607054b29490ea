"""BatchNorm's statistics under a mask: those of the dense network no longer fit what the closed units leave."""

from __future__ import annotations

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.data.core.contract import Progress, labels, unloaded
from bise.data.core.sampling import Sampler, strata
from bise.engine.inputs import Inputs
from bise.extraction.algorithm import batch_norm_tensors
from bise.extraction.config import ExtractConfig
from bise.network.outputs import call, device_of
from bise.network.subnetwork import Subnetwork


def reestimate(
    sub: Subnetwork,
    train: object,
    *,
    steps: int = 100,
    batch_size: int = 100,
    balance: str = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> Subnetwork:
    """The same mask and weights with BatchNorm's running statistics as the mean over `steps` batches, cells evenly.

    No parameter is changed, and `sub` stays as it is.

    Args:
        sub: A subnetwork with BatchNorm layers.
        train: A data set or DataLoader that yields (x, y, b).
        steps: Batches that the statistics are of.
        batch_size: Samples of each.
        balance: How samples are drawn, as in `ExtractConfig`.
        seed: Draws them.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        A subnetwork that owns its statistics.

    Raises:
        BadInput: The network has no BatchNorm layer, or the data can't be worked with.

    Example:
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        >>> fresh = bise.reestimate(bise.subnetwork(net, {}, example=example), train, steps=5)
        >>> bool((fresh.network[1].running_mean != net[1].running_mean).all())
        True
    """
    ExtractConfig(steps=steps, batch_size=batch_size, balance=balance, seed=seed)  # the same checks
    if batch_size < 2:
        raise BadInput(f"batch_size={batch_size} gives BatchNorm no spread to measure; give 2 or more")
    train = unloaded(train)
    cells = labels(train, progress=progress)
    inputs = Inputs(train, device_of(sub))
    sub.place(inputs.example())
    bare = sub.bare()
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in bare.modules()):
        raise BadInput(f"{type(bare).__name__} has no BatchNorm whose statistics could be estimated; use it as it is")
    out = Subnetwork(
        bare,
        sub.sites,
        scores=sub.scores,
        masks=sub.masks,
        bottleneck=sub.bottleneck,
        owned=sub.owned | batch_norm_tensors(bare, "statistics"),
    )
    layers = [m for m in out.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    out.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    generator = torch.Generator().manual_seed(seed)
    order = Sampler(len(cells), strata(cells, balance)).draw(steps, batch_size, generator)
    with torch.no_grad():
        for done, (x, _) in enumerate(inputs.batches(order, batch_size), 1):
            call(out, x)
            if progress is not None:
                progress("BatchNorm's statistics", done, steps)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    out.record = {**sub.record, "reestimated": {"steps": steps, "batch_size": batch_size, "seed": seed}}
    return out.eval()
