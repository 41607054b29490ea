"""The protocol and preset that follow the authors' code, against values by hand or by brute force."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
from bise import BadInput, ExtractConfig
from bise.cli.app import app
from bise.data import labels, load
from bise.data.core.contract import Labelled
from bise.data.core.sampling import sample_weights
from bise.data.sets.biased_mnist import drawn
from bise.jobs.recipes import PAPER, architecture, preset_changes, recipe, splits, start
from bise.network.architectures.pretrained import bert
from bise.network.architectures.reference import as_if_trained
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.masked_norm import masked_layer_norm
from bise.network.placement import place
from bise.network.subnetwork import Subnetwork

# weights


def cells_of(y, b, **more):
    return labels(Labelled(TensorDataset(torch.zeros(len(y), 1)), y=y, b=b, **more))


def test_weights_take_the_rho_that_they_are_given():
    y, b = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    cells = cells_of(y, b, classes=3, bias_classes=3, aligned=[0, 1, 2])
    # 1 / (3 · 0.8) and 2 / (3 · 0.2), though 9 of 10 are aligned
    given = sample_weights(cells, "paper", rho=0.8)
    assert given[0] == pytest.approx(1 / 2.4)
    assert given[2] == pytest.approx(2 / 0.6)
    assert sample_weights(cells, "paper")[0] == pytest.approx(1 / 2.7)
    with pytest.raises(BadInput, match="2 entries for 1 biases"):
        sample_weights(cells, "paper", rho=(0.9, 0.9))


def test_two_biases_multiply_unnormalised():
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)]
    cells = cells_of([0] * 4, pairs, classes=2, bias_classes=(2, 2), aligned=[(0, 0), (1, 1)], groups="alignment")
    found = sample_weights(cells, "paper", rho=(0.99, 0.95)).tolist()
    assert found == pytest.approx([1.06326, 20.20202, 105.26316, 2000.0], rel=1e-5)


def test_each_cell_counts_as_if_it_had_a_sample():
    # counts: (0, 0) 4, (0, 1) none, (1, 0) 1, (1, 1) 3; with one for the empty cell the sum is 9
    cells = cells_of([0] * 4 + [1] * 4, [0] * 4 + [0, 1, 1, 1], classes=2, bias_classes=2, aligned=[0, 1])
    found = sample_weights(cells, "cells")
    assert found.tolist() == pytest.approx([9 / 16] * 4 + [9 / 4] + [9 / 12] * 3)


# the search


def toy(biases=1, n=64):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 2
    b = torch.where(torch.rand(n, biases, generator=generator) < 0.7, y[:, None], 1 - y[:, None])
    x = torch.randn(n, 6, generator=generator) + torch.cat([y[:, None], b], 1).float().repeat(1, 6)[:, :6]
    aligned = [0, 1] if biases == 1 else [(0,) * biases, (1,) * biases]
    return Labelled(TensorDataset(x), y=y, b=b[:, 0] if biases == 1 else b, classes=2, aligned=aligned)


def toy_model():
    torch.manual_seed(0)
    return MLP(6, 2, hidden=(8, 5))


def one_step(**changes):
    config = {"batch_size": 64, "steps": 1, "upsilon": 1, "tau_min": 0.9, "head_epochs": 0, "lr": 1.0, **changes}
    return bise.extract(toy_model(), toy(biases=2), config=ExtractConfig.authors(**config))


def test_the_mutual_information_of_several_biases_is_summed():
    summed, mean = one_step(gamma=100.0), one_step(gamma=100.0, mi_over_biases="mean")
    of = [sub.record["history"][0]["mutual_information"] for sub in (summed, mean)]
    assert of[0] == pytest.approx(2 * of[1], rel=1e-5)
    assert of[1] > 0
    # so that the sum with γ is the mean with 2γ, for the scores too, and they are others than the mean's with γ
    doubled = one_step(mi_over_biases="mean", gamma=200.0)
    scores = [torch.cat(list(sub.scores.values())) for sub in (summed, doubled, mean)]
    assert torch.allclose(scores[0], scores[1], atol=1e-6)
    assert not torch.allclose(scores[0], scores[2], atol=1e-4)


@pytest.mark.filterwarnings("ignore:train and val are the very same data")
@pytest.mark.filterwarnings("ignore:every mask that was judged gives each sample of val one class")
@pytest.mark.parametrize(("ties", "epoch"), [("later", 3), ("earlier", 1)])
def test_ties_on_val(ties, epoch):
    # a rate at which no gate moves: every epoch is as good
    config = ExtractConfig.authors(batch_size=32, upsilon=3, tau_min=0.9, head_epochs=1, lr=1e-30, ties=ties)
    sub = bise.extract(toy_model(), toy(), val=toy(), config=config)
    assert sub.record["selection"]["epoch"] == epoch


@pytest.mark.filterwarnings("ignore:every mask that was judged gives each sample of val one class")
def test_best_masks_by_several_selections(tmp_path):
    config = ExtractConfig.authors(
        batch_size=16, upsilon=2, head_epochs=1, lr=1.0, selection="worst_group", also=("accuracy", "unbiased")
    )
    model, val = toy_model(), toy(n=40)
    sub = bise.extract(model, toy(), val=val, config=config)
    sub.save(tmp_path / "sub")
    for found in (sub, bise.load(tmp_path / "sub", model)):
        for name in ("accuracy", "unbiased", "worst_group"):
            best = max(row["val"][name] for row in sub.record["history"])
            assert getattr(bise.audit(found.best_by(name), val, probe=False), name) == pytest.approx(best)
    with pytest.raises(BadInput, match="no best mask by 'accuracy'"):
        bise.extract(model, toy(), config=config).best_by("accuracy")


def test_presets():
    paper, authors = ExtractConfig.paper(), ExtractConfig.authors()
    assert paper.precision == authors.precision == bise.TrainConfig.paper().precision == "fp32"
    assert ExtractConfig().precision == "auto"
    other = {k: v for k, v in asdict(authors).items() if v != asdict(paper)[k]}
    assert other == {"ties": "later", "mi_over_biases": "sum", "collapse": "ignore"}
    for odd in ({"rho": 1.0}, {"rho": (0.9, 0.0)}, {"ties": "first"}, {"gates_at": "inputs"}, {"also": ("best",)}):
        with pytest.raises(BadInput, match=next(iter(odd))):
            ExtractConfig(**odd)


# BERT


def test_the_norm_over_open_units_by_brute_force():
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((3, 4, 6), (6,), (6,))
    )
    live = torch.tensor([True, False, True, True, False, True])
    found = masked_layer_norm(x, live, weight, bias, 1e-5)
    for row in np.ndindex(3, 4):
        some = [float(x[row][i]) for i in range(6) if live[i]]
        mean = sum(some) / 4
        variance = sum((v - mean) ** 2 for v in some) / 4
        for i in range(6):
            value = float(x[row][i])
            if live[i]:
                value = (value - mean) / math.sqrt(variance + 1e-5) * float(weight[i]) + float(bias[i])
            assert float(found[row][i]) == pytest.approx(value, abs=1e-12)
    whole = masked_layer_norm(x, torch.ones(6, dtype=torch.bool), weight, bias, 1e-5)
    assert torch.allclose(whole, nn.functional.layer_norm(x, (6,), weight, bias, 1e-5), atol=1e-14)
    # with none open everything passes, and nothing is divided by 0
    assert torch.equal(masked_layer_norm(x, torch.zeros(6, dtype=torch.bool), weight, bias, 1e-5), x)


TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.fixture(scope="module")
def tiny():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    x = {"input_ids": torch.randint(0, 40, (4, 9)), "attention_mask": torch.ones(4, 9, dtype=torch.long)}
    x["attention_mask"][0, 6:] = 0
    return as_if_trained(bert(2, None, **TINY)[0], x), x


class Gated(nn.Module):
    """A linear layer and a mask on its output."""

    def __init__(self, layer, mask):
        super().__init__()
        self.layer, self.mask = layer, mask

    def forward(self, x):
        return self.layer(x) * self.mask


class Knowing(nn.Module):
    """A LayerNorm of the open units, picked out one by one."""

    def __init__(self, norm, mask):
        super().__init__()
        self.norm, self.index = norm, mask.nonzero().flatten()

    def forward(self, x):
        some = x[..., self.index]
        out = x.clone()
        picked = nn.functional.layer_norm(some, some.shape[-1:], eps=self.norm.eps)
        out[..., self.index] = picked * self.norm.weight[self.index] + self.norm.bias[self.index]
        return out


def test_bert_as_in_the_authors_code_and_its_exact_shrinking(tiny):
    model, x = tiny
    found = place(model, x, gates_at="layers", norms="masked")
    layers = [f"bert.encoder.layer.{i}.{kind}.dense" for i in (0, 1) for kind in ("intermediate", "output")]
    assert {site.name: site.units for site in found.sites} == dict(
        zip([*layers, "bert.pooler.dense"], [24, 16, 24, 16, 16], strict=True)
    )
    generator = torch.Generator().manual_seed(1)
    masks = {site.name: torch.rand(site.units, generator=generator) < 0.5 for site in found.sites}
    sub = Subnetwork(model, found.sites, masks=masks)
    by_hand = copy.deepcopy(model).double()
    for name, mask in masks.items():
        parent, _, leaf = name.rpartition(".")
        module = by_hand.get_submodule(parent)
        setattr(module, leaf, Gated(getattr(module, leaf), mask))
        if parent.endswith(".output"):
            module.LayerNorm = Knowing(module.LayerNorm, mask)
    with torch.no_grad():
        expected = by_hand(**x).logits
        precise = copy.deepcopy(sub).double()
        assert torch.allclose(precise(**x).logits, expected, atol=1e-12)
        plain = Subnetwork(model, place(model, x, gates_at="layers").sites, masks=masks).double()
        assert not torch.allclose(plain(**x).logits, expected, atol=1e-6)
    small = sub.shrink(x)
    assert max(small.shrink_report.differences.values()) < 1e-10
    assert small.shrink_report.barriers == ()
    # rows and entries of closed units are gone: of each feed-forward (16 + 1) · closed hidden units and more
    closed = {name: int((~mask).sum()) for name, mask in masks.items()}
    gone = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in small.parameters())
    for i in (0, 1):
        hidden, out = (closed[f"bert.encoder.layer.{i}.{kind}.dense"] for kind in ("intermediate", "output"))
        gone -= hidden * 17 + 16 * hidden + out * (24 - hidden) + out
    assert gone >= closed["bert.pooler.dense"] * 17


def test_bert_learns_saves_and_loads_with_its_norms(tiny, tmp_path):
    model, x = tiny
    ids = torch.randint(0, 40, (24, 9), generator=torch.Generator().manual_seed(3))
    rows = [({"input_ids": row, "attention_mask": torch.ones_like(row)},) for row in ids]
    y = [i % 2 for i in range(24)]
    texts = Labelled(rows, y=y, b=[i // 2 % 2 for i in range(24)], aligned=[0, 1])
    config = ExtractConfig.authors(
        gates_at="layers", norms="masked", batch_size=8, upsilon=1, tau_min=0.2, head_epochs=1, lr=1.0
    )
    sub = bise.extract(model, texts, config=config)
    closed, units = sub.units
    assert closed < units == 96
    sub.save(tmp_path / "sub")
    again = bise.load(tmp_path / "sub", model)
    assert again.sites == sub.sites
    assert torch.equal(again(**x).logits, sub(**x).logits)
    assert max(again.shrink(x).shrink_report.differences.values()) < 1e-10
    tuned = bise.finetune(sub, texts, config=bise.TrainConfig(epochs=1, batch_size=8, lr=1e-9))
    assert torch.allclose(tuned(**x).logits, sub(**x).logits, atol=1e-5)


def test_where_there_are_no_such_layers_or_norms():
    x = torch.randn(2, 3, 28, 28)
    with pytest.raises(BadInput, match="SimpleConvNet has no linear layer outside of attention before its last"):
        place(SimpleConvNet(), x, gates_at="layers")
    with pytest.raises(BadInput, match='no gate on an output.dense .* use norms="plain"'):
        place(SimpleConvNet(), x, norms="masked")
    assert [site.name for site in place(MLP(), x, gates_at="layers").sites] == [
        "hidden.0.0",
        "hidden.1.0",
        "hidden.2.0",
    ]


# data


def test_one_drawing_of_colours_by_hand():
    random = np.random.RandomState(0)
    b = drawn(torch.zeros(20, dtype=torch.long), 0.9, random)
    # 18 keep their own colour; chunks of ceil(2 / 9) = 1 give the other two a colour each
    assert int((b == 0).sum()) == 18
    assert len(set(b[b != 0].tolist())) == 2


def loader(y, rho):
    """A colouring as the public loader of BiasedMNIST makes it, from NumPy's one generator: digit by digit, then the
    order of the samples."""
    colours = np.full(len(y), -1)
    for digit in range(10):
        mine = np.where(y == digit)[0]
        np.random.shuffle(mine)  # noqa: NPY002
        own = int(len(mine) * rho)
        colours[mine[:own]] = digit
        others = [k % 10 for k in range(digit + 1, digit + 10)]
        np.random.shuffle(others)  # noqa: NPY002
        size = math.ceil((len(mine) - own) / 9)
        for k in range(9):
            colours[mine[own + k * size : own + (k + 1) * size]] = others[k]
    np.random.shuffle(np.arange(len(y)))  # noqa: NPY002
    return torch.from_numpy(colours)


@pytest.mark.data
def test_colours_are_drawn_one_after_another(data_root):
    sets = {s: load("biased-mnist", split=s, rho=0.99, seed=1, protocol="authors", root=data_root) for s in DRAWINGS}
    y, y_test = sets["train"].y.numpy(), sets["test"].y.numpy()
    np.random.seed(1)  # noqa: NPY002
    train, search, val, test = loader(y, 0.99), loader(y, 0.99), loader(y, 0.1), loader(y_test, 0.1)
    assert torch.equal(sets["train"].b, train)
    assert torch.equal(sets["test"].b, test)
    assert [len(sets[name]) for name in DRAWINGS] == [60_000, 50_000, 10_000, 10_000]
    # which 50,000 and 10,000 is ours to choose: their pictures tell
    pictures = {name: sets[name].dataset.tensors[0] for name in ("train", "search", "val")}
    shapes = {name: (x == 255).all(1).flatten(1) for name, x in pictures.items()}
    often = Counter(bytes(row.numpy()) for row in shapes["train"])
    place_of = {bytes(row.numpy()): i for i, row in enumerate(shapes["train"])}
    for name, whole in (("search", search), ("val", val)):
        # a few shapes occur twice, and say nothing
        rows = [i for i, row in enumerate(shapes[name][:500]) if often[bytes(row.numpy())] == 1]
        where = torch.tensor([place_of[bytes(shapes[name][i].numpy())] for i in rows])
        assert len(rows) > 450
        assert torch.equal(sets[name].y[rows], sets["train"].y[where])
        assert torch.equal(sets[name].b[rows], whole[where])
    # other digits conflict than those that the vanilla model saw
    assert not torch.equal(search, train)
    with pytest.raises(BadInput, match="split='search' is unknown"):
        load("biased-mnist", split="search", root=data_root)


DRAWINGS = ("train", "search", "val", "test")


# recipes


def test_recipes_by_the_authors():
    r = recipe("biased-mnist", rho=0.997, protocol="authors", seed=2)
    assert (r.search, dict(r.shape), r.select) == ("search", {"last": "tanh"}, "best")
    assert r.train.milestones == (80, 90)
    e = r.extract
    assert (e.rho, e.ties, e.mi_over_biases, e.selection, e.batch_size, e.seed) == (
        0.997,
        "later",
        "sum",
        "accuracy",
        100,
        2,
    )
    for name in PAPER:
        authors, paper = recipe(name, protocol="authors"), recipe(name)
        assert authors.train.precision == authors.extract.precision == authors.finetune.precision == "fp32"
        assert (authors.preset, paper.preset) == ("authors", "paper")
        assert paper.search == "train"
        assert ExtractConfig.authors(**authors.extract_changes()) == authors.extract
        # a preset is the same under either protocol
        assert preset_changes(paper, "authors") == authors.extract_changes()
        assert preset_changes(authors, "paper") == paper.extract_changes()
        assert authors.train.lr == paper.train.lr
    assert recipe("multi-color-mnist", protocol="authors").extract.rho == (0.99, 0.95)
    assert recipe("celeba", protocol="authors").extract.selection == "accuracy"
    text = recipe("civilcomments", protocol="authors").extract
    assert (text.gates_at, text.norms, text.also) == ("layers", "masked", ("accuracy", "unbiased"))
    assert (text.selection, text.batch_size, text.rho) == ("worst_group", 16, None)
    assert (recipe("civilcomments").extract.gates_at, recipe("civilcomments").extract.norms) == ("activations", "plain")


def test_the_fourth_block_ends_in_tanh():
    model, _, shape = start(recipe("biased-mnist", protocol="authors"))
    again = architecture(recipe="biased-mnist", **json.loads(json.dumps(shape)))
    for made in (model, again):
        kinds = [type(block[2]) for block in made.blocks]
        assert kinds == [nn.ReLU, nn.ReLU, nn.ReLU, nn.Tanh]
    x = torch.randn(2, 3, 28, 28)
    assert [s.units for s in place(model, x).sites] == [16, 32, 64, 128]
    # Kaiming, fan out: a standard deviation of √(2 / (49 · 128)) in the last convolution
    assert float(model.blocks[3][0].weight.detach().std()) == pytest.approx(math.sqrt(2 / (49 * 128)), rel=0.01)
    plain, _, none = start(recipe("biased-mnist"))
    assert (type(plain.blocks[3][2]), none) == (nn.ReLU, {})
    with pytest.raises(BadInput, match="last='gelu'"):
        SimpleConvNet(last="gelu")


@pytest.mark.data
def test_splits_put_the_data_of_masks_in_the_place_of_train(data_root):
    how = {"recipe": "biased-mnist", "rho": 0.9, "protocol": "authors", "root": data_root}
    assert len(splits("train", **how)) == 60_000
    assert len(splits("train", train="search", **how)) == 50_000
    assert len(splits("val", train="search", **how)) == 10_000


@pytest.mark.data
@pytest.mark.long
def test_train_and_extract_by_the_authors(tmp_path, data_root):
    vanilla, found = tmp_path / "vanilla", tmp_path / "found"
    own = ["--data-root", str(data_root), "--device", "cpu", "--limit", "60", "--rho", "0.5", "--epochs", "1"]

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, result.output

    run("train", "biased-mnist", "--protocol", "authors", *own, "--out", vanilla)
    quick = ["--upsilon", "1", "--steps", "1", "--batch-size", "12", "--head-epochs", "1"]
    run("extract", "--from", vanilla, "--preset", "authors", *quick, "--out", found)
    first, second = (json.loads((folder / "config.json").read_text()) for folder in (vanilla, found))
    assert first["source"]["data_arguments"].get("train") is None
    assert second["source"]["data_arguments"]["train"] == "search"
    assert second["source"]["data_arguments"]["protocol"] == second["preset"] == "authors"
    assert second["extract"]["ties"] == "later"
    assert second["extract"]["rho"] == 0.5
    assert second["sha256"]["train"] != first["sha256"]["train"]
    run("finetune", found, "--preset", "authors", "--epochs", "1")  # on the same data: else it would refuse them
