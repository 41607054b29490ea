"""Finetuning with a fixed mask, its dense control, and pseudo labels where b is unknown."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, TrainConfig
from bise.data import Labelled, labels
from conftest import toy, toy_model, trained

QUICK = bise.ExtractConfig(upsilon=2, steps=10, head_epochs=2, head_steps=5, batch_size=60)


@pytest.fixture(scope="module")
def parts():
    train, val, test = toy(seed=0), toy(rho=1 / 3, seed=1), toy(n=1500, rho=1 / 3, seed=2)
    model = trained(toy_model(), train)
    return model, bise.extract(model, train, val=val, config=QUICK), train, val, test


def test_finetuning_gains_keeps_the_mask_and_owns_its_weights(parts, tmp_path):
    model, sub, train, val, test = parts
    before = bise.fingerprint(model), bise.fingerprint(sub)
    tuned = bise.finetune(sub, train, val=val, config=TrainConfig.finetuning(epochs=8, lr=0.02))
    assert (bise.fingerprint(model), bise.fingerprint(sub)) == before
    assert all(torch.equal(tuned.masks[n], sub.masks[n]) for n in sub.masks)
    assert not torch.equal(tuned.network[0].weight, model[0].weight)
    assert bise.audit(tuned, test).conflicting.accuracy > bise.audit(sub, test).conflicting.accuracy + 0.03
    tuned.save(tmp_path)
    again = bise.load(tmp_path, model)
    with torch.no_grad():
        assert torch.equal(again(test.tensors[0]), tuned(test.tensors[0]))


def test_the_same_call_without_a_mask_is_the_dense_control(parts):
    model, sub, train, val, test = parts
    dense = bise.finetune(model, train, val=val, config=TrainConfig.finetuning(epochs=4, lr=0.02))
    assert dense.sites == ()
    assert bise.audit(dense, test).conflicting.accuracy > bise.audit(model, test).conflicting.accuracy + 0.03
    # all gates open is the same as no gate: the two learn the same weights
    opened = bise.finetune(sub.at(0), train, val=val, config=TrainConfig.finetuning(epochs=4, lr=0.02))
    assert torch.equal(dense.network[0].weight, opened.network[0].weight)


@pytest.mark.parametrize("through", ["model", "subnetwork", "file"])
def test_what_the_model_has_frozen_stays(parts, through, tmp_path):
    _, sub, train, _, _ = parts
    model = trained(toy_model(), train)
    model[0].requires_grad_(False)
    start = bise.subnetwork(model, sub.masks)
    if through == "file":
        start.place(train.tensors[0][:4])
        start.save(tmp_path)
        start = bise.load(tmp_path, model)
    tuned = bise.finetune(
        model if through == "model" else start, train, config=TrainConfig.finetuning(epochs=1, lr=0.1)
    )
    changed = [n for n, p in tuned.network.named_parameters() if not torch.equal(p, model.get_parameter(n))]
    assert changed == [name for name, _ in model.named_parameters() if not name.startswith("0.")]


def test_a_model_that_is_frozen_as_a_whole_is_finetuned(parts):
    _, _, train, _, _ = parts
    model = trained(toy_model(), train).requires_grad_(False)
    tuned = bise.finetune(model, train, config=TrainConfig.finetuning(epochs=1, lr=0.1))
    assert not any(torch.equal(p, model.get_parameter(n)) for n, p in tuned.network.named_parameters())
    assert not any(p.requires_grad for p in model.parameters())


def test_the_best_epoch_on_val_is_kept(parts):
    _, sub, train, val, _ = parts
    tuned = bise.finetune(sub, train, val=val, config=TrainConfig.finetuning(epochs=6, lr=0.3, seed=1))
    values = [row["val"]["unbiased"] for row in tuned.record["history"]]
    assert bise.audit(tuned, val).unbiased == pytest.approx(max(values))


@pytest.mark.parametrize("change", [{"weights": "groups"}, {"weights": "paper"}, {"optimizer": "adam"}])
def test_reweighted_finetuning(parts, change):
    model, sub, train, _, test = parts
    tuned = bise.finetune(sub, train, config=TrainConfig(**({"weights": "groups"} | change), epochs=6, lr=5e-3))
    assert tuned.record["selection"]["kind"] == "last"
    assert bise.audit(tuned, test).conflicting.accuracy > bise.audit(model, test).conflicting.accuracy


def test_a_margin_is_logit_adjustment():
    """One step over all samples, against torch's own with the logits raised by hand."""
    y = torch.tensor([0, 0, 0, 1, 1, 0])
    b = torch.tensor([0, 0, 0, 1, 0, 1])
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.arange(6.0).view(2, 3) / 6), model.bias.zero_()
    config = TrainConfig(epochs=1, batch_size=6, lr=0.5, momentum=0, weight_decay=0, margin=0.5)
    tuned = bise.finetune(model, Labelled(TensorDataset(x), y=y, b=b), config=config)
    # b = 0 has y = 0 three times, and 1 once; b = 1 has each once; one is added to each count
    shares = torch.tensor([[4 / 6, 2 / 6], [1 / 2, 1 / 2]])
    logits = model(x) + 0.5 * shares.log()[b]
    torch.nn.functional.cross_entropy(logits, y).backward()
    torch.testing.assert_close(tuned.network.weight, model.weight - 0.5 * model.weight.grad)


def test_a_margin_needs_bias_labels(parts):
    _, sub, train, _, _ = parts
    blind = TensorDataset(train.tensors[0], train.y)
    with pytest.raises(BadInput, match="no bias labels b"):
        bise.finetune(sub, blind, config=TrainConfig(epochs=1, margin=1.0))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"margin": -1.0}, "margin=-1.0 must be a number, 0 or more"),
        ({"optimizer": "lion"}, "optimizer='lion'"),
        ({"epochs": 0}, "epochs=0"),
        ({"sampler": "balanced", "weights": "paper"}, "twice"),
    ],
)
def test_bad_configurations_are_named(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        TrainConfig(**change)


def test_a_diverging_run_says_so(parts):
    _, sub, train, _, _ = parts
    with pytest.raises(BadInput, match="loss became non-finite at epoch"):
        bise.finetune(sub, train, config=TrainConfig.finetuning(epochs=3, lr=1e9))


def test_pseudo_labels_recover_the_bias():
    train = toy(n=2000, rho=0.95)
    pseudo = bise.pseudo_bias(toy_model, train, epochs=1)
    assert 0 < pseudo.quality["conflicting_share"] < 0.5
    assert pseudo.quality["recall"] > 0.5
    assert pseudo.quality["information"] > 0.3
    cells = labels(pseudo)
    assert torch.equal(~cells.aligned[:, 0], pseudo.b != pseudo.y)
    sub = bise.extract(trained(toy_model(), train), pseudo, config=QUICK)
    assert sub.units[1] == 32


def test_pseudo_labels_need_no_bias_labels():
    train = toy(n=500)
    for unlabelled in (Labelled(train.dataset, y=train.y), TensorDataset(train.tensors[0], train.y)):
        pseudo = bise.pseudo_bias(toy_model, unlabelled)
        assert set(pseudo.quality) == {"conflicting_share"}
        assert len(labels(pseudo)) == 500


def test_pseudo_labels_without_an_error_are_refused():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    x = torch.randn(300, 8, generator=generator) * 0.01
    x[torch.arange(300), y] += 5
    data = Labelled(TensorDataset(x), y=y)
    with pytest.raises(BadInput, match="errs on no training sample"):
        bise.pseudo_bias(toy_model, data, epochs=20)
