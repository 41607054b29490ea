"""What models return, and ways to write a forward, that a shrunk network has to come through with."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import bise
from bise.data import Labelled
from bise.network.architectures.vision import torchvision
from bise.network.outputs import logits_tensor
from bise.network.shrinking.capture import capture


@dataclass
class Found:
    logits: Tensor


class Cache:
    """Holds tensors that no exporter knows of."""

    def __init__(self, h: Tensor) -> None:
        self.h = h


RETURNS = {
    "dict": lambda logits, aux: {"aux": aux, "logits": logits},
    "ordered": lambda logits, aux: OrderedDict(aux=aux, loss=None, logits=logits),
    "nested": lambda logits, aux: {"layers": (aux, [aux + 1]), "logits": logits},
    "tuple": lambda logits, aux: (logits, {"aux": aux}),
    "cache": lambda logits, aux: {"past": Cache(aux), "aux": aux, "logits": logits},
    "object": lambda logits, aux: Found(logits),
}


class Heads(nn.Module):
    def __init__(self, returns):
        super().__init__()
        self.layer, self.relu, self.aux, self.out = nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2), nn.Linear(8, 2)
        self.returns = returns

    def forward(self, x):
        h = self.relu(self.layer(x))
        return self.returns(self.out(h), self.aux(h))


@pytest.mark.parametrize("kind", RETURNS)
def test_logits_stay_the_logits_wherever_they_stand(kind, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(40, 5)
    model = Heads(RETURNS[kind]).eval()
    sub = bise.subnetwork(model, {"relu": torch.arange(8) % 2 == 0}, example=x)
    with torch.no_grad():
        logits = logits_tensor(sub(x))
        aux = model.aux(model.relu(model.layer(x)) * (torch.arange(8) % 2 == 0))
    assert not torch.allclose(logits, aux, atol=0.1)
    small = sub.shrink(x[:4])
    assert torch.allclose(logits_tensor(small(x)), logits, atol=1e-6)
    data = Labelled(TensorDataset(x), y=logits.argmax(1), b=torch.arange(40) % 2)
    assert bise.audit(small, data, probe=False).accuracy == 1
    bise.export(small, tmp_path / "model.onnx", x[:4])
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (written,) = session.run(["logits"], {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(written), logits, atol=1e-5)


def test_several_outputs_keep_their_names_and_order():
    x = torch.randn(6, 5)
    sub = bise.subnetwork(Heads(RETURNS["nested"]).eval(), {"relu": torch.arange(8) > 2}, example=x)
    whole, small = sub(x), sub.shrink(x)(x)
    assert list(small) == ["layers", "logits"]
    assert torch.allclose(small["layers"][0], whole["layers"][0], atol=1e-6)
    assert torch.allclose(small["layers"][1][0], whole["layers"][1][0], atol=1e-6)


WRITTEN = {
    "len": lambda h: F.adaptive_avg_pool2d(h, 2).reshape(len(h), -1),
    "pooled by its size": lambda h: F.avg_pool2d(h, h.size()[2:]).flatten(1).repeat(1, 4),
    "pooled by its width": lambda h: F.max_pool2d(h, h.shape[-1]).flatten(1).repeat(1, 4),
}


class Written(nn.Module):
    def __init__(self, flat):
        super().__init__()
        self.layer, self.relu, self.out = nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Linear(24, 2)
        self.flat = flat

    def forward(self, x):
        return self.out(self.flat(self.relu(self.layer(x))))


@pytest.mark.parametrize("kind", WRITTEN)
def test_sizes_that_the_forward_reads(kind):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 10, 10)
    sub = bise.subnetwork(Written(WRITTEN[kind]).eval(), {"relu": torch.arange(6) % 3 > 0}, example=x)
    small = sub.shrink(x)
    assert dict(small.named_parameters())["layer.weight"].shape[0] == 4
    other = torch.randn(7, 3, 10, 10)
    assert torch.allclose(small(other), sub(other), atol=1e-5)


def test_padding_by_size_fixes_the_size():
    torchvision()  # which timm imports
    from timm.layers import Conv2dSame

    torch.manual_seed(0)
    layers = [nn.Sequential(Conv2dSame(a, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU()) for a in (3, 6, 6)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)).eval()
    x = torch.randn(2, 3, 33, 33)
    sub = bise.subnetwork(model, {"1.2": torch.arange(6) % 2 == 0}, example=x)
    assert not capture(sub, x).dynamic_size
    assert "random, another resolution" not in sub.shrink(x).shrink_report.differences


def test_a_model_that_is_never_twice_the_same_is_told_of():
    x, y = torch.randn(60, 3, 8, 8), torch.arange(60) % 2
    model = Written(lambda h: F.dropout(F.adaptive_avg_pool2d(h, 2).flatten(1), 0.5)).eval()
    config = bise.ExtractConfig(upsilon=1, steps=2, head_epochs=1, tau_min=0.5, baseline=False)
    data = Labelled(TensorDataset(x), y=y, b=torch.arange(60) % 3 % 2)
    with pytest.warns(bise.BiseWarning, match="other outputs each time .* has to ask self.training"):
        sub = bise.extract(model, data, config=config)
    with pytest.raises(bise.BadInput, match="nothing to compare a shrunk network with: the model gives other outputs"):
        sub.shrink(x[:4])


def test_what_onnx_does_not_know_is_named(tmp_path):
    x = torch.randn(4, 3, 19, 19)
    sub = bise.subnetwork(
        Written(lambda h: F.adaptive_max_pool2d(h, (2, 2)).flatten(1)).eval(), {"relu": torch.arange(6) > 1}, example=x
    )
    small = sub.shrink(x)
    with pytest.raises(bise.BadInput, match=r"as ONNX \(No ONNX function found for aten.adaptive_max_pool2d.*a .pt2$"):
        bise.export(small, tmp_path / "model.onnx", x)
    assert not list(tmp_path.iterdir())
    bise.export(small, tmp_path / "model.pt2", x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_that_onnxruntime_does_not_run_are_told_of(dtype, tmp_path):
    x = torch.randn(4, 3, 10, 10).to(dtype)
    model = Written(lambda h: F.adaptive_avg_pool2d(h, 2).flatten(1)).eval().to(dtype)
    small = bise.subnetwork(model, {"relu": torch.arange(6) > 1}, example=x).shrink(x)
    with pytest.raises(bise.BadInput, match="turn it to float32 first"):
        bise.export(small, tmp_path / "model.onnx", x)
    assert not list(tmp_path.iterdir())


def test_gpt_2_has_a_cache_and_layers_of_its_own(tmp_path):
    torchvision()  # which transformers imports
    from transformers import GPT2Config, GPT2ForSequenceClassification

    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "num_labels": 3}
    model = GPT2ForSequenceClassification(GPT2Config(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=1)).eval()
    ids = torch.randint(2, 60, (4, 7))
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    found = bise.sites(model, x)
    assert sum(found.values()) == 2 * (4 * 16 + 2)  # hidden units and heads of two layers
    sub = bise.subnetwork(model, {name: torch.arange(units) % 2 == 0 for name, units in found.items()}, example=x)
    small = sub.shrink(x)
    report = small.shrink_report
    hidden = 64 * (16 + 1 + 16)  # a row, its bias and a column each
    heads = 2 * 8 * (3 * (16 + 1) + 16)  # of 8 features each: query, key and value, and a row behind them
    assert report.parameters_before - report.parameters_after == hidden + heads
    assert torch.allclose(small(**x), sub(**x).logits, atol=1e-5)
    bise.export(small, tmp_path / "model.onnx", x)
