"""What the page says: the headline, what to mind, what was checked; each no stronger than the figures."""

from __future__ import annotations

import re

import torch

from bise.data.core.cells import Cells
from bise.data.facts import facts_of
from bise.measure.standing import HARDLY
from bise.reporting.assurance import verified, words_used
from bise.reporting.fairness import fairness
from bise.reporting.leaning import headline
from bise.reporting.page import page
from bise.reporting.sections import accuracy
from bise.reporting.words import warnings
from reporting.conftest import page_facts


def mean_interval(groups):
    """Of the unweighted mean of groups (accuracy, n)."""
    mean = sum(p for p, _ in groups) / len(groups)
    half = 1.96 * sum(p * (1 - p) / n for p, n in groups) ** 0.5 / len(groups)
    return [mean - half, mean + half]


def audit(accuracies, n=400):
    """Of cells {(y, b): accuracy} with n samples each, or {(y, b): (accuracy, n)}."""
    cells = {f"y={y} b={b}": v if isinstance(v, tuple) else (v, n) for (y, b), v in accuracies.items()}
    worst = min(cells, key=lambda name: cells[name][0])
    return {
        "accuracy": 0.5,
        "unbiased": sum(value for value, _ in cells.values()) / len(cells),
        "worst_group": cells[worst][0],
        "worst_group_name": worst,
        "interval": {"accuracy": [0.4, 0.6], "worst_group": [0.4, 0.6], "unbiased": mean_interval(cells.values())},
        "by_group": {name: value for name, (value, _) in cells.items()},
        "n_by_group": {name: n for name, (_, n) in cells.items()},
        "aligned": {"accuracy": 0.5, "interval": [0.4, 0.6], "n": 100},
        "conflicting": {"accuracy": 0.5, "interval": [0.4, 0.6], "n": 100},
        "n": sum(n for _, n in cells.values()),
    }


def two_classes(aligned, conflicting):
    """Two targets with two biases, b = y the aligned one."""
    return audit({(0, 0): aligned, (1, 1): aligned, (0, 1): conflicting, (1, 0): conflicting})


def said(before, after=None, **more):
    summary = {"vanilla": before, "weights": {"before": "a", "after": "a"}, "data": {"aligned": [[0, 1]]}, **more}
    if after is not None:
        summary["subnetwork"] = after | {"units": {"open": 3, "all": 4}}
    return headline(page_facts(summary))


def test_the_headline_is_no_stronger_than_the_figures():
    start = two_classes(0.9, 0.3)
    assert "leans on bias: 30\u202f% right where bias misleads it, 90\u202f% where it helps, each target" in said(start)
    assert "no clear lean" in said(two_classes(0.9, 0.89))
    hardly = said(two_classes(0.55, 0.54) | {"standing": {"state": HARDLY}})
    assert "is hardly better than guessing, so that it can’t show a lean on bias: 54\u202f% right" in hardly
    better = said(start, two_classes(0.9, 0.6))
    assert "gets 60\u202f% where bias misleads, with 75\u202f% of the units and not one weight changed" in better
    assert "about as well" in said(start, two_classes(0.9, 0.31))
    doubt = "though so few samples leave doubt"
    assert f"does better, {doubt}: 33\u202f%" in said(start, two_classes(0.9, 0.33))
    assert f"does worse, {doubt}: 27\u202f%" in said(start, two_classes(0.9, 0.27))
    assert "does worse: 20" in said(start, two_classes(0.9, 0.2))
    assert "not one weight" not in said(start, two_classes(0.9, 0.6), weights={"before": "a", "after": "b"})


def test_a_gain_that_was_paid_for_elsewhere_is_told_with_its_price():
    start, price = (
        two_classes(0.99, 0.01),
        "but only 48\u202f% where bias helps, 99\u202f% before, and 48\u202f% as the mean",
    )
    assert f"gets 48\u202f% where bias misleads, {price} of all groups, 50\u202f% before, with" in said(
        start, two_classes(0.48, 0.48)
    )
    assert "but only" not in said(start, two_classes(0.8, 0.6)), "all groups together gained"
    assert "but only" not in said(two_classes(0.6, 0.3), two_classes(0.59, 0.4)), "nothing sure was lost"


def test_a_network_that_may_as_well_give_one_answer_is_told_of():
    """Two classes with two groups each, so that one answer is right in half of them; with one class it always is."""
    chance = "The subnetwork is right on 48\u202f% as the mean of all groups, and one that gives every sample the same"

    def told(after):
        summary = {"vanilla": two_classes(0.9, 0.3), "subnetwork": after, "data": {"aligned": [[0, 1]]}}
        return " ".join(warnings(page_facts(summary)))

    assert f"{chance} answer on 50\u202f%" in told(two_classes(0.48, 0.48))
    assert "same answer" not in told(two_classes(0.6, 0.6))
    assert "same answer" not in told(audit({(0, 0): 0.9, (0, 1): 0.9}))


