"""Where gates go: the counts of the paper's supplement, patterns, functions for nonlinearities, the bottleneck."""

from __future__ import annotations

import math
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bise import BadInput, sites, subnetwork
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.architectures.vision import torchvision
from bise.network.placement import one_bottleneck, place
from bise.network.subnetwork import Subnetwork
from conftest import TwoHeads
from real_models import images, make, tokens


@pytest.mark.parametrize(
    ("name", "units", "count", "bottleneck"),
    [
        ("SimpleConvNet", 240, 4, "fc"),
        ("MLP", 300, 3, "fc"),
        ("torchvision resnet18", 3840, 16, "fc"),
        ("timm resnet18", 3840, 16, "fc"),
        ("small BERT", 2 * (64 + 32) + 32, 5, "classifier"),
    ],
)
def test_counts_of_the_supplement(name, units, count, bottleneck):
    model, example = make(name)
    placement = place(model, example, patterns="paper")
    assert (placement.units, len(placement.sites)) == (units, count)
    assert placement.bottlenecks == (bottleneck,)


@pytest.mark.parametrize(("name", "stem"), [("torchvision resnet18", "relu"), ("timm resnet18", "act1")])
def test_the_stem_of_a_resnet_beside_the_default_places(name, stem):
    model, example = make(name)
    found = sites(model, example, patterns="stem")
    assert next(iter(found)) == stem
    assert {name: units for name, units in found.items() if name != stem} == sites(model, example)
    assert sum(found.values()) == 3840 + 64


@pytest.mark.long
@pytest.mark.parametrize(("name", "stem"), [("torchvision resnet18", "relu"), ("timm resnet18", "act1")])
def test_a_gated_stem_shrinks(name, stem):
    model, example = make(name)
    mask = torch.arange(64) % 2 == 0
    small = subnetwork(model, {stem: mask}, example=example).shrink(example)
    assert small.get_parameter("conv1.weight").shape[0] == 32


def test_the_word_stem_names_a_module_that_is_called_so():
    layers = OrderedDict(stem=nn.Linear(4, 6), act=nn.ReLU(), last=nn.Linear(6, 2))
    assert sites(nn.Sequential(layers), torch.randn(2, 4), patterns="stem") == {"stem": 6}


def test_bert_base_has_46848_units():
    torchvision()
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig())
    found = sites(model, tokens(), patterns="paper")
    assert sum(found.values()) == 46_848
    everything = sites(model, tokens())
    heads = {f"bert.encoder.layer.{n}.attention.output.dense:in": 12 for n in range(12)}
    assert everything == found | heads
    assert list(everything)[:2] == [*list(heads)[:1], *list(found)[:1]]
    assert found["bert.encoder.layer.11.intermediate.intermediate_act_fn"] == 3072
    assert found["bert.encoder.layer.11.output.dense"] == 768
    assert found["bert.pooler.activation"] == 768
    assert not any("attention" in name for name in found)


def test_layers_that_return_a_scale_beside_the_tensor_are_passed_over():
    torchvision()
    from transformers import IBertConfig, IBertForSequenceClassification

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = IBertForSequenceClassification(IBertConfig(vocab_size=100, **shape)).eval()
    assert sum(sites(model, tokens(), patterns="paper").values()) == 2 * 64 + 32
    masks = {"classifier.dense": torch.arange(32) > 4}
    report = subnetwork(model, masks, example=tokens()).shrink(tokens()).shrink_report
    assert report.parameters_after < report.parameters_before


def test_parameter_counts_of_the_supplement():
    assert sum(p.numel() for p in SimpleConvNet().parameters()) == 531_210
    assert sum(p.numel() for p in MLP().parameters()) == 256_510


def test_a_resnet_block_has_two_sites_although_its_relu_is_one_module():
    found = sites(*make("torchvision resnet18"))
    assert list(found)[:4] == ["layer1.0.conv2:in", "layer1.0", "layer1.1.conv2:in", "layer1.1"]
    assert "relu" not in found


