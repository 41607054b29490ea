"""The page of candidates: pictures, sentences and rows, names that attack it, phone and dark mode."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

from bise.base.files import write_json
from bise.measure.showing import png_uri
from bise.reporting.find_page import find_page
from bise.reporting.find_words import difference, headline
from bise.reporting.writing import write_report
from reporting.conftest import HOSTILE
from reporting.test_report_browser import CHROMIUM, CONTRAST, browser, opened  # noqa: F401

GREY = png_uri(torch.full((1, 4, 4), 128, dtype=torch.uint8))


def summary_of(name="clusters of layer1", groups=("group 1", "group 2")):
    candidate = {
        "name": name,
        "source": "layer",
        "about": "samples that are alike",
        "groups": list(groups),
        "sizes": [[500, 20], [30, 450]],
        "spread": 0.12,
        "difference": 0.4,
        "interval": [0.2, 0.5],
        "where": [0, 0, 1],
        "rates": [0.9, 0.5],
        "shown": True,
        "echo": 0.1,
        "goes_with": {"the target": 0.6, "column colour": 0.05},
        "also": ["column other"],
    }
    chance = candidate | {"name": "by chance", "interval": [0.0, 0.5], "shown": False, "echo": 0.95, "also": []}
    shown = {"index": 3, "group": 1, "y": 0, "answer": 1}
    samples = [
        [shown | {"image": GREY}, shown | {"group": 0, "answer": 0, "image": GREY}],
        [shown | {"text": name}, shown | {"group": 0, "values": {name: name, "age": "3"}}],
    ]
    found = {
        "measured_on": "val",
        "measured": 1000,
        "accuracy": 0.8,
        "looked_at": 8,
        "left_out": [f"{name}: one cloud"],
        "classes": ["cat", name],
        "candidates": [candidate, chance],
    }
    return {"find": found, "target": "kind", "samples": samples, "data": {}, "seconds": 1.0}


def test_words_say_what_was_measured_and_what_chance_may_be():
    found = summary_of()["find"]
    assert headline(found) == "2 candidates; 1 differs by more than chance makes, on 1,000 samples of val"
    sure, chance = found["candidates"]
    said = difference(sure, found["classes"])
    assert said == (
        "Of cat, 90 % are right in “group 1” and 50 % in “group 2”: 40 points, with an interval of 20 to 50."
    )
    assert difference(chance, found["classes"]).endswith("Chance alone may make that.")
    nothing = found | {"candidates": []}
    assert headline(nothing).startswith("No candidate")
    none = found | {"candidates": [chance]}
    assert headline(none) == "1 candidate, and none differs by more than chance may make, on 1,000 samples of val"


def test_the_page_has_each_candidate_and_escapes_what_data_say():
    page = find_page(summary_of(HOSTILE[0], ("a", HOSTILE[0])), "found")
    assert HOSTILE[0] not in page
    assert "<script" not in page
    assert page.count("bise extract … --bias-from found:") == 2
    assert "These groups are nearly the model’s answers" in page
    assert "column colour" not in page, "which says almost nothing of these groups"
    empty = copy.deepcopy(summary_of())
    empty["find"]["candidates"], empty["samples"] = [], []
    assert "No candidate" in find_page(empty, "found")


@pytest.mark.skipif(CHROMIUM is None or shutil.which("chromium") is None, reason="no Chromium is installed")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_everything_can_be_read(width, theme, opened, tmp_path):  # noqa: F811
    write_json(tmp_path / "summary.json", summary_of(HOSTILE[0] + " with a long name" * 5))
    write_report(tmp_path)
    page = opened(tmp_path, width=width, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every((i) => i.complete && i.naturalWidth > 0)")
    seen, bad = page.evaluate(CONTRAST)
    assert seen > 50
    assert bad == []
