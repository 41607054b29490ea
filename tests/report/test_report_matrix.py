"""Where a group stands in the heat map, for every kind of group."""

from __future__ import annotations

from html.parser import HTMLParser

from bise.report.facts import Facts
from bise.report.matrix import layout, matrix
from bise.report.words import cell_of, group_text, headline, warnings


def page_facts(summary, **config) -> Facts:
    empty = {"metrics": [], "thresholds": {}, "samples": {}, "scores": {}, "masks": {}}
    return Facts(folder="run", place="run", summary=summary, config=config, **empty)


def facts(**data) -> Facts:
    return page_facts({"data": data})


class Count(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.cells = 0
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.cells += name == "td" and "data-group" in dict(attributes)


def test_names_of_cells():
    assert cell_of(facts(), "y=3 b=1") == (3, (1,))
    assert cell_of(facts(), "y=3 b=(1, 0)") == (3, (1, 0))
    assert cell_of(facts(), "aligned, conflicting") is None
    named = facts(target="hair", biases=["sex"], class_names=["dark", "blond"], bias_names=[["f", "m"]])
    assert group_text(named, "y=1 b=0") == "hair blond, sex f"
    listed = facts(target="hair", biases=["sex"], class_names=["a b=0", "c"], cells={"hair=a b=0 sex=f": [0, 1]})
    assert cell_of(listed, "hair=a b=0 sex=f") == (0, (1,)), "names may hold anything, so they are looked up"


def test_target_down_and_bias_across_with_gaps():
    found = layout(facts(), ["y=0 b=0", "y=2 b=0", "y=2 b=1"])
    assert (found.rows, found.columns) == (["0", "2"], ["0", "1"])
    assert found.places == {(0, 0): "y=0 b=0", (1, 0): "y=2 b=0", (1, 1): "y=2 b=1"}


def test_two_biases():
    two = facts(biases=["left", "right"])
    found = layout(two, ["y=0 b=(0, 1)", "y=1 b=(1, 1)"])
    assert found.columns == ["0 · 1", "1 · 1"]
    found = layout(two, ["aligned, aligned", "aligned, conflicting", "conflicting, aligned"])
    assert (found.row_title, found.column_title) == ("left", "right")
    assert found.places[(0, 1)] == "aligned, conflicting"


def test_three_biases_are_a_list():
    assert layout(facts(), ["aligned, aligned, aligned"]).columns == ["right"]


def test_very_many_groups_keep_the_page_small():
    values = {f"y={y} b={b}": (y * 100 + b) / 10_000 for y in range(100) for b in range(100)}
    text = matrix(facts(), "Groups", values, {}, "x")
    assert Count(text).cells == 60
    assert "the 60 worst of 10,000 groups" in text
    hundred = {name: value for name, value in values.items() if name.endswith(("b=0", "b=1"))}
    assert Count(matrix(facts(), "Groups", hundred, {}, "x")).cells == len(hundred)


def test_the_headline_is_no_stronger_than_the_figures():
    def audit(aligned, conflicting, spread=0.02):
        def part(value):
            return {"accuracy": value, "interval": [value - spread, value + spread], "n": 100}

        return {"accuracy": 0.5, "unbiased": 0.5, "aligned": part(aligned), "conflicting": part(conflicting)}

    def words(before, after=None, **more):
        summary = {"vanilla": before, "weights": {"before": "a", "after": "a"}, **more}
        if after is not None:
            summary["subnetwork"] = after | {"units": {"open": 3, "all": 4}}
        return headline(page_facts(summary))

    assert "leans on bias" in words(audit(0.9, 0.3))
    assert "no clear lean" in words(audit(0.9, 0.89))
    better = words(audit(0.9, 0.3), audit(0.9, 0.6))
    assert "gets 60\u202f% where bias misleads, with 75\u202f% of the units and not one weight changed" in better
    assert "about as well" in words(audit(0.9, 0.3), audit(0.9, 0.31))
    assert "does better, though so few samples leave doubt: 33\u202f%" in words(audit(0.9, 0.3), audit(0.9, 0.33))
    assert "does worse, though so few samples leave doubt: 27\u202f%" in words(audit(0.9, 0.3), audit(0.9, 0.27))
    assert "does worse" in words(audit(0.9, 0.3), audit(0.9, 0.2))
    assert "not one weight" not in words(audit(0.9, 0.3), audit(0.9, 0.6), weights={"before": "a", "after": "b"})


def test_what_to_mind():
    small = {"count": 2, "of": 9, "fewer_than": 10, "smallest": {"y=0 b=1": 3}}
    pseudo = {"conflicting_share": 0.1, "information": 0.5, "recall": 0.8, "precision": 0.25}
    summary = {
        "data": {"small_cells": small, "without_bias": 5, "train": 50, "pseudo": pseudo},
        "selection": {"kind": "last"},
        "subnetwork": {"shrunk": {"barriers": ["fc: shared"]}},
        "notes": ["no gate for x"],
    }
    found = page_facts(summary, extract={"bn": "all"})
    text = " ".join(warnings(found))
    for words in (
        "chosen without validation data",
        "2 of the 9 training groups",
        "target 0, bias 1 (3)",
        "5 of 50 training samples",
        "find 80\u202f% of the conflicting samples",
        "could not be shrunk",
        "fc: shared",
        "No gate for x.",
        "statistics of its own",
    ):
        assert words in text
