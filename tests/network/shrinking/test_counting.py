"""What counts the shrunk network says what the shrunk network has."""

from __future__ import annotations

import torch
from torch import nn

from bise.network.placement import place
from bise.network.shrinking.counting import Counter
from bise.network.size import size
from bise.network.subnetwork import Subnetwork


class Residual(nn.Module):
    """A stem, one residual block and a linear layer, all with gates."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.first, self.second = nn.Conv2d(6, 5, 3, padding=1), nn.Conv2d(5, 6, 3, padding=1)
        self.acts = nn.ModuleList(nn.ReLU() for _ in range(3))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.acts[0](self.norm(self.stem(x)))
        x = self.acts[2](x + self.second(self.acts[1](self.first(x))))
        return self.head(x.mean((2, 3)))


def test_it_counts_what_shrinking_leaves():
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(4, 3, 6, 6)
    sub = Subnetwork(model, place(model, x).sites)
    masks = [torch.rand(site.units) < 0.6 for site in sub.sites]
    counter = Counter(sub, x, x[:1])
    found = counter(masks)
    assert counter(masks) is found
    masked = Subnetwork(model, sub.sites, masks={s.name: mask for s, mask in zip(sub.sites, masks, strict=True)})
    shrunk = size(masked.shrink(x), x[:1])
    assert (found.macs, found.parameters) == (shrunk.macs, shrunk.parameters)
    whole = counter([torch.ones(site.units, dtype=torch.bool) for site in sub.sites])
    # 36 pixels of 3 × 3 × 3 × 6, 3 × 3 × 6 × 5 twice, and 6 × 4; weights and biases of these, and 2 × 6 of the norm
    assert whole.macs == 36 * (162 + 270 + 270) + 24
    assert whole.parameters == (162 + 6) + 12 + (270 + 5) + (270 + 6) + (24 + 4)
