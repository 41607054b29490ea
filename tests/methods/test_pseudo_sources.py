"""Every source of guessed bias labels on the tiny pictures, by the list of methods."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import TensorDataset

import bise
from bise.base.errors import BadInput
from bise.base.names import BIAS_SOURCES
from bise.data import Labelled
from bise.data.core.contract import labels
from bise.engine.config import TrainConfig
from bise.methods import pseudo_labels
from bise.methods.rivals.listed import METHODS
from test_rivals import config_of, net, pictures

SHORT = TrainConfig(epochs=4, batch_size=32, lr=0.02)
TRAIN = pictures(600, rho=0.9, bright=0.5)  # so that the shortcut is easier than the target


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Methods with the short searches of their own test."""
    quick = {name: replace(method, config=config_of(method)) for name, method in METHODS.items()}
    monkeypatch.setattr(pseudo_labels, "METHODS", quick)


def test_the_sources_are_the_methods_that_guess():
    assert {name for name, method in METHODS.items() if method.guess is not None} == set(BIAS_SOURCES) - {"epoch"}
    assert not any(METHODS[name].needs for name in BIAS_SOURCES if name != "epoch")


@pytest.mark.parametrize("by", BIAS_SOURCES)
def test_a_source_finds_more_than_chance(by):
    """Without reading b: what it marks conflicts more often than a sample does, and the seed decides alone."""
    unlabelled = Labelled(TRAIN.dataset, y=TRAIN.y, classes=2)
    random = torch.get_rng_state()
    found = bise.pseudo_bias(net, unlabelled, by=by, config=SHORT)
    assert torch.equal(torch.get_rng_state(), random)
    truth, marked = labels(TRAIN).conflicting[:, 0], found.b != found.y
    precision = float((truth & marked).sum() / marked.sum())
    assert precision > 1.5 * float(truth.double().mean()), f"{by}: {precision:.2f}"
    assert found.quality == {"conflicting_share": pytest.approx(float(marked.double().mean()))}
    assert torch.equal(bise.pseudo_bias(net, unlabelled, by=by, config=SHORT).b, found.b)
    told = bise.pseudo_bias(net, TRAIN, by=by, config=SHORT)
    assert torch.equal(told.b, found.b)
    assert told.quality["precision"] == pytest.approx(precision)
    assert told.quality["recall"] == pytest.approx(float((truth & marked).sum() / truth.sum()))


def test_of_several_biases_any_may_conflict():
    y = torch.arange(40) % 2
    b = torch.stack([y, y], 1)
    b[:4, 0], b[2:6, 1] = 1 - y[:4], 1 - y[2:6]  # the first six conflict
    train = Labelled(TensorDataset(torch.zeros(40, 2)), y=y, b=b, aligned=[(0, 0), (1, 1)])
    guessed = torch.where(torch.arange(40) < 3, 1 - y, y)
    quality = pseudo_labels.with_guesses(train, labels(train), guessed).quality
    assert quality == {"conflicting_share": 3 / 40, "recall": pytest.approx(0.5), "precision": 1.0}


def test_what_is_no_source_is_said():
    with pytest.raises(BadInput, match="by='oracle' is unknown; use 'epoch' or"):
        bise.pseudo_bias(net, TRAIN, by="oracle")
    with pytest.raises(BadInput, match='on=… goes with by="epoch"'):
        bise.pseudo_bias(net, TRAIN, by="jtt", on=TRAIN)
    with pytest.raises(BadInput, match="epochs"):
        bise.pseudo_bias(net, TRAIN, epochs=0)
