"""Where a group stands in the heat map, for every kind of group."""

from __future__ import annotations

from html.parser import HTMLParser

from bise.reporting.facts import Facts
from bise.reporting.matrix import behind, layout, matrix
from bise.reporting.words import cell_of, group_text
from reporting.conftest import page_facts


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
    assert cell_of(facts(target="y", biases=["b"]), "y=1 b=2") is None, "labels 1 and 2, whatever their numbers are"


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


def test_what_colours_tell_is_in_words_and_what_tooltips_tell_in_a_table():
    known = facts(target="hair", biases=["sex"], aligned=[[0, 1]])
    audit = {
        "by_group": {"y=0 b=0": 0.75, "y=1 b=0": 0.5, "y=1 b=1": None},
        "interval_by_group": {"y=0 b=0": [0.7, 0.8], "y=1 b=0": [0.1, 0.9], "y=1 b=1": [None, None]},
        "n_by_group": {"y=0 b=0": 1200, "y=1 b=0": 19, "y=1 b=1": 0},
    }
    text = matrix(known, "Groups", audit["by_group"], audit, "x")
    assert '>75<span class="said">, sex helps</span></td>' in text
    assert ">50</td>" in text
    assert text.count("no sample</span></td>") == 2, "of the group without, and of the cell that is no group"
    rows = behind(known, "Groups", audit).split("<tr>")[2:]
    assert [[cell.split("</td>")[0] for cell in row.split('<td class="number">')[1:]] for row in rows] == [
        ["1,200", "75.0\u202f%", "70.0 to 80.0"],
        ["19<small>fewer than 20</small>", "50.0\u202f%", "10.0 to 90.0"],
        ["0<small>fewer than 20</small>", "–", "–"],
    ]
    assert "hair 0, sex 0" in rows[0]


def test_very_many_groups_keep_the_page_small():
    values = {f"y={y} b={b}": (y * 100 + b) / 10_000 for y in range(100) for b in range(100)}
    text = matrix(facts(), "Groups", values, {}, "x")
    assert Count(text).cells == 60
    assert "the 60 worst of 10,000 groups" in text
    assert behind(facts(), "Groups", {"by_group": values}).count("<tr>") == 61
    hundred = {name: value for name, value in values.items() if name.endswith(("b=0", "b=1"))}
    assert Count(matrix(facts(), "Groups", hundred, {}, "x")).cells == len(hundred)
