"""Pictures turned, stretched and shifted while weights or masks are learned: against rot90, a slice, by its seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, ExtractConfig, TrainConfig
from bise.data import Labelled
from bise.data.core.transforms import JITTER_DRAWS, Transform, jittered
from bise.engine.inputs import Inputs
from conftest import toy, toy_model

CPU = torch.device("cpu")


def draws(n, **chosen):
    """Numbers that leave a picture as it is, but for what is chosen from −1 to 1."""
    names = ("turn", "stretch", "slant", "down", "right")
    out = torch.full((n, JITTER_DRAWS), 0.5, dtype=torch.float64)
    for name, value in chosen.items():
        out[:, names.index(name)] = (value + 1) / 2
    return out


@pytest.fixture
def x():
    return torch.rand(3, 2, 14, 14, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_middle_of_every_draw_leaves_pictures_as_they_are(x):
    torch.testing.assert_close(jittered(x, draws(3), 1.0), x)


def test_a_quarter_turn_is_rot90(x):
    quarter = jittered(x, draws(3, turn=1), 6.0)  # 6 · 15 degrees
    torch.testing.assert_close(quarter, torch.rot90(x, 1, (2, 3)))


@pytest.mark.parametrize(("name", "dim"), [("down", 2), ("right", 3)])
def test_a_shift_by_a_fourteenth_is_a_slice(x, name, dim):
    moved = jittered(x, draws(3, **{name: 1}), 1.0)
    torch.testing.assert_close(moved.narrow(dim, 0, 13), x.narrow(dim, 1, 13))
    torch.testing.assert_close(moved.narrow(dim, 13, 1), x.narrow(dim, 13, 1))  # the edge goes on


def test_stretching_keeps_the_middle_and_halves_what_is_seen():
    ramp = torch.linspace(-1, 1, 15, dtype=torch.float64).expand(1, 1, 15, 15)
    seen = jittered(ramp, draws(1, stretch=-1), 0.5 / 0.15)  # a scale of a half
    torch.testing.assert_close(seen[0, 0, 7], ramp[0, 0, 7] / 2)


def test_a_slant_moves_rows_against_each_other(x):
    slanted = jittered(x, draws(3, slant=1), 10.0)  # a row at height h is shifted by h
    middle = slanted[:, :, 7, :]
    height = (7 + 0.5) / 14 * 2 - 1
    columns = (torch.arange(14) + 0.5 + 14 * height / 2).clamp(0.5, 13.5) - 0.5
    low = columns.floor().long().clamp_max(12)
    expected = x[:, :, 7, low] + (columns - low) * (x[:, :, 7, low + 1] - x[:, :, 7, low])
    torch.testing.assert_close(middle, expected)


def test_augmenting_and_jittering_have_numbers_of_their_own():
    pictures = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Labelled(TensorDataset(pictures), y=[0, 1] * 3, b=[0, 1] * 3, transform=Transform(crop=2, flip=True))
    inputs = Inputs(data, CPU)
    inputs.jitter = 0.7
    found = inputs.draws(6, torch.Generator().manual_seed(3))
    assert found.shape == (6, 3 + JITTER_DRAWS)
    expected = jittered(data.transform(pictures, found[:, :3]), found[:, 3:], 0.7)
    assert torch.equal(inputs.gather(torch.arange(6), found), expected)
    batches = [part for part, _ in inputs.batches(torch.arange(6), 4, found)]
    torch.testing.assert_close(torch.cat(batches), expected)
    assert torch.equal(inputs.example(6), data.transform(pictures))  # nothing is augmented unless it is asked for


def test_jitter_alone_leaves_out_what_the_transform_would_augment():
    pictures = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Labelled(TensorDataset(pictures), y=[0, 1] * 3, b=[0, 1] * 3, transform=Transform(crop=2, flip=True))
    inputs = Inputs(data, CPU)
    inputs.jitter_by(0.7)
    inputs.augments = False
    found = inputs.draws(6, torch.Generator().manual_seed(3))
    assert found.shape == (6, JITTER_DRAWS)
    assert torch.equal(inputs.gather(torch.arange(6), found), jittered(data.transform(pictures), found, 0.7))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


@pytest.fixture(scope="module")
def pictures():
    made = toy(300)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(300, 1, 8, 8, generator=generator) + made.y.view(-1, 1, 1, 1)
    return Labelled(TensorDataset(x), y=made.y, b=made.b, classes=3, bias_classes=3)


def test_training_jitters_by_its_seed_and_goes_on_after_a_stop(pictures, tmp_path):
    config = TrainConfig(epochs=3, jitter=1.0, seed=1)
    whole, twice, none = (
        bise.fingerprint(bise.finetune(network(), pictures, config=c).bare())
        for c in (config, config, TrainConfig(epochs=3, seed=1))
    )
    assert whole == twice != none

    class Stop(Exception):
        pass

    def log(row):
        if row["epoch"] == 2:
            raise Stop

    where = {"checkpoint": tmp_path / "x.safetensors", "checkpoint_every": 0, "config": config}
    with pytest.raises(Stop):
        bise.finetune(network(), pictures, log=log, **where)
    assert bise.fingerprint(bise.finetune(network(), pictures, **where).bare()) == whole


QUICK = ExtractConfig(jitter=1.0, tau_min=0.2, upsilon=2, steps=4, head_steps=2, head_epochs=1, baseline=False, seed=1)


def scores(pictures, config, **where):
    return torch.cat(list(bise.extract(network(), pictures, config=config, **where).scores.values()))


def test_masks_are_learned_by_jitter_of_their_seed_and_go_on_after_a_stop(pictures, tmp_path):
    whole = scores(pictures, QUICK)
    assert torch.equal(scores(pictures, QUICK), whole)
    assert not torch.equal(scores(pictures, replace(QUICK, jitter=0.0)), whole)
    # the pictures come anew in each step, so nothing of the network may be computed beforehand but the head's features
    assert torch.equal(scores(pictures, replace(QUICK, cache=False)), whole)

    class Stop(Exception):
        pass

    def log(row):
        if row["epoch"] == 3:
            raise Stop

    where = {"checkpoint": tmp_path / "x.safetensors", "checkpoint_every": 0}
    with pytest.raises(Stop):
        scores(pictures, QUICK, log=log, **where)
    assert torch.equal(scores(pictures, QUICK, **where), whole)


@pytest.mark.filterwarnings("ignore:train and val are the very same data")
def test_jittered_pictures_need_no_margin(pictures):
    model = bise.finetune(network(), pictures, config=TrainConfig(epochs=60, lr=0.05, sampler="balanced")).bare()
    plain, moved = (
        bise.extract(model, pictures, val=pictures, config=replace(QUICK, jitter=jitter)).record["targets"]
        for jitter in (0.0, 1.0)
    )
    assert plain["right"] >= 0.95
    assert (plain["other"]["margin"], plain["other"]["smoothing"]) == (0.4, 0.2)  # tried, and no gain on this val
    assert moved == {"margin": 0.0, "smoothing": 0.0}
    given = replace(QUICK, margin=0.3)
    assert bise.extract(model, pictures, val=pictures, config=given).record["targets"]["margin"] == 0.3


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
@pytest.mark.parametrize("kind", [TrainConfig, ExtractConfig])
def test_an_amount_that_is_none_is_refused(kind, bad):
    with pytest.raises(BadInput, match="jitter="):
        kind(jitter=bad)


@pytest.mark.parametrize(("job", "config"), [(bise.finetune, TrainConfig(jitter=1.0)), (bise.extract, QUICK)])
def test_what_is_no_picture_is_refused(job, config):
    with pytest.raises(BadInput, match="jitter=1 turns and shifts pictures, and these inputs are none"):
        job(toy_model(), toy(100), config=config)
