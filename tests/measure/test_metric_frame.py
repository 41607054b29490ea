"""An audit's MetricFrame is what fairlearn makes of the same answers, and its figures are the audit's."""

from __future__ import annotations

import fairlearn.metrics as fair
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

import bise
from bise import BadInput
from bise.data import Labelled, LabelNames
from conftest import toy, toy_model, trained


@pytest.fixture(scope="module")
def case():
    """(model, data, predictions)"""
    data = toy(classes=2, biases=3, rho=0.8)
    model = trained(toy_model(classes=2), data, epochs=1)
    with torch.no_grad():
        return model, data, model(data.tensors[0]).argmax(1)


def test_cells(case):
    model, data, _ = case
    audit = bise.audit(model, data, probe=False)
    frame = audit.to_metric_frame()
    assert frame.overall["accuracy"] == pytest.approx(audit.accuracy, abs=1e-9)
    assert frame.group_min()["accuracy"] == pytest.approx(audit.worst_group, abs=1e-9)
    assert frame.by_group["accuracy"].mean() == pytest.approx(audit.unbiased, abs=1e-9)
    rows = {f"y={y} b={b}": value for (y, b), value in frame.by_group["accuracy"].items()}
    assert rows == pytest.approx(audit.by_group, abs=1e-9)
    assert dict(zip(rows, frame.by_group["count"].astype(int), strict=True)) == audit.groups.n_by_group


def test_biases(case):
    """The differences of fairlearn are those that the audit names."""
    model, data, predicted = case
    audit = bise.audit(model, data, probe=False)
    frame = audit.to_metric_frame(by="bias")
    (bias,) = audit.biases
    assert frame.difference()["selection_rate"] == pytest.approx(bias.demographic_parity_difference, abs=1e-9)
    odds = max(frame.difference()[["true_positive_rate", "false_positive_rate"]])
    assert odds == pytest.approx(bias.equalized_odds_difference, abs=1e-9)
    by_hand = fair.MetricFrame(
        metrics={"accuracy": accuracy_score},
        y_true=data.y.numpy(),
        y_pred=predicted.numpy(),
        sensitive_features=data.b.numpy(),
    )
    ours = audit.to_metric_frame({"accuracy": accuracy_score}, by="bias")
    assert np.array_equal(ours.by_group.to_numpy(), by_hand.by_group.to_numpy())


def test_names_several_biases_and_samples_without_a_label():
    names = LabelNames(
        target="hired", biases=("sex", "age"), classes=("no", "yes"), bias_classes=(("f", "m"), ("young", "old"))
    )
    data = toy(classes=2, biases=2)
    b = torch.stack([data.b, torch.arange(len(data)) % 2], 1)
    b[:7, 1] = -1
    data = Labelled(data.dataset, y=data.y, b=b, names=names)
    audit = bise.audit(trained(toy_model(classes=2), toy(classes=2, biases=2), epochs=1), data, probe=False)
    frame = audit.to_metric_frame()
    assert frame.by_group.index.names == ["hired", "sex", "age"]
    assert {
        " ".join(f"{name}={value}" for name, value in zip(frame.by_group.index.names, row, strict=True)): found
        for row, found in frame.by_group["accuracy"].dropna().items()
    } == pytest.approx(audit.by_group, abs=1e-9)
    assert frame.by_group["count"].sum() == len(data) - 7
    assert frame.group_min()["accuracy"] == pytest.approx(audit.worst_group, abs=1e-9)


def test_it_is_no_part_of_the_figures(case):
    model, data, _ = case
    audit = bise.audit(model, data, probe=False)
    assert "answers" not in audit.as_dict()
    assert "answers" not in repr(audit)
    with pytest.raises(BadInput, match='by=\'group\' is unknown; use "cell" or "bias"'):
        audit.to_metric_frame(by="group")
