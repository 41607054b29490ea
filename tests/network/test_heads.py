"""Gates on attention heads: where they are found, and that one multiplies what its head gives."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bise
from attention_models import HEADS, MODELS, WIDTH, made
from bise import BadInput
from bise.network.outputs import call, logits_tensor
from bise.network.placement import place
from bise.network.subnetwork import Subnetwork


def without(model: nn.Module, projection: str, mask: Tensor) -> nn.Module:
    """The oracle: a copy of the model whose projection reads zeros from closed heads, by its weight alone."""
    changed = copy.deepcopy(model)
    layer = changed.get_submodule(projection)
    each = WIDTH // len(mask)
    dim = 1 if isinstance(layer, nn.Linear) else 0  # GPT-2 has its weight the other way round
    columns = mask.repeat_interleave(each).to(layer.weight.dtype)
    layer.weight.data.mul_(columns if dim else columns[:, None])
    return changed


@pytest.mark.parametrize("name", MODELS)
def test_heads_are_found_and_a_closed_one_gives_nothing(name: str) -> None:
    model, x, projection, units = made(name)
    placement = place(model, x)
    heads = [site for site in placement.sites if site.name.startswith(projection)]
    assert [(site.name, site.units, site.spread, site.dim) for site in heads] == [
        (f"{projection}:in", units, WIDTH // units, -1)
    ]
    assert not placement.left_out
    paper = place(model, x, patterns="paper").sites
    assert [site for site in placement.sites if site not in heads] == list(paper)
    random = torch.Generator().manual_seed(2)
    for mask in (torch.rand(units, generator=random) < 0.5, torch.zeros(units) > 0, torch.arange(units) == 1):
        sub = Subnetwork(model, tuple(heads), masks={heads[0].name: mask})
        expected = logits_tensor(call(without(model, projection, mask), x))
        assert torch.allclose(logits_tensor(call(sub, x)), expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(expected, logits_tensor(call(model, x)), atol=1e-3)  # a head does tell


@pytest.mark.parametrize("name", ["ViT (torchvision)", "GPT-2", "BERT"])
@pytest.mark.parametrize("grad", [False, True])
def test_with_all_heads_open_it_is_the_model_bit_for_bit(name: str, grad: bool) -> None:
    model, x, _, _ = made(name)
    frozen = copy.deepcopy(model).requires_grad_(False)
    sub = Subnetwork(model, place(model, x).sites)
    with torch.set_grad_enabled(grad):
        assert torch.equal(logits_tensor(call(sub, x)), logits_tensor(call(frozen, x)))
    assert torch.equal(logits_tensor(call(sub.bare(), x)), logits_tensor(call(frozen, x)))


def test_scores_of_torchs_own_attention_get_the_gradient_of_their_columns() -> None:
    model, x, projection, units = made("torch's encoder")
    model = model.double()
    sub = Subnetwork(model, place(model, x, patterns=["*.out_proj:in"]).sites)
    (gate,) = sub.gates
    gate.live = torch.ones(units, dtype=torch.float64, requires_grad=True)
    call(sub, x).square().sum().backward()
    weight = model.get_submodule(projection).weight.detach()
    scale = torch.ones(units, dtype=torch.float64, requires_grad=True)
    scaled = {f"{projection}.weight": weight * scale.repeat_interleave(WIDTH // units)}
    functional_call(model, scaled, kwargs=x).square().sum().backward()
    assert scale.grad is not None
    assert torch.allclose(gate.live.grad, scale.grad, rtol=1e-10)


class Shared(nn.Module):
    """One attention, called twice: a gate on its heads would be one on two places."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.up, self.act, self.fc = nn.Linear(WIDTH, 6), nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.fc(self.act(self.up(x.mean(1))))


def test_heads_without_a_gate_are_mentioned() -> None:
    placement = place(Shared(), torch.randn(2, 5, WIDTH))
    assert [site.name for site in placement.sites] == ["act"]
    assert placement.left_out == ("the heads of attention: no module that runs once reads them together",)


def test_one_mask_entry_a_head_or_one_a_channel() -> None:
    """A mask from elsewhere fits heads where it has an entry for each, and channels where it has as many as those."""
    model, x, projection, units = made("BERT")
    name = f"{projection}:in"
    for mask in (torch.arange(units) > 0, torch.arange(WIDTH) >= WIDTH // units):
        sub = bise.subnetwork(model, {name: mask}, example=x)
        assert torch.allclose(
            logits_tensor(call(sub, x)),
            logits_tensor(call(without(model, projection, torch.arange(units) > 0), x)),
            atol=1e-5,
        )
    with pytest.raises(BadInput, match="mask has shape"):
        bise.subnetwork(model, {name: torch.ones(5)}, example=x)


def test_an_extraction_learns_masks_of_heads() -> None:
    random = torch.Generator().manual_seed(0)
    y = torch.randint(2, (160,), generator=random)
    b = torch.where(torch.rand(160, generator=random) < 0.8, y, 1 - y)
    x = torch.randn(160, 5, WIDTH, generator=random) + y[:, None, None] + 2 * b[:, None, None]
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 10, dropout=0.0, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(5 * WIDTH, 2)).eval()
    data = bise.data.Labelled(x, y=y, b=b)
    before = bise.fingerprint(model)
    config = bise.ExtractConfig(batch_size=20, steps=5, upsilon=1, tau_min=0.2, head_epochs=1, lr=1.0, margin=0.0)
    sub = bise.extract(model, data, config=config)
    assert {name: len(mask) for name, mask in sub.masks.items()} == {"0.self_attn.out_proj:in": HEADS, "0.dropout": 10}
    assert bool((sub.scores["0.self_attn.out_proj:in"] != 0).any())
    assert bise.fingerprint(model) == before
    again = bise.extract(model, data, config=config)
    assert all(torch.equal(score, again.scores[name]) for name, score in sub.scores.items())
    paper = bise.extract(model, data, config=config, sites="paper")
    assert list(paper.masks) == ["0.dropout"]
    assert list(bise.extract(model, data, config=bise.ExtractConfig.paper(batch_size=80, tau_min=0.5)).masks) == [
        "0.dropout"
    ]
