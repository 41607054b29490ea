"""The curve over thresholds and the choice of samples, against values worked out by hand."""

from __future__ import annotations

import base64
import io
import json
import re

import pytest
import torch

import bise
from bise.data.core.cells import Cells
from bise.data.own.features import NumberColumn
from bise.measure.evidence import answers, choose, figures, kinds, roundest, spread, thresholds
from bise.measure.showing import pixels, png_uri, restored
from bise.network.gates import threshold
from bise.reporting.examples import samples
from reporting.conftest import page_facts, picture_net, pictures

SAMPLE = {"index": 0, "y": 0, "b": [1], "group": "y=0 b=1", "before": 1, "after": 0, "values": {"age": "30"}}


def test_thresholds_give_masks_of_their_own():
    scores = {"a": torch.tensor([-2.0, -0.1, 0.0, 0.3]), "b": torch.tensor([1.0, 1.0, 4.0])}
    flat = torch.cat(list(scores.values())).double()
    cuts = thresholds(scores)
    masks = {tuple((flat >= threshold(zeta)).tolist()) for zeta in cuts}
    assert cuts[0] == 0.0
    assert 0.5 in cuts
    assert len(masks) == len(cuts) == 6, "seven units, two of one score: six masks that keep something"
    assert thresholds({"a": torch.zeros(4)}) == [0.0, 0.5]
    many = thresholds({"a": torch.randn(5000, generator=torch.Generator().manual_seed(0))})
    assert 15 <= len(many) <= 20


def test_the_roundest_number_between():
    assert roundest(0.449, 0.551) == 0.5
    assert roundest(0.31, 0.322) == pytest.approx(0.32)
    assert roundest(0.5, 0.5) is None


def test_figures_by_hand():
    """Cell sizes 4, 1, 1, 2; of the first cell only two are drawn, and one of them is right."""
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    b = torch.tensor([0, 0, 0, 0, 1, 0, 1, 1])
    cells = Cells.of(y, b, aligned=[0, 1])
    index = torch.tensor([0, 1, 4, 5, 6, 7])
    correct = torch.tensor([True, False, False, True, True, True])
    found = figures(cells, index, correct)
    assert found["groups"] == {"y=0 b=0": 0.5, "y=0 b=1": 0.0, "y=1 b=0": 1.0, "y=1 b=1": 1.0}
    assert found["unbiased"] == pytest.approx(2.5 / 4)
    assert found["worst_group"] == 0.0
    assert found["accuracy"] == pytest.approx((4 * 0.5 + 0 + 1 + 2) / 8)
    assert found["aligned"] == pytest.approx((4 * 0.5 + 2) / 6)
    assert found["conflicting"] == pytest.approx(1 / 2)
    # a half and all of the two classes' aligned samples; none and all of those that conflict
    assert found["within"] == pytest.approx({"aligned": (1 / 2 + 1) / 2, "conflicting": (0 + 1) / 2})


def test_a_part_is_drawn_evenly_over_the_cells():
    y = torch.tensor([0] * 90 + [1] * 10)
    cells = Cells.of(y, torch.cat([torch.zeros(85), torch.ones(15)]).long())
    part = spread(cells, 30)
    assert torch.bincount(cells.index[part])[torch.tensor([0, 1, 3])].tolist() == [15, 5, 10]
    assert part.tolist() == sorted(part.tolist())
    assert len(spread(cells, 100)) == 100


def test_what_flipped_comes_first():
    y = torch.zeros(8, dtype=torch.long)
    y[4:] = 1
    cells = Cells.of(y, torch.tensor([0, 1] * 4))
    before = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    after = torch.tensor([0, 0, 1, 1, 1, 1, 1, 0])
    kind = kinds(cells, torch.arange(8), before, after)
    assert kind.tolist() == [3, 0, 1, 2, 3, 0, 3, 2]
    chosen = choose(cells, torch.arange(8), kind, count=8)
    assert set(chosen[:3]) == {1, 2, 5}
    assert len(choose(cells, torch.arange(8), kind, count=4)) <= 4


def test_a_part_stands_for_the_whole_split():
    """90 samples of a cell, of which two of three drawn are broken, and 3 of another, of which two are mended."""
    y = torch.tensor([0] * 93 + [1])
    cells = Cells.of(y, torch.tensor([0] * 90 + [1] * 3 + [0]), aligned=[0, 1])
    index = torch.tensor([0, 1, 2, 90, 91, 92, 93])
    kind = torch.tensor([1, 1, 3, 0, 0, 2, 2])
    assert answers(cells, index, kind) == {"mended": 2, "broken": 60, "wrong": 2, "right": 30}
    found = {"split": "test", "looked_at": 7, "of": 94, "answers": answers(cells, index, kind), "samples": [SAMPLE]}
    text = samples(page_facts({}, samples=found))
    assert "Of 94 samples, about 2 were wrong before and are right now, and about 60 were right and are wrong" in text
    assert "estimated from 7 of them" in text
    all_of_it = samples(page_facts({}, samples=found | {"looked_at": 94}))
    assert (
        "Of 94 samples, 2 were wrong before and are right now, and 60 were right and are wrong now. From" in all_of_it
    )