class Functional(nn.Module):
    """The tutorial's convnet: one pool module for all, nonlinearities as functions, a flattening in between."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = torch.flatten(self.pool(F.relu(self.conv2(x))), 1)
        return F.log_softmax(self.fc3(F.relu(self.fc2(F.relu(self.fc1(x))))), 1)


def test_nonlinearities_as_functions_are_gated_at_their_consumer():
    found = place(Functional(), images(32)).sites
    assert [(s.name, s.units, s.spread) for s in found] == [
        ("conv2:in", 6, 1),
        ("fc1:in", 16, 25),
        ("fc2:in", 120, 1),
        ("fc3:in", 84, 1),
    ]


def test_channels_last_blocks_are_gated_along_their_last_dimension():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.up, self.act = nn.Conv2d(3, 8, 3), nn.Linear(8, 24), nn.GELU()
            self.down, self.fc = nn.Linear(24, 8), nn.Linear(8, 2)

        def forward(self, x):
            x = self.conv(x).permute(0, 2, 3, 1)
            return self.fc(self.down(self.act(self.up(x))).permute(0, 3, 1, 2).mean((2, 3)))

    (site,) = place(Block(), images(8)).sites
    assert (site.name, site.units, site.dim) == ("act", 24, -1)


def test_scales_and_final_nonlinearities_are_no_units():
    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.act, self.gate = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8)
            self.fc, self.out = nn.Linear(8, 2), nn.Sigmoid()

        def forward(self, x):
            h = self.act(self.body(x))
            return self.out(self.fc(h * torch.sigmoid(self.gate(h))))

    assert sites(Squeeze(), torch.randn(2, 6)) == {"act": 8}


def test_patterns_name_sites_and_must_match():
    model, example = make("SimpleConvNet")
    assert sites(model, example, patterns="blocks.[01].2") == {"blocks.0.2": 16, "blocks.1.2": 32}
    assert sites(model, example, patterns=["fc:in"]) == {"fc:in": 128}
    with pytest.raises(BadInput, match="the pattern 'nothing\\*' matches no module"):
        sites(model, example, patterns=["blocks.0.2", "nothing*"])


def test_what_gets_no_gate_is_mentioned():
    class Twice(nn.Module):
        """One activation for two layers, whose outputs pass through a function that keeps no channels."""

        def __init__(self):
            super().__init__()
            self.first, self.second, self.act, self.last = nn.Linear(8, 6), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)

        def forward(self, x):
            return self.last(self.act(self.first(x)).flip(1) + self.act(self.second(x)).flip(1))

    found = sites(nn.Sequential(Twice(), nn.ReLU(), nn.Linear(2, 2)), torch.randn(4, 8))
    assert found == {"1": 2}
    assert found.left_out == ("ReLU in 0.act: no module to hook",) * 2
    assert str(found) == "1  2\nno gate for ReLU in 0.act: no module to hook (2 times)"
    assert sites(*make("SimpleConvNet")).left_out == ()


def test_a_model_without_a_site_says_so():
    with pytest.raises(BadInput, match="Sequential has no site"):
        sites(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), torch.randn(2, 4))


class Experts(nn.Module):
    """Gated layers of a mixture, all in one function over stacked matrices."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(2, 4, 12)), nn.Parameter(torch.randn(2, 6, 3))

    def forward(self, x):
        gate, up = (x @ self.up).chunk(2, -1)
        return ((F.silu(gate) * up) @ self.down).sum(0)


def test_a_model_whose_layers_are_functions_is_told_of_hooks():
    with pytest.raises(BadInput, match="Experts has no site: .* feed layers written as functions, where no hook"):
        sites(Experts(), torch.randn(2, 4))


def test_an_ambiguous_bottleneck_names_the_candidates():
    model = TwoHeads()
    placement = place(model, torch.randn(2, 4))
    with pytest.raises(
        BadInput, match='ambiguous: left, right all lead to the logits; choose one, .*bottleneck="left"'
    ):
        one_bottleneck(placement, model, None)
    assert one_bottleneck(placement, model, "right") == "right"
    with pytest.raises(BadInput, match="bottleneck='middle' is no module"):
        one_bottleneck(placement, model, "middle")


def test_a_tuple_a_single_logit_and_an_object_are_understood():
    class Wrapped(nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.inner, self.wrap = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), wrap

        def forward(self, x):
            return self.wrap(self.inner(x))

    class Output:
        def __init__(self, logits):
            self.logits = logits

    for wrap in (lambda t: t, lambda t: (t, None), Output, lambda t: {"logits": t}, lambda t: t.squeeze(1)):
        placement = place(Wrapped(wrap), torch.randn(2, 4))
        assert placement.bottlenecks == ("inner.2",)
        assert placement.units == 6
    with pytest.raises(BadInput, match="the model returns str"):
        place(Wrapped(str), torch.randn(2, 4))


class Written(nn.Module):
    """Its last layer is a function, and not a module."""

    def __init__(self, cosine=False):
        super().__init__()
        self.first, self.second, self.cosine = nn.Linear(8, 16), nn.Linear(16, 12), cosine
        self.weight = nn.Parameter(torch.randn(2, 12))

    def forward(self, x):
        z = self.second(self.first(x).relu()).relu()
        if self.cosine:
            return F.normalize(z) @ F.normalize(self.weight).T
        return F.linear(z, self.weight)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 6))

    def forward(self, z):
        return F.normalize(z) @ F.normalize(self.weight).T


@pytest.mark.parametrize("cosine", [False, True])
def test_a_last_layer_written_as_a_function_is_not_passed_over(cosine):
    model = Written(cosine)
    with pytest.raises(BadInput, match="Written gets its logits from no linear layer that is a module; name"):
        one_bottleneck(place(model, torch.randn(4, 8)), model, None)


def test_a_head_of_ones_own_is_the_bottleneck():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), Cosine())
    assert one_bottleneck(place(model, torch.randn(4, 8)), model, None) == "2"