def test_a_model_that_can_not_see_the_bias_does_not_lean():
    """Both groups of a class are alike, but the class that is known better has most of the aligned samples."""
    blind = audit({(0, 0): (0.5, 100), (0, 1): (0.5, 900), (1, 1): (0.9, 900), (1, 0): (0.9, 100)})
    # over samples: aligned (50 + 810) / 1000 = 86 %, conflicting (450 + 90) / 1000 = 54 %
    assert "no clear lean on bias: 70\u202f% right where it might mislead, 70\u202f% where it helps" in said(blind)
    after = audit({(0, 0): (0.8, 100), (0, 1): (0.4, 900), (1, 1): (0.9, 900), (1, 0): (0.9, 100)})
    assert "does worse, though" in said(blind, after), "65 % as the mean over the classes, 70 % before"


def test_the_tiles_have_the_headlines_figures():
    """Over samples both are 50 % here; within the classes 30 and 90."""
    text = page(page_facts({"vanilla": two_classes(0.9, 0.3), "data": {"aligned": [[0, 1]]}}))
    tiles = re.findall('<p class="label">(.*?)</p>.*?class="from">(.*?)<', text)
    assert ("Where bias misleads, each target counting evenly", "30\u202f%") in tiles
    assert ("Where bias helps, each target counting evenly", "90\u202f%") in tiles
    apart = page(page_facts({"vanilla": audit({(0, 0): 0.9, (1, 0): 0.3}), "data": {"aligned": [[0, 1]]}}))
    assert ("Where bias misleads", "50\u202f%") in re.findall('<p class="label">(.*?)</p>.*?class="from">(.*?)<', apart)


def test_the_gap_has_the_interval_of_a_difference():
    """Two classes of 96 aligned and 96 conflicting samples, half of the latter right.

    The variance p̃(1 − p̃)/n for a half is 0.25/96 = 0.0026, so that the difference of the means has a standard error of
    √(2 · 0.0026/2) = 0.051, and 1.96 of them are 10 points.
    """
    assert "no clear lean" in said(audit({(0, 0): 55 / 96, (1, 1): 55 / 96, (0, 1): 0.5, (1, 0): 0.5}, n=96))
    assert "leans" in said(audit({(0, 0): 60 / 96, (1, 1): 60 / 96, (0, 1): 0.5, (1, 0): 0.5}, n=96))


def test_a_lean_that_no_class_can_tell_is_not_told():
    apart = audit({(0, 0): 0.9, (1, 0): 0.3})
    assert "Whether this model leans on bias can’t be told: no target has test samples" in said(apart)
    assert "right on 60\u202f% as the mean of all groups" in said(apart)
    assert "does about as well: 61\u202f% as the mean of all groups" in said(apart, audit({(0, 0): 0.9, (1, 0): 0.32}))
    part = audit({(0, 0): 0.9, (0, 1): 0.3, (1, 0): 0.1})
    assert "30\u202f% right where bias misleads it, 90\u202f% where it helps, each target with both kinds" in said(part)


def test_groups_that_the_summary_does_not_list():
    named = {"hair=blond sex=f": 0.9, "hair=blond sex=m": 0.3}
    found = two_classes(0.9, 0.3) | {"by_group": named, "n_by_group": dict.fromkeys(named, 50)}
    assert "can’t be told: the summary doesn’t list so many groups" in said(found)
    assert "can’t be told: the summary doesn’t say which bias helps" in said(two_classes(0.9, 0.3), data={})


def test_groups_by_alignment_are_means_over_classes_already():
    values = {"aligned, aligned": 0.9, "aligned, conflicting": 0.5, "conflicting, conflicting": 0.3}
    found = {"unbiased": 0.5, "by_group": values, "n_by_group": dict.fromkeys(values, 100)}
    near = {name: [value - 0.05, value + 0.05] for name, value in values.items()}
    two = {"aligned": [[0, 1], [1, 0]], "biases": ["left", "right"]}
    text = said(found | {"interval_by_group": near}, data=two)
    assert "leans on left and right: 40\u202f% right where a bias misleads it, 90\u202f% where every bias helps" in text
    alone = {"by_group": {"aligned, aligned": 0.9}, "interval_by_group": near}
    assert "can’t be told: no target has test samples where every bias helps and others" in said(
        found | alone, data=two
    )
    far = {name: [value - 0.5, value + 0.5] for name, value in values.items()}
    assert "no clear lean" in said(found | {"interval_by_group": far}, data=two)


def test_aligned_is_what_is_over_represented_and_not_what_is_usual():
    """Of the rich 5 % are Asian, of all 3 %; nearly all are white, and so is the usual one of either income."""
    one = {"aligned": [[0, 1]], "target": "income", "biases": ["race"], "rho": [0.016]}
    found = two_classes(0.9, 0.3)

    def text(data):
        return page(page_facts({"vanilla": found, "data": data}))

    goes = "that goes with their income: the one most over-represented there"
    assert f"In training, 1.6\u202f% of the samples had the race {goes}" in text(one)
    two = one | {"aligned": [[0, 1], [0, 1]], "biases": ["race", "sex"], "rho": [0.016, 0.5]}
    assert f"1.6\u202f% of the samples had the race and 50.0\u202f% the sex {goes}" in text(two)
    assert "usual" not in text(one)


