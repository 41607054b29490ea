"""The audit of a model: figures by hand on a model whose answers are known, and against fairlearn."""

from __future__ import annotations

import math

import fairlearn.metrics
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, BiseWarning
from bise.data import Labelled, LabelNames, labels
from conftest import TwoHeads, toy, toy_model, trained


class Lookup(nn.Module):
    """Answers what the input says: x holds the logits."""

    def __init__(self):
        super().__init__()
        self.body, self.act, self.fc = nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.body.weight.copy_(torch.eye(2))
            self.fc.weight.copy_(torch.eye(2))

    def forward(self, x):
        return self.fc(self.act(self.body(x)))


def known():
    """Ten samples: y, b, ŷ. The model answers b: right where y = b."""
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 0, 1])
    b = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 1, 0])
    answer = b.clone()
    answer[3] = 0  # one conflicting sample is right nevertheless
    x = nn.functional.one_hot(answer, 2).float() * 4
    return Labelled(TensorDataset(x), y=y, b=b, aligned={0: 0, 1: 1})


def test_by_hand():
    audit = bise.audit(Lookup(), known())
    assert audit.accuracy == pytest.approx(7 / 10)
    assert audit.by_group == {"y=0 b=0": 1.0, "y=0 b=1": 0.5, "y=1 b=0": 0.0, "y=1 b=1": 1.0}
    assert audit.unbiased == pytest.approx(2.5 / 4)
    assert audit.worst_group == 0
    assert audit.groups.worst_group_name == "y=1 b=0"
    assert (audit.aligned.accuracy, audit.aligned.n) == (1.0, 6)
    assert (audit.conflicting.accuracy, audit.conflicting.n) == (0.25, 4)
    # P(ŷ=1|b=1) = 4/5, P(ŷ=1|b=0) = 0
    assert audit.biases[0].demographic_parity_difference == pytest.approx(0.8)
    assert audit.biases[0].true_positive_gaps == {0: pytest.approx(0.5), 1: pytest.approx(1.0)}
    # ŷ = 1 in four of ten, all with b = 1: I(Ŷ;B) = H(0.4) − ½ H(0.8)
    entropy = lambda p: -p * math.log(p) - (1 - p) * math.log(1 - p)  # noqa: E731
    assert audit.mutual_information[0][0] == pytest.approx(entropy(0.4) - entropy(0.8) / 2)
    # confidence is σ(4) throughout
    assert audit.calibration_error == pytest.approx(abs(0.7 - 1 / (1 + math.exp(-4))), abs=1e-6)
    assert audit.alignment == "given"


def test_fairness_agrees_with_fairlearn():
    data = toy(classes=2, biases=2, rho=0.8)
    model = trained(toy_model(classes=2), data, epochs=1)
    audit = bise.audit(model, data)
    with torch.no_grad():
        predicted = model(data.tensors[0]).argmax(1)
    arguments = (data.y.numpy(), predicted.numpy())
    sensitive = {"sensitive_features": data.b.numpy()}
    assert audit.biases[0].demographic_parity_difference == pytest.approx(
        fairlearn.metrics.demographic_parity_difference(*arguments, **sensitive)
    )
    assert audit.biases[0].equalized_odds_difference == pytest.approx(
        fairlearn.metrics.equalized_odds_difference(*arguments, **sensitive)
    )
    frame = fairlearn.metrics.MetricFrame(
        metrics=fairlearn.metrics.true_positive_rate, y_true=arguments[0], y_pred=arguments[1], **sensitive
    )
    assert audit.biases[0].true_positive_gaps[1] == pytest.approx(frame.difference())


def test_the_probe_reads_what_the_bottleneck_holds():
    data, test = toy(), toy(n=1000, rho=1 / 3, seed=5)
    audit = bise.audit(trained(toy_model(), data), test)
    assert audit.biases[0].probe.accuracy > 0.8
    assert audit.biases[0].probe.chance == pytest.approx(1 / 3, abs=0.02)
    assert str(audit).endswith(", all groups counting evenly")
    blind = trained(toy_model(), data)
    with torch.no_grad():
        blind[0].weight[:, 4:] = 0  # no feature of b gets in
    assert bise.audit(blind, test).biases[0].probe.accuracy < 0.5