def test_a_convolution_for_a_head_hides_linear_layers_before_it():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.scale, self.last = nn.Conv2d(3, 6, 3), nn.Linear(6, 6), nn.Conv2d(6, 2, 1)
            self.act = nn.ReLU()

        def forward(self, x):
            h = self.act(self.first(x))
            return self.last(h * self.scale(h.mean((2, 3)))[:, :, None, None]).mean((2, 3))

    model = Scaled()
    with pytest.raises(BadInput, match="gets its logits from no linear layer"):
        one_bottleneck(place(model, torch.randn(2, 3, 5, 5)), model, None)


class OverChannels(nn.Module):
    """A mean over channels, after which there are none to gate."""

    def __init__(self, keep):
        super().__init__()
        self.first, self.second, self.act = nn.Conv1d(1, 4, 1), nn.Conv1d(1, 4, 1), nn.ReLU()
        self.last, self.keep = nn.Linear(4 if keep else 8, 2), keep

    def forward(self, x):
        h = F.relu(self.first(x[:, None])).mean(1, keepdim=self.keep)
        return self.last(self.act(self.second(h)).mean(2) if self.keep else self.act(h))


@pytest.mark.parametrize(("keep", "found"), [(False, {"act": 8}), (True, {"act": 4})])
def test_a_mean_over_channels_leaves_no_units(keep, found):
    placement = place(OverChannels(keep), torch.randn(4, 8))
    assert {site.name: site.units for site in placement.sites} == found
    assert placement.left_out == ("relu in the model itself: no module to hook",)


def test_the_logits_are_no_site():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    x = torch.randn(4, 8)
    with pytest.raises(BadInput, match="sites: '2' gives the logits, whose units are the classes; name earlier"):
        sites(model, x, patterns=["2"])
    assert sites(model, x, patterns=["*"]) == {"0": 6, "1": 6}


class Gated(nn.Module):
    """Hidden units that are products: of an activation and a linear layer, of two activations, or a swish."""

    def __init__(self, kind):
        super().__init__()
        self.first, self.other, self.last, self.kind = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 3), kind

    def forward(self, x):
        a = self.first(x)
        b = {"swiglu": self.other(x), "both": self.other(x).tanh(), "swish": a}[self.kind]
        return self.last((F.silu(a) if self.kind == "swiglu" else torch.sigmoid(a)) * b)


@pytest.mark.parametrize("kind", ["swiglu", "both", "swish"])
def test_products_of_gated_layers_are_units(kind):
    model, x = Gated(kind).eval(), torch.randn(4, 8)
    placement = place(model, x)
    assert {site.name: site.units for site in placement.sites} == {"last:in": 12}
    sub = Subnetwork(model, placement.sites, bottleneck="last")
    (gate,) = sub.gates
    gate.mask.copy_(torch.arange(12) % 3 > 0)
    hidden = torch.sigmoid(model.first(x)) * model.first(x)
    if kind != "swish":
        other = model.other(x)
        hidden = F.silu(model.first(x)) * other if kind == "swiglu" else torch.sigmoid(model.first(x)) * other.tanh()
    expected = hidden[:, gate.mask] @ model.last.weight[:, gate.mask].T + model.last.bias
    assert torch.allclose(sub(x), expected, atol=1e-6)
    assert sub.shrink(x)(x).shape == (4, 3)  # which compares in float64 itself


class WrittenGelu(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.other, self.last, self.kind = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 3), kind

    def hidden(self, x):
        a = self.first(x)
        if self.kind == "tanh":
            return 0.5 * a * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        gelu = a * 0.5 * (1.0 + torch.erf(a / math.sqrt(2.0)))
        return gelu * self.other(x) if self.kind == "geglu" else gelu

    def forward(self, x):
        return self.last(self.hidden(x))


@pytest.mark.parametrize("kind", ["erf", "tanh", "geglu"])
def test_a_gelu_written_out_is_gated_behind_its_product(kind):
    model, x = WrittenGelu(kind).eval(), torch.randn(4, 8)
    placement = place(model, x)
    assert {site.name: site.units for site in placement.sites} == {"last:in": 12}
    assert not placement.left_out
    sub = Subnetwork(model, placement.sites, bottleneck="last")
    (gate,) = sub.gates
    gate.mask.copy_(torch.arange(12) % 3 > 0)
    assert torch.allclose(sub(x), model.last(model.hidden(x) * gate.mask), atol=1e-6)
    report = sub.shrink(x).shrink_report
    assert report.parameters_after < report.parameters_before
    assert not report.barriers


@pytest.mark.parametrize("tanh_first", [False, True])
def test_a_product_of_two_nonlinearities_is_gated_once(tanh_first):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.act = nn.Linear(8, 12), nn.ReLU()
            self.scale, self.last = nn.Linear(8, 12), nn.Linear(12, 3)

        def forward(self, x):
            if tanh_first:
                return self.last((1 + torch.tanh(self.scale(x))) * self.act(self.first(x)))
            return self.last(self.act(self.first(x)) * (1 + torch.tanh(self.scale(x))))

    assert [(site.name, site.units) for site in place(Scaled(), torch.randn(4, 8)).sites] == [("last:in", 12)]