def checked(splits, selection=None):
    """{title: (mark, text)} of what was promised, for a run with these fingerprints of its splits."""
    summary = {"vanilla": two_classes(0.9, 0.3), "selection": selection or {"kind": "best", "on": "val, unbiased"}}
    facts = page_facts(summary, config={"sha256": splits}, masks={"fc": [True]})
    found = re.findall('<li class="([a-z]+)">.*?<h3>(.*?)</h3><p>(.*?)</p>', re.sub("</?bdi>", "", verified(facts)))
    return {title: (mark, text) for mark, title, text in found}


def test_splits_that_are_the_same_break_the_promise():
    judged = "Judged on samples that were not trained on"
    selected = "The mask was selected on data that are neither training nor test data"
    apart = checked({"train": "a", "val": "b", "test": "c"})
    for title in (judged, selected):
        assert apart[title][0] == "open", "different fingerprints don't show that no sample is in both"
        assert "not compared sample by sample" in apart[title][1]
    assert checked({"train": None, "val": None, "test": None})[judged][0] == "open"
    leaked = checked({"train": "a", "val": "b", "test": "a"})
    assert leaked[judged][0] == "failed"
    assert "The splits test and train have the same fingerprint" in leaked[judged][1]
    assert leaked[selected][0] == "open"
    for splits, other in (({"train": "a", "val": "c", "test": "c"}, "test"), ({"train": "a", "val": "a"}, "train")):
        mark, text = checked(splits)[selected]
        assert mark == "failed"
        assert f"The splits val and {other} have the same fingerprint" in text


def test_the_interval_of_the_worst_group_is_no_more_than_that():
    found = page_facts({"vanilla": two_classes(0.9, 0.3), "data": {"aligned": [[0, 1]]}})
    assert "the lowest of many figures is too low by chance" in accuracy(found)
    assert "of this group by itself: the lowest of many figures is too low by chance" in words_used(found)
    assert "Worst group, with the interval of that group by itself" in page(found)


def test_why_the_mask_is_the_last_one():
    for selection, why in (
        ({"kind": "last"}, "There was no validation data to select by."),
        ({"kind": "last", "val": False}, "There was no validation data to select by."),
        ({"kind": "last", "val": True}, "None was judged on the validation data before the run ended."),
    ):
        assert checked({}, selection)["The mask is the last one"][1].startswith(why)
    (text,) = warnings(page_facts({"selection": {"kind": "last", "val": True}}))
    assert "before any was judged on the validation data" in text


def test_the_page_says_how_the_probe_is_weighed():
    probed = {"information_predicted": 0.1, "information_actual": 0.2, "probe": {"accuracy": 0.8, "chance": 0.5}}
    text = fairness(page_facts({"vanilla": two_classes(0.9, 0.3) | {"biases": [probed]}}))
    assert "80\u202f%<small>constant: 50\u202f%</small>" in text
    assert "reads what the network makes of a sample before it answers; all groups count evenly" in text


def test_groups_without_a_sample_are_told_of_too():
    """y 0 with b 0, 1 and y 1 with b 1, 2, of three b each: of the four cells that conflict, two are empty."""
    y, b = (
        torch.tensor([0] * 20 + [0] * 3 + [1] * 20 + [1] * 12),
        torch.tensor([0] * 20 + [1] * 3 + [1] * 20 + [2] * 12),
    )
    data = facts_of(Cells.of(y, b, bias_classes=[3], aligned=[0, 1]), None)
    assert data["small_cells"] == {"fewer_than": 10, "count": 1, "of": 2, "none": 2, "smallest": {"y=0 b=1": 3}}
    (text,) = warnings(page_facts({"data": data}))
    assert "Of the 4 training groups in which bias misleads, 1 has fewer than 10 samples and 2 have none" in text
    (text,) = warnings(page_facts({"data": {"small_cells": data["small_cells"] | {"count": 0, "smallest": {}}}}))
    assert text == "Of the 4 training groups in which bias misleads, 2 have none, so little could be learned from them."


def test_what_to_mind():
    small = {"count": 2, "of": 9, "fewer_than": 10, "smallest": {"y=0 b=1": 3}}
    pseudo = {"conflicting_share": 0.1, "information": 0.5, "recall": 0.8, "precision": 0.25}
    summary = {
        "data": {"small_cells": small, "without_bias": 5, "train": 50, "pseudo": pseudo},
        "selection": {"kind": "last"},
        "subnetwork": {"shrunk": {"barriers": ["fc: shared"]}},
        "notes": ["no gate for x"],
    }
    found = page_facts(summary, config={"extract": {"bn": "all"}})
    text = " ".join(warnings(found))
    for words in (
        "chosen without validation data",
        "Of the 9 training groups in which bias misleads, 2 have fewer than 10 samples, so little",
        "target 0, bias 1 (3)",
        "5 of 50 training samples",
        "find 80\u202f% of the conflicting samples",
        "could not be shrunk",
        "fc: shared",
        "No gate for x.",
        "statistics of its own",
    ):
        assert words in text