def test_labels_that_look_like_numbers_of_cells():
    """Columns y and b with the labels 1 and 2: the cell of the numbers (0, 1) is called y=1 b=2."""
    cells = {f"y={y + 1} b={b + 1}": [y, b] for y in range(2) for b in range(2)}
    named = {"target": "y", "biases": ["b"], "class_names": ["1", "2"], "bias_names": [["1", "2"]], "cells": cells}
    shown = [SAMPLE | {"y": y, "b": [1], "group": f"y={y + 1} b=2"} for y in range(2)]
    text = samples(page_facts({"data": named}, samples={"split": "test", "samples": shown}))
    assert re.findall('class="what"><bdi>(.*?)<', text) == ["y 1, b 2", "y 2, b 2"]


def test_flips_of_both_kinds_are_mixed():
    """900 mended and 60 broken samples: a reader of the first 28 sees about two of the first to one of the other."""
    y = torch.arange(1000) % 2
    cells = Cells.of(y, torch.arange(1000) // 2 % 2)
    before, after = 1 - y, y.clone()
    before[900:960], after[900:960] = y[900:960], 1 - y[900:960]
    kind = kinds(cells, torch.arange(1000), before, after)
    first = kind[choose(cells, torch.arange(1000), kind)[:28]].tolist()
    assert 10 <= first.count(0) <= 24
    assert first.count(0) + first.count(1) == 28


def test_the_curve_meets_the_audits(picture_run):
    """All units open is the model, ζ = 0.5 is the subnetwork: the same figures as in the summary."""
    curve = json.loads((picture_run / "thresholds.json").read_text())
    summary = json.loads((picture_run / "summary.json").read_text())
    assert curve["split"] == "test"
    assert curve["samples"] == curve["of"] == 240
    for zeta, name in ((0.0, "vanilla"), (0.5, "subnetwork")):
        (point,) = (p for p in curve["points"] if p["zeta"] == zeta)
        assert point["unbiased"] == pytest.approx(summary[name]["unbiased"])
        assert point["worst_group"] == pytest.approx(summary[name]["worst_group"])
        assert point["conflicting"] == pytest.approx(summary[name]["conflicting"]["accuracy"])
        assert point["groups"] == pytest.approx(summary[name]["by_group"], abs=1e-4)
    for point in curve["points"]:
        sub = bise.load(picture_run / "subnetwork", picture_net()).at(point["zeta"])
        assert sub.units == (point["open"], point["all"])


def test_samples_tell_what_the_networks_say(picture_run):
    found = json.loads((picture_run / "samples.json").read_text())
    data = pictures("test")
    model = picture_net()
    sub = bise.load(picture_run / "subnetwork", model)
    x = data.tensors[0]
    with torch.no_grad():
        before, after = model(x).argmax(1), sub(x).argmax(1)
    assert found["looked_at"] == found["of"] == sum(found["answers"].values()) == 240
    assert found["answers"]["mended"] == int(((before != data.y) & (after == data.y)).sum())
    for sample in found["samples"]:
        i = sample["index"]
        assert (sample["y"], sample["before"], sample["after"]) == (int(data.y[i]), int(before[i]), int(after[i]))
        assert sample["image"].startswith("data:image/png;base64,")


def test_a_png_is_what_went_in():
    from PIL import Image

    image = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    content = base64.b64decode(png_uri(image).partition(",")[2])
    with Image.open(io.BytesIO(content)) as read:
        assert read.size == (7, 5)
        assert list(read.tobytes()) == image.permute(1, 2, 0).flatten().tolist()
    assert pixels(torch.tensor([[-1.0, 1.0]] * 2)).flatten().tolist() == [0, 255, 0, 255]
    assert max(pixels(torch.rand(3, 300, 200)).shape) == 96


@pytest.mark.parametrize(
    ("mean", "scale", "texts"),
    [
        (1055.7969901719903, 7270.901105375836, ["0", "99999", "114", "-7298"]),
        (189745.32966062654, 105630.83911499222, ["1484705", "12285", "1000000"]),  # seven digits
        (87.03309275184276, 402.1146952971397, ["0", "1902.5", "-0.125"]),
        (0.5, 0.25, ["0.1", "0.000001", "0.123456"]),
        (4e8, 3e7, ["412345678", "390000000"]),
        (0.1, 1.0, ["0.1"]),  # a constant column
        (0.0, 1e-9, ["2.5e-09"]),
        (0.0, 1e20, ["1e+20"]),
    ],
)
def test_a_number_is_shown_as_the_file_has_it(mean, scale, texts):
    column = NumberColumn(name="gain", mean=mean, scale=scale, marked=False)
    assert [restored(column, float(row[0])) for row in column(texts)] == texts


def test_digits_that_a_feature_can_not_hold_are_not_made_up():
    """Near 1e9 with a scale of 1e9, neighbouring features are 1e9 · 2⁻²³ ≈ 119 apart: tens can't be told."""
    column = NumberColumn(name="debt", mean=0.0, scale=1e9, marked=False)
    ((value,),) = column(["1000000123"])
    assert restored(column, float(value)) == "1000000100"


def test_rows_of_a_table_are_shown_as_the_file_has_them(table_run):
    found = json.loads((table_run / "samples.json").read_text())
    assert found["split"] == "val"
    for sample in found["samples"]:
        assert set(sample["values"]) == {"age", "city"}
        assert float(sample["values"]["age"]) == int(float(sample["values"]["age"]))