def test_the_training_sets_alignment_can_be_handed_over():
    train, test = toy(rho=0.95), toy(rho=1 / 3, seed=1)
    model = trained(toy_model(), train)
    measured, handed = bise.audit(model, test), bise.audit(model, test, aligned=labels(train))
    assert measured.alignment == "measured"
    assert (measured.guessed, handed.guessed) == (("b",), ())
    assert handed.alignment == "given"
    assert handed.aligned.n == int((test.y == test.b).sum())


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, None),
        ({"classes": ("a", "b", "c", "d")}, None),  # a class more that has no sample
        ({"target": "kind"}, None),  # another file may call it otherwise
        (
            {"classes": ("b", "c", "d")},
            "data numbers the labels of y otherwise than train: 0 is 'b' in data and 'a' in",
        ),
        (
            {"bias_classes": (("u", "v"), ("s", "u", "v"))},
            r"labels of \S+ otherwise than train: 0 is 's' .* like=train",
        ),
        (
            {"biases": ("right", "left")},
            "'y' and 'right' and 'left' for the training data's 'y' and 'left' and 'right'",
        ),
        ({"target": "left", "biases": ("y", "right")}, "target first; name them in that order"),
    ],
)
def test_labels_that_are_called_otherwise_than_in_training(named, expected):
    own = {"target": "y", "biases": ("left", "right"), "classes": ("a", "b", "c")}
    own |= {"bias_classes": (("u", "v"), ("u", "v", "w"))}
    y, b = torch.arange(60) % 3, torch.stack([torch.arange(60) % 2, torch.arange(60) // 2 % 3], 1)
    x = TensorDataset(torch.randn(60, 8))
    train = labels(Labelled(x, y=y, b=b, names=LabelNames(**own)))
    sizes = {"classes": len(named.get("classes", own["classes"])), "bias_classes": (2, 3)}
    data = Labelled(x, y=y, b=b, **sizes, names=LabelNames(**own | named))
    if expected is None:
        assert bise.audit(toy_model(classes=sizes["classes"]), data, aligned=train).n == 60
    else:
        with pytest.raises(BadInput, match=expected):
            bise.audit(toy_model(), data, aligned=train)


def test_a_data_set_in_the_place_of_its_cells_is_told_of_without_its_samples():
    with pytest.raises(BadInput, match=r"bise\.data\.labels\(train\)") as told:
        bise.audit(toy_model(), toy(), aligned=toy())
    assert "tensor" not in str(told.value)


def test_an_ambiguous_bottleneck_costs_the_probe_alone():
    data = Labelled(TensorDataset(torch.randn(60, 4)), y=torch.arange(60) % 2, b=torch.arange(60) // 30)
    audit = bise.audit(TwoHeads(), data)
    assert audit.biases[0].probe is None
    assert "ambiguous" in audit.probe_skipped
    assert bise.audit(TwoHeads(), data, bottleneck="left").biases[0].probe is not None


def test_groups_of_one_sample_cost_the_probe_alone():
    some = [0, 1, 2]
    data = Labelled(TensorDataset(toy().tensors[0][:3]), y=some, b=some)
    audit = bise.audit(trained(toy_model(), toy()), data)
    assert audit.biases[0].probe is None
    assert "no group has two samples" in audit.probe_skipped


def test_it_prints_and_serialises():
    audit = bise.audit(Lookup(), known())
    assert "worst group   0.0 %" in str(audit)
    content = audit.as_dict()
    assert {"accuracy", "unbiased", "worst_group", "by_group", "aligned", "biases"} <= set(content)
    assert content["by_group"]["y=1 b=0"] == 0


def test_labels_are_called_by_their_names():
    names = LabelNames(target="income", biases=("sex",), classes=("<=50K", ">50K"), bias_classes=(("Female", "Male"),))
    y, b = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 1])
    data = Labelled(TensorDataset(torch.eye(5)), y=y, b=b, names=names)
    found = bise.audit(nn.Linear(5, 2), data)
    assert set(found.by_group) == {
        "income=<=50K sex=Female",
        "income=<=50K sex=Male",
        "income=>50K sex=Female",
        "income=>50K sex=Male",
    }
    assert found.biases[0].bias == "sex"
    assert "sex: I(Ŷ;B)" in str(found)
    with pytest.raises(BadInput, match="income has 2 names for 3 labels"):
        bise.data.labels(Labelled(TensorDataset(torch.eye(5)), y=y, b=b, classes=3, names=names))


def test_on_a_fair_set_it_says_that_it_guesses_which_samples_conflict():
    train, fair = toy(rho=0.95), toy(rho=1 / 3, seed=1)
    said = "which samples are aligned and which conflict is a guess: in these data the target goes with b no more than"
    with pytest.warns(BiseWarning, match=said):
        found = bise.audit(toy_model(), fair, probe=False)
    assert said in str(found)
    assert "is a guess" not in str(bise.audit(toy_model(), fair, aligned=labels(train), probe=False))
    assert "is a guess" not in str(bise.audit(toy_model(), train, probe=False))  # its own data say it
