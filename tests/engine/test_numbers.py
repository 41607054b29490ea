"""Numbers that aren't float32, or are none: another default type, logits and weights that are not finite."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
from bise import BadInput, ExtractConfig, TrainConfig
from bise.cli.app import app
from bise.data import Labelled, Transform
from bise.data.sets.corruptions import CORRUPTIONS, corrupt
from bise.data.sets.digits import coloured_digits
from conftest import toy, toy_model, trained

BRIEF = {"upsilon": 2, "tau_min": 0.3, "head_epochs": 1, "steps": 8, "batch_size": 50}
OPTIONS = ("--upsilon", "1", "--steps", "4", "--batch-size", "60")


@contextmanager
def doubles():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert torch.equal(tensor, other[name]), name


def pictures():
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=random)
    y = torch.arange(60) % 2
    b = torch.where(torch.arange(60) % 7 == 0, 1 - y, y)
    return Labelled(TensorDataset(x), y=y, b=b, transform=Transform(crop=1, flip=True))


def small_cnn():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2))
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"margin": 0.4, "smoothing": 0.2},
        {"sampler": "natural", "weights": "groups"},
        {"cache": False, "bn": "all"},
        {"memory": 600 * 240},
    ],
    ids=["default", "margins", "weights", "batch norm", "in a file"],
)
def test_the_default_type_of_numbers_changes_no_bit_of_an_extraction(change):
    train, val = toy(), toy(rho=1 / 3, seed=1)
    model = trained(toy_model(), train)
    config = ExtractConfig(**(BRIEF | change))
    expected = bise.extract(model, train, val=val, config=config)
    with doubles():
        found = bise.extract(model, train, val=val, config=config)
    same(found.last.scores, expected.last.scores)
    same(found.masks, expected.masks)
    assert found.record["history"] == expected.record["history"]
    assert not all(mask.all() for mask in found.last.masks.values()), "something should have been closed"


def test_the_default_type_changes_no_bit_of_augmented_pictures():
    config = ExtractConfig(**BRIEF, jitter=0.5)
    expected = bise.extract(small_cnn(), pictures(), config=config)
    model = small_cnn()
    with doubles():
        found = bise.extract(model, pictures(), config=config)
    same(found.scores, expected.scores)


def test_the_default_type_changes_no_bit_of_what_comes_after(tmp_path):
    train, val = toy(), toy(rho=1 / 3, seed=1)
    model, x = trained(toy_model(), train), train.tensors[0][:8]
    config = TrainConfig.finetuning(epochs=2, margin=0.5)

    def made():
        sub = bise.subnetwork(model, {"0": torch.arange(16) % 2 == 0}, example=x, bottleneck="5")
        tuned = bise.finetune(sub, train, val=val, config=config)
        sub.save(tmp_path / "sub")
        same(bise.load(tmp_path / "sub", model).scores, sub.scores)
        small = tuned.shrink(x)
        assert bise.export(small, tmp_path / "small.pt2", x) < 1e-5
        return tuned.bare().state_dict(), bise.audit(tuned, val).as_dict(), small(x)

    weights, audit, logits = made()
    with doubles():
        again = made()
    same(again[0], weights)
    assert again[1] == audit
    assert torch.equal(again[2], logits)


def test_a_model_in_doubles_is_extracted_whatever_the_default():
    train = toy()
    double = Labelled(TensorDataset(train.tensors[0].double()), y=train.y, b=train.b)
    model = trained(toy_model(), train).double()
    expected = bise.extract(model, double, config=ExtractConfig(**BRIEF))
    with doubles():
        found = bise.extract(model, double, config=ExtractConfig(**BRIEF))
    same(found.scores, expected.scores)


def test_the_default_type_changes_no_picture_that_is_made():
    x = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = {name: corrupt(x, name, severity=s) for name in CORRUPTIONS for s in (1, 5)}
    digits = coloured_digits(copies=1)["train"]
    with doubles():
        same({name: corrupt(x, name, severity=s) for name in CORRUPTIONS for s in (1, 5)}, expected)
        again = coloured_digits(copies=1)["train"]
    same(dict(enumerate(again.tensors)), dict(enumerate(digits.tensors)))
    assert torch.equal(again.b, digits.b)


# logits that are no numbers


class Touchy(nn.Module):
    """Overflows where its logits are beyond 1e19: inputs are finite, and so are all weights."""

    def __init__(self):
        super().__init__()
        self.net = toy_model()

    def forward(self, x):
        logits = self.net(x)
        return logits + 0 * logits.square()


def touchy_net():
    torch.manual_seed(0)
    return trained(Touchy(), toy(), epochs=1)


def split_with(rows, seed=1):
    data = toy(rho=1 / 3, seed=seed)
    x = data.tensors[0].clone()
    x[rows, 0] = 1e25
    return Labelled(TensorDataset(x), y=data.y, b=data.b)


def on_val(split):
    return {"train": toy(), "val": split_with([3, 17, 599]), "test": None}[split]


def on_test(split):
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1), "test": split_with(list(range(40, 52)))}[split]


def test_logits_on_val_that_are_no_numbers_are_refused_by_every_job():
    model, train, val = touchy_net(), toy(), split_with([3, 17, 599])
    message = r"logits for samples 3, 17, 599 of val are not finite; check its weights and the input's scale"
    with pytest.raises(BadInput, match=message):
        bise.extract(model, train, val=val, config=ExtractConfig(**BRIEF))
    with pytest.raises(BadInput, match=message):
        bise.finetune(model, train, val=val, config=TrainConfig(epochs=1))
    with pytest.raises(BadInput, match=r"logits for samples 3, 17, 599 are not finite"):
        bise.audit(model, val)
    with pytest.raises(BadInput, match=r"logits for sample 5 of train are not finite"):
        bise.extract(model, split_with([5], seed=0), config=ExtractConfig(**BRIEF))


class Diverging(nn.Module):
    """Its logits on samples of val are finite as long as its weights are those that it came with."""

    def __init__(self):
        super().__init__()
        self.net = toy_model()
        self.register_buffer("start", self.net[0].weight.detach().clone())

    def forward(self, x):
        moved = not torch.equal(self.net[0].weight, self.start)
        return self.net(x) + torch.where(x[:, :1] == 1e25, torch.inf if moved else 0.0, 0.0)


def test_logits_that_stop_being_numbers_in_a_finetuning_are_refused():
    with pytest.raises(bise.base.errors.NonFinite, match="sample 7 of val are not finite.*or lower lr") as caught:
        bise.finetune(Diverging(), toy(), val=split_with([7]), config=TrainConfig(epochs=1))
    assert (caught.value.samples, caught.value.split) == ([7], "val")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def sentence(result):
    assert result.exit_code == 2, result.output
    (line,) = (row for row in result.stderr.splitlines() if row.startswith("bise: "))
    return line


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("on_val", "samples 3, 17, 599 of val are not finite"),
        ("on_test", "test: the model's logits for samples 40, 41, 42, 43, 44 and 7 more are not finite"),
    ],
)
def test_a_run_that_meets_them_leaves_nothing(data, expected, tmp_path):
    save_file(touchy_net().state_dict(), tmp_path / "w.safetensors")
    net = ("--model", "test_numbers:Touchy", "--weights", tmp_path / "w.safetensors")
    out = tmp_path / "run"
    assert expected in sentence(run("extract", *net, "--data", f"test_numbers:{data}", *OPTIONS, "--out", out))
    assert not out.exists()
    if data == "on_test":
        assert expected in sentence(run("audit", *net, "--data", f"test_numbers:{data}"))


def test_a_finetuning_that_ends_so_leaves_the_run_as_it_was(tmp_path):
    save_file(toy_model().state_dict(), tmp_path / "w.safetensors")
    net = ("--model", "conftest:toy_model", "--weights", tmp_path / "w.safetensors")
    out = tmp_path / "run"
    found = run("extract", *net, "--data", "test_numbers:mild", *OPTIONS, "--out", out)
    assert found.exit_code == 0, found.output
    before = contents(out)
    # one step an epoch, after which the weights are huge and finite
    once = ("finetune", out, "--epochs", "1", "--batch-size", "600", "--lr", "1e25")
    assert "of val are not finite" in sentence(run(*once))
    assert contents(out) == before
    twice = ("finetune", out, "--epochs", "2", "--batch-size", "600", "--lr", "1e5")
    said = sentence(run(*twice))
    listed = json.loads((out / "non_finite.json").read_text())
    assert (listed["split"], listed["epoch"]) == ("val", None)
    assert said.endswith(f"the {len(listed['samples'])} samples of val are listed in {out / 'non_finite.json'}")
    assert contents(out) == {**before, "non_finite.json": (out / "non_finite.json").read_bytes()}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mild(split):
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1), "test": None}[split]


# weights that are no numbers


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("3.weight", (2, 5), torch.inf, r"3\.weight holds inf at \[2, 5\]"),
        ("5.bias", (1,), torch.nan, r"5\.bias holds nan at \[1\]"),
        ("1.running_var", (0,), -torch.inf, r"1\.running_var holds -inf at \[0\]"),
    ],
)
def test_a_weight_that_is_no_number_is_named(name, place, value, said, tmp_path):
    model = toy_model()
    state = model.state_dict()
    state[name][place] = value
    train = toy()
    with pytest.raises(BadInput, match=f"Sequential: {said}; load weights that are numbers"):
        bise.extract(model, train, config=ExtractConfig(**BRIEF))
    with pytest.raises(BadInput, match=said):
        bise.finetune(model, train, config=TrainConfig(epochs=1))
    with pytest.raises(BadInput, match=said):
        bise.audit(model, train)
    save_file(state, tmp_path / "w.safetensors")
    net = ("--model", "conftest:toy_model", "--weights", tmp_path / "w.safetensors")
    out = tmp_path / "run"
    words = sentence(run("extract", *net, "--data", "test_numbers:mild", *OPTIONS, "--out", out))
    assert f"{name} holds {value}" in words
    assert not out.exists()


def test_infinity_in_a_mask_is_no_weight():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_model()
            self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, -torch.inf]))

        def forward(self, x):
            return self.net(x) + self.mask.softmax(0)[:3]

    sub = bise.extract(Masked(), toy(), config=ExtractConfig(**BRIEF))
    assert sub.units[1] == 32
