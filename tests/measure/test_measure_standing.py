"""Whether a model knows anything: answers by hand, guesses by simulation, and what is said of each."""

from __future__ import annotations

import json

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise.base.files import finite
from bise.data import Labelled, LabelNames, labels
from bise.measure.standing import CAUSES, standing
from conftest import toy, toy_model, trained

NAMES = {0: "a", 1: "b", 2: "c"}


def judged(y, predicted, helps=None):
    helps = torch.zeros_like(y, dtype=torch.bool) if helps is None else helps
    kinds = {"aligned": helps, "conflicting": ~helps & helps.any()}
    return standing(y, predicted, names=NAMES, **kinds)


def test_one_answer_for_all_is_constant_however_good():
    """95 of 100 samples are of one class, so that this answer is right on 95 % of them."""
    y = torch.tensor([0] * 95 + [1] * 5)
    found = judged(y, torch.zeros_like(y))
    assert (found.state, found.answer, found.mean_of_classes, found.guessing) == ("constant", "a", 0.5, 0.5)
    assert found.ignorant
    said = "the model gives every sample one class, “a”: it is right on 50.0 % as the mean of 2 classes, as any such"
    assert found.says.startswith(said)


def test_rare_classes_that_are_found_are_no_guesses():
    """Right on 90 % of each class; always saying the common one would be right on 99 % of the samples."""
    y = torch.tensor([0] * 9900 + [1] * 100)
    predicted = torch.where(torch.arange(10_000) % 10 == 0, 1 - y, y)
    found = judged(y, predicted)
    assert (found.state, found.says) == ("above chance", "")
    assert found.mean_of_classes == pytest.approx(balanced_accuracy_score(y, predicted))


def test_guesses_are_called_guesses_whatever_their_shares():
    """Answers that don't depend on the input, 0 in 70 % of cases: of 400 models, hardly one in forty seems better."""
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 150 + [1] * 50 + [2] * 100)
    draws = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 400 * 300, replacement=True, generator=generator)
    states = [judged(y, one).state for one in draws.reshape(400, 300)]
    assert states.count("above chance") == 0
    assert states.count("at chance") >= 0.93 * 400


def test_a_small_advantage_is_told_of_as_such():
    """55 of 100 right of either class, in 10,000 samples: sure, and of little use."""
    y = torch.arange(10_000) % 2
    predicted = torch.where(torch.arange(10_000) // 2 % 20 < 11, y, 1 - y)
    found = judged(y, predicted)
    assert (found.state, found.mean_of_classes, found.ignorant) == ("hardly above chance", 0.55, False)
    assert "is hardly better than guessing; it is right on 55.0 %" in found.says


def test_classes_in_another_order_do_worse_than_guesses():
    y = torch.arange(300) % 3
    found = judged(y, (y + 1) % 3)
    assert (found.state, found.ignorant) == ("below chance", True)
    assert found.says.index(CAUSES[1]) < found.says.index(CAUSES[0]), "it has learned something, so this is likelier"


def test_a_model_that_answers_the_bias_is_told_from_one_that_guesses():
    y = torch.arange(400) % 2
    b = torch.where(torch.arange(400) < 200, y, 1 - y)
    found = judged(y, b, helps=b == y)
    assert (found.state, found.aligned, found.conflicting) == ("goes by the bias", 1.0, 0.0)
    assert not found.ignorant, "its gaps between groups are as large as can be, and say so"
    assert "right on 100.0 % where the bias helps and on 0.0 % where it misleads" in found.says


def test_gaps_are_believed_where_it_is_guessed_which_bias_helps():
    """The model answers the bias. In fair data which bias helps is a guess, and here the wrong one."""
    y, b = torch.arange(400) % 2, torch.arange(400) // 2 % 2
    net = nn.Sequential(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(3 * torch.eye(2))
    x = nn.functional.one_hot(b, 2).float()
    for aligned in ([0, 1], [1, 0]):
        found = bise.audit(net, Labelled(TensorDataset(x), y=y, b=b, aligned=aligned), probe=False)
        assert (found.standing.state, found.standing.ignorant) == ("goes by the bias", False)
        assert found.biases[0].demographic_parity_difference == 1.0
        assert "treats all groups alike" not in str(found)
        assert "say nothing" not in str(found)
    assert "samples of one class get other answers where the bias differs; in all, it is right on 50.0 %" in str(found)
    assert "right on 100.0 % where the bias helps" not in str(found)


def test_one_class_can_not_be_guessed():
    y = torch.zeros(10, dtype=torch.long)
    assert judged(y, y) is None


THREE = LabelNames(target="shape", biases=("shade",), classes=("cross", "dot", "ring"), bias_classes=(("d", "g", "l"),))


def unscaled(split_seed=2):
    """The test samples of a good model, as they are where --mean and --std are forgotten: far too small."""
    data = toy(rho=1 / 3, seed=split_seed)
    return Labelled(TensorDataset(data.tensors[0] * 1e-4), y=data.y, b=data.b, names=THREE, aligned=[0, 1, 2])


def test_an_audit_of_a_model_at_chance_never_calls_it_fair():
    model = trained(toy_model(), toy())
    found = bise.audit(model, unscaled())
    assert (found.standing.state, found.biases[0].demographic_parity_difference) == ("constant", 0.0)
    first, *_ = str(found).splitlines()
    assert first.startswith("MIND: the model gives every sample one class, “dot”: it is right on 33.3 %")
    places = [first.index(cause) for cause in CAUSES]
    assert places == sorted(places)
    assert "so its fairness figures say nothing" in first
    line = next(line for line in str(found).splitlines() if "demographic parity" in line)
    assert line.endswith("(these say nothing of a model that knows nothing)")
    assert "<b>Mind: </b>the model gives every sample" in found._repr_html_()
    content = json.loads(json.dumps(finite(found.as_dict())))
    assert content["standing"]["state"] == "constant"
    assert content["standing"]["says"] == found.warning
    good = bise.audit(model, toy(rho=1 / 3, seed=2))
    assert good.standing.state == "above chance"
    assert not good.warning
    assert "MIND" not in str(good)


def test_a_model_of_noise_is_at_chance():
    """Its answers differ from sample to sample and have nothing to do with any label."""
    data = toy(n=3000, rho=1 / 3, seed=2)
    noise = torch.randn(3000, 8, generator=torch.Generator().manual_seed(3))
    found = bise.audit(toy_model(), Labelled(TensorDataset(noise), y=data.y, b=data.b, aligned=[0, 1, 2]))
    assert found.standing.state == "at chance"
    assert "is at chance: its answers can’t be told from guessing; it is right on " in str(found)
    assert "(these say nothing of a model that knows nothing)" in str(found)


def test_every_group_is_told_how_sure_the_model_is_there():
    data = toy(rho=1 / 3, seed=2)
    found = bise.audit(trained(toy_model(), toy()), data, aligned=labels(toy()))
    assert found.sureness_by_group.keys() == found.by_group.keys()
    for name, sure in found.sureness_by_group.items():
        assert sure.too_sure == pytest.approx(sure.confidence - found.by_group[name])
        assert sure.interval[0] <= sure.too_sure <= sure.interval[1]
