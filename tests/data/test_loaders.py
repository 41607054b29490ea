"""A DataLoader in place of a data set gives what its data set would, with the batches that its collate_fn makes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

import bise
from bise import BadInput, BiseWarning
from bise.data import Labelled, labels
from bise.data.core.contract import unloaded
from bise.engine.inputs import Inputs
from bise.jobs.steps import split_of
from conftest import Stream, toy, toy_model, trained

BRIEF = {"upsilon": 1, "tau_min": 0.6, "head_epochs": 2, "steps": 4}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model():
    return trained(toy_model(), toy())


def doubled(samples):
    """A collate_fn that changes the inputs, as a normalisation would."""
    x, y, b = zip(*samples, strict=True)
    return 2 * torch.stack(x), torch.tensor(y), torch.tensor(b)


class Padded:
    """Sequences of several lengths, padded to the longest of their batch."""

    def __call__(self, samples):
        rows = [s[0] if isinstance(s, tuple) else s for s in samples]
        longest = max(len(row) for row in rows)
        return {"x": torch.stack([nn.functional.pad(row, (0, longest - len(row))) for row in rows])}


class Summing(nn.Module):
    """Logits from a sequence of any length."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.act, self.fc = nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.act(self.hidden(x.sum(1, keepdim=True))))


def test_every_verb_gives_the_same_as_with_its_data_set(model):
    train, val = toy(), toy(rho=1 / 3, seed=1)
    loaders = [DataLoader(train, batch_size=7, shuffle=True), DataLoader(val, batch_size=9, num_workers=0)]
    assert torch.equal(labels(loaders[0]).index, labels(train).index)
    config = bise.ExtractConfig(**BRIEF)
    plain, by = [bise.extract(model, one, val=other, config=config) for one, other in ((train, val), loaders)]
    assert all(torch.equal(plain.scores[name], by.scores[name]) for name in plain.scores)
    assert bise.audit(plain, val) == bise.audit(by, loaders[1])
    tuned = [
        bise.finetune(plain, one, val=other, config=bise.TrainConfig.finetuning(epochs=1))
        for one, other in ((train, val), loaders)
    ]
    assert bise.fingerprint(tuned[0].network) == bise.fingerprint(tuned[1].network)
    refitted = [bise.refit(plain, one, val=other, folds=2) for one, other in ((train, val), loaders)]
    assert bise.fingerprint(refitted[0].network) == bise.fingerprint(refitted[1].network)
    guessed = [bise.pseudo_bias(toy_model, one) for one in (train, loaders[0])]
    assert torch.equal(guessed[0].b, guessed[1].b)
    assert guessed[0].quality == guessed[1].quality


def test_other_functions_that_take_data(model):
    """Those beside the five verbs: BatchNorm's statistics, wrong labels on purpose, and a command's splits."""
    train = toy()
    loader = DataLoader(train, batch_size=7, shuffle=True)
    sub = bise.subnetwork(model, {"2": torch.arange(16) % 2 == 0}, example=train.tensors[0][:2])
    again = [bise.reestimate(sub, data) for data in (train, loader)]
    assert bise.fingerprint(again[0].network) == bise.fingerprint(again[1].network)
    plain = [(x, y, b) for x, y, b in train]
    for data in (loader, plain, DataLoader(plain, batch_size=7)):
        assert torch.equal(bise.data.noisy_bias(data, 0.3).b, bise.data.noisy_bias(train, 0.3).b)
    assert torch.equal(split_of(lambda name: loader, "train").y, train.y)


def test_a_collate_fn_is_respected(model):
    train = toy()
    twice = Labelled(TensorDataset(2 * train.tensors[0]), y=train.y, b=train.b, classes=3, bias_classes=3)
    for data in (train, Stream(train)):
        found = bise.audit(model, DataLoader(data, batch_size=50, collate_fn=doubled))
        assert found.as_dict() == bise.audit(model, twice).as_dict()
    assert bise.audit(model, train).accuracy != bise.audit(model, twice).accuracy
    two = Inputs(unloaded(DataLoader(train, collate_fn=doubled)), CPU, workers=2)
    seen = torch.cat([x for x, _ in two.batches(torch.arange(600), 100)])
    assert torch.equal(seen, twice.tensors[0])


