"""The subnetwork: a twin over the model's storage that computes the masked network and nothing else."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bise import BadInput, Subnetwork, fingerprint, load, subnetwork
from bise.network.gates import threshold
from bise.network.outputs import call, class_logits
from bise.network.placement import place
from bise.network.twin import named_tensors, twin
from real_models import MODELS, make
from test_placement import Functional


def random_masks(sub, seed, closed=0.5):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(len(mask), generator=generator) >= closed for name, mask in sub.masks.items()}


def logits(model, x):
    with torch.no_grad():
        return class_logits(call(model, x))


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_zero_change_no_bit(name):
    model, example = make(name)
    sub = Subnetwork(model, place(model, example).sites)
    assert torch.equal(logits(sub, example), logits(model, example))


@pytest.mark.parametrize("name", MODELS)
def test_a_closed_unit_counts_as_zero_and_storage_is_shared(name):
    model, example = make(name)
    sub = Subnetwork(model, place(model, example).sites)
    masked = subnetwork(model, random_masks(sub, 0), example=example)
    assert not torch.equal(logits(masked, example), logits(model, example))
    mine, theirs = named_tensors(masked.network), named_tensors(model)
    assert {n: t.data_ptr() for n, t in mine.items() if n in theirs} == {n: t.data_ptr() for n, t in theirs.items()}


def test_masking_is_multiplication_by_brute_force():
    model, x = make("SimpleConvNet")
    sub = Subnetwork(model, place(model, x).sites)
    masks = random_masks(sub, 3)
    h = x
    with torch.no_grad():
        for block, mask in zip(model.blocks, masks.values(), strict=True):
            h = block(h) * mask.float()[None, :, None, None]
        expected = model.fc(h.mean((2, 3), keepdim=True).flatten(1))
    assert torch.allclose(logits(subnetwork(model, masks, example=x), x), expected, atol=1e-5)


def test_a_gate_behind_a_flattening_closes_the_whole_filter():
    torch.manual_seed(0)
    model, x = Functional().eval(), torch.randn(2, 3, 32, 32)
    masks = {"fc1:in": torch.arange(16) % 2 == 0}
    pruned = copy.deepcopy(model)
    with torch.no_grad():
        pruned.conv2.weight[1::2] = 0
        pruned.conv2.bias[1::2] = 0
    assert torch.allclose(logits(subnetwork(model, masks), x), logits(pruned, x), atol=1e-6)


@given(seed=st.integers(0, 10_000), closed=st.floats(0, 1), width=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_any_mask_on_any_width_equals_zeroed_columns(seed, closed, width):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3)).double()
    mask = torch.rand(width, generator=generator) >= closed
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[2].weight[:, ~mask] = 0
    assert torch.allclose(logits(subnetwork(model, {"1": mask}), x), logits(other, x), atol=1e-12)


def test_masks_without_an_example_wait_for_the_first_input():
    model, x = make("torchvision resnet18")
    masks = random_masks(Subnetwork(model, place(model, x).sites), 1)
    assert torch.equal(logits(subnetwork(model, masks), x), logits(subnetwork(model, masks, example=x), x))


def test_masks_of_named_features_fit_where_whole_filters_would_be_found():
    model, x = Functional().eval(), torch.randn(2, 3, 32, 32)
    kept = torch.arange(400) % 3 > 0
    sub = subnetwork(model, {"fc1:in": kept, "fc2:in": torch.arange(120) > 7}, example=x)
    assert torch.equal(sub.masks["fc1:in"], kept)
    again = subnetwork(model, sub.masks, example=x)
    assert torch.equal(logits(again, x), logits(sub, x))
    with pytest.raises(BadInput, match=r"fc1:in: mask has shape \(7,\) for 16 units"):
        subnetwork(model, {"fc1:in": torch.ones(7)}, example=x)


def test_wrong_masks_are_named():
    model, x = make("SimpleConvNet")
    with pytest.raises(BadInput, match="'nowhere' is no module"):
        subnetwork(model, {"nowhere": [True]})
    with pytest.raises(BadInput, match=r"blocks.0.2: mask has shape \(3,\) for 16 units"):
        subnetwork(model, {"blocks.0.2": [True] * 3}, example=x)
    for odd, said in (
        ("abc", r"is no mask \(abc\)"),
        ([0.3] * 16, "holds 0.3"),
        ([1, 0, 2] + [1] * 13, "holds 2"),
        (torch.full((16,), torch.nan), "holds nan"),
    ):
        with pytest.raises(BadInput, match=rf"that of 'blocks.0.2' {said}; give bool, or 0 and 1, one for each unit"):
            subnetwork(model, {"blocks.0.2": odd})
    assert subnetwork(model, {"blocks.0.2": [0.0, 1] * 8}).units == (8, 16)


def test_thresholds():
    assert threshold(0.5) == 0
    model, x = make("MLP")
    found = place(model, x).sites
    generator = torch.Generator().manual_seed(0)
    scores = {s.name: torch.randn(s.units, generator=generator) for s in found}
    scores[found[0].name][:5] = torch.tensor([0.0, -0.0, 1e-30, -1e-30, -5.0])
    sub = Subnetwork(model, found, scores=scores)
    assert sub.masks[found[0].name][:5].tolist() == [True, True, True, False, False]
    assert sub.at(0).units[0] == 300
    assert sub.at(1).units[0] == 0
    for zeta in (0.3, 0.5, 0.8):
        for name, score in scores.items():  # from the sixth on: σ of −1e-30 rounds to 0.5, which is why m ≥ 0 rules
            assert torch.equal(sub.at(zeta).masks[name][5:], torch.sigmoid(score.double())[5:] >= zeta)
    with pytest.raises(BadInput, match="zeta=1.2"):
        sub.at(1.2)


def test_copies_are_independent():
    model, x = make("timm resnet18")
    sub = Subnetwork(model, place(model, x).sites)
    before = logits(sub, x)
    copied = copy.deepcopy(sub)
    copied.gates[3].mask.zero_()
    assert torch.equal(logits(sub, x), before)
    assert not torch.equal(logits(copied, x), before)
    assert torch.equal(logits(copied.bare(), x), logits(model, x))


def test_training_mode_cannot_reach_the_callers_statistics():
    model, x = make("SimpleConvNet")
    before = fingerprint(model)
    sub = Subnetwork(model, place(model, x).sites)
    sub.train()
    sub(x)
    assert fingerprint(model) == before
    assert torch.equal(logits(sub, x), logits(model, x))


def test_tied_and_weight_normed_weights_survive_the_twin():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].weight = model[0].weight
    model[4] = nn.utils.parametrizations.weight_norm(model[4])
    other = twin(model)
    assert other[2].weight is other[0].weight
    x = torch.randn(3, 4)
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("name", MODELS)
def test_save_and_load(name, tmp_path):
    model, x = make(name)
    sub = subnetwork(model, random_masks(Subnetwork(model, place(model, x).sites), 5), example=x)
    sub.record = {"seconds": float("nan"), "note": "ü"}
    sub.save(tmp_path / "s")
    again = load(tmp_path / "s", model)
    assert torch.equal(logits(again, x), logits(sub, x))
    assert again.record == {"seconds": None, "note": "ü"}
    assert sorted(p.name for p in (tmp_path / "s").iterdir()) == ["subnetwork.json", "subnetwork.safetensors"]


def test_loading_refuses_what_does_not_fit(tmp_path):
    model, x = make("MLP")
    sub = Subnetwork(model, place(model, x).sites)
    sub.save(tmp_path)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.fc.bias[0] += 1
    with pytest.raises(BadInput, match="weights of this MLP are not the ones"):
        load(tmp_path, other)
    with pytest.raises(BadInput, match="has no module hidden.0.1"):
        load(tmp_path, nn.Linear(2, 2))
    with pytest.raises(BadInput, match="does not exist"):
        load(tmp_path / "no", model)
    content = json.loads((tmp_path / "subnetwork.json").read_text())
    (tmp_path / "subnetwork.json").write_text(json.dumps(content | {"schema": 99}))
    with pytest.raises(BadInput, match="schema 99, newer than"):
        load(tmp_path, model)
    (tmp_path / "subnetwork.json").write_text("{")
    with pytest.raises(BadInput, match="can't be read"):
        load(tmp_path, model)
    (tmp_path / "subnetwork.json").write_text(json.dumps(content))
    (tmp_path / "subnetwork.safetensors").write_bytes(b"nonsense")
    with pytest.raises(BadInput, match="no readable safetensors"):
        load(tmp_path, model)
