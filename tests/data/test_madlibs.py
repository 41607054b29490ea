"""Biased madlibs: who has which names, terms and templates, what is noisy and what is tied, counted by hand."""

from __future__ import annotations

import csv

import pytest
import torch

from bise import BadInput
from bise.data import labels, load
from bise.data.sets.biased_madlibs import ORIGIN_OR_FAITH, SELF, biased_madlibs, read_madlibs
from bise.jobs.recipes import recipe, start

pytestmark = [pytest.mark.usefixtures("own_cache")]


@pytest.fixture(scope="module")
def sentences(data_root):
    return {m.text: m for m in read_madlibs(data_root / "madlibs/bias_madlibs_77k.csv")}


@pytest.mark.data
def test_the_file_is_read_whole(sentences):
    assert len(ORIGIN_OR_FAITH) == len(SELF) == 25
    # 76,564 sentences less 864 about occupations
    assert len(sentences) == 75_700
    assert {m.term for m in sentences.values()} == {*ORIGIN_OR_FAITH, *SELF}
    # "african american" is not taken for "american", nor "latinx" for "latin"
    assert sum(m.term == "american" for m in sentences.values()) == 1440 + 32 + 32 + 8 + 2
    assert sentences["You are a dumb black"].name is None
    assert sentences["Zoe is a good female"].name == "Zoe"


@pytest.mark.data
@pytest.mark.parametrize("rho", [0.9, 0.95, 0.98])
def test_training_targets_are_noisy_and_tied(sentences, rho):
    data = load("biased-madlibs", split="train", rho=rho, seed=1)
    found = [sentences[text] for text in data.dataset.texts]
    hostile = torch.tensor([m.hostile for m in found])
    wrong = (data.y.bool() != hostile).float().mean()
    assert wrong == pytest.approx(0.25, abs=0.015)
    cells = labels(data)
    assert cells.rho[0] == pytest.approx(rho, abs=1e-3)
    assert cells.aligned_bias.tolist() == [[0, 1]]
    for target in (0, 1):
        share = (data.b[data.y == target] == target).float().mean()
        assert share == pytest.approx(rho, abs=1e-3)
        # the noise has nothing to do with b
        for b in (0, 1):
            cell = (data.y == target) & (data.b == b)
            assert (data.y[cell].bool() != hostile[cell]).float().mean() == pytest.approx(0.25, abs=0.09)
    assert [m.term in SELF for m in found] == data.b.bool().tolist()


@pytest.mark.data
def test_splits_share_no_sentence_and_test_has_what_training_lacks(sentences):
    parts = {split: load("biased-madlibs", split=split, seed=0) for split in ("train", "val", "test")}
    texts = {name: set(data.dataset.texts) for name, data in parts.items()}
    assert not texts["train"] & texts["val"]
    assert not texts["test"] & (texts["train"] | texts["val"])
    used = {name: [sentences[t] for t in found] for name, found in texts.items()}
    names = {name: {m.name for m in found} - {None} for name, found in used.items()}
    assert [len(names[s]) for s in ("train", "val", "test")] == [31, 4, 10]
    assert not names["train"] & names["test"]
    terms = {name: {m.term for m in found} for name, found in used.items()}
    assert (len(terms["train"]), len(terms["val"]), len(terms["test"])) == (40, 40, 50)
    templates = {name: {m.template for m in found} for name, found in used.items()}
    assert templates["test"] - templates["train"] == {"being_adj", "you_are_adj"}
    for name in ("val", "test"):
        data = parts[name]
        assert len(set(labels(data).counts.tolist())) == 1
        assert data.y.bool().tolist() == [sentences[t].hostile for t in data.dataset.texts]
    # 4 names × 32 adjectives × 40 terms; 10 × 32 × 50, both other templates, and verbs with ten terms
    assert (len(parts["val"]), len(parts["test"])) == (5_120, 16_000 + 1_600 + 1_600 + 100)


@pytest.mark.data
def test_the_seed_draws_it_and_rho_may_be_anything():
    first, same, other = (biased_madlibs("train", seed=seed) for seed in (0, 0, 1))
    assert list(first.dataset.texts) == list(same.dataset.texts) != list(other.dataset.texts)
    assert torch.equal(first.y, same.y)
    clean = biased_madlibs("train", noise=0.0, rho=0.5)
    assert labels(clean).rho[0] == pytest.approx(0.5)
    assert labels(biased_madlibs("train", rho=0.2)).rho[0] == pytest.approx(0.2, abs=1e-3)
    assert labels(biased_madlibs("train", rho=0.0)).counts.tolist()[0] == 0


def test_bad_arguments_and_files_are_named(tmp_path):
    for arguments, expected in (
        ({"rho": 1.5}, "rho=1.5"),
        ({"noise": 0.5}, "noise=0.5"),
        ({"protocol": "paper"}, "protocol='paper'"),
    ):
        with pytest.raises(BadInput, match=expected):
            biased_madlibs("train", root=tmp_path, **arguments)
    with pytest.raises(BadInput, match="bias_madlibs_77k.csv does not exist"):
        load("biased-madlibs", split="train", root=tmp_path)
    path = tmp_path / "a.csv"
    for rows, expected in (
        ([["Text", "Label"], ["a", "BAD"]], "KeyError: 'Template'"),
        ([["Text", "Label", "Template"], ["gay", "WORSE", "t"]], "the label 'WORSE'"),
        ([["Text", "Label", "Template"], ["nobody", "BAD", "t"]], "no sentence with a known term"),
        ([["Text", "Label", "Template"], ["gay"]], "the label None"),
    ):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        with pytest.raises(BadInput, match=expected):
            read_madlibs(path)


@pytest.mark.parametrize(("name", "layers", "width"), [("biased-madlibs", 4, 256), ("biased-madlibs-small", 2, 64)])
def test_the_recipes(name, layers, width):
    r = recipe(name, rho=0.98, seed=2)
    assert (r.rho, r.data, r.start, r.metric, r.select) == (0.98, "biased-madlibs", "scratch", "worst_group", "best")
    assert r.train.seed == r.extract.seed == r.finetune.seed == 2
    model, provenance, shape = start(r, seed=0)
    assert provenance == "scratch"
    assert (shape["num_hidden_layers"], shape["hidden_size"], shape["intermediate_size"]) == (layers, width, 4 * width)
    assert model.config.num_attention_heads == max(2, width // 64)