def test_a_run_with_a_collate_fn_is_gone_on_with(model, tmp_path):
    loader = DataLoader(toy(), collate_fn=doubled)
    config = bise.ExtractConfig(**BRIEF)
    once = bise.extract(model, loader, config=config, checkpoint=tmp_path / "c", checkpoint_every=0)
    again = bise.extract(model, loader, config=config, checkpoint=tmp_path / "c", checkpoint_every=0)
    assert all(torch.equal(once.scores[name], again.scores[name]) for name in once.scores)


def test_sequences_are_padded_by_their_own_collate_fn():
    generator = torch.Generator().manual_seed(0)
    rows = [torch.rand(int(n), generator=generator) for n in torch.randint(1, 9, (90,), generator=generator)]
    y, b = torch.randint(2, (2, 90), generator=generator)
    padded = torch.stack([nn.functional.pad(row, (0, 8 - len(row))) for row in rows])
    expected = bise.audit(Summing(), Labelled(TensorDataset(padded), y=y, b=b)).as_dict()
    loader = DataLoader(rows, batch_size=4, collate_fn=Padded())
    found = bise.audit(Summing(), Labelled(loader, y=y, b=b)).as_dict()
    assert found["by_group"] == expected["by_group"]
    assert found["calibration_error"] == pytest.approx(expected["calibration_error"], abs=1e-6)
    samples = list(zip(rows, y.tolist(), b.tolist(), strict=True))
    assert bise.audit(Summing(), DataLoader(samples, collate_fn=Padded())).by_group == expected["by_group"]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(toy())


def mixed(samples):
    x, y, b = doubled(samples)
    return x + x.flip(0), torch.nn.functional.one_hot(y, 3) / 2, b


def turned(samples):
    x, y, b = doubled(samples)
    return x.flip(0), y.flip(0), b.flip(0)


def short(samples):
    x, y, b = doubled(samples)
    return x[1:], y[1:], b[1:]


def without_tensors(samples):
    return [[s[0].tolist() for s in samples]]


def of_dicts(samples):
    return torch.stack([s["x"] for s in samples])


@pytest.mark.parametrize(
    ("loader", "sentence"),
    [
        (lambda: DataLoader(Endless()), "Endless is an IterableDataset, whose samples have no number"),
        (lambda: DataLoader(toy(), batch_size=None), "has batch_size=None"),
        (lambda: DataLoader(toy(), collate_fn=mixed), "collate_fn mixed changes the targets or the order"),
        (lambda: DataLoader(toy(), collate_fn=turned), "collate_fn turned changes the targets or the order"),
        (lambda: DataLoader(toy(), collate_fn=short), "collate_fn short makes inputs of another length"),
        (lambda: DataLoader(toy(), collate_fn=without_tensors), "without_tensors makes list of a batch"),
        (lambda: DataLoader(toy(), collate_fn=of_dicts), "collate_fn of_dicts raised TypeError"),
    ],
)
def test_what_can_not_be_respected_is_refused(model, loader, sentence):
    with pytest.raises(BadInput, match="DataLoader") as caught:
        bise.audit(model, loader())
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": WeightedRandomSampler(torch.ones(600), 600)},
        {"sampler": SubsetRandomSampler(range(10))},
        {"batch_sampler": [[0, 1], [2]]},
    ],
    ids=["weighted", "subset", "batches"],
)
def test_samplers_are_told_not_to_be_used(model, settings):
    with pytest.warns(BiseWarning, match="isn't used: all 600 samples of its data set count") as told:
        found = bise.audit(model, DataLoader(toy(), **settings))
    assert len(told) == 1
    assert found == bise.audit(model, toy())


def test_usual_settings_are_used_in_silence(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for settings in ({"shuffle": True, "drop_last": True}, {"batch_size": 16}):
            assert bise.audit(model, DataLoader(toy(), **settings)).n == 600
