"""What studies read off networks: sizes, masks by rank, a probe, statistics of BatchNorm, tables; by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput
from bise.data import Labelled, labels
from bise.engine.inputs import Inputs
from bise.jobs.recipes import recipe
from bise.network.architectures.small import SimpleConvNet
from bise.network.placement import place
from bise.network.size import size
from bise.network.subnetwork import Subnetwork
from bise.studies.counting import count
from bise.studies.job import Job
from bise.studies.mask_counts import PAPER as COUNTS
from bise.studies.measures import PROBE, Sizes, bias_probe, magnitudes, points, ranked_masks
from bise.studies.runner import Runner, few, parted
from bise.studies.scale import SCALES
from bise.studies.tables import Column, Line, footnote, spread, table
from conftest import toy, toy_model

CPU = torch.device("cpu")


def pictures(n: int = 24) -> Labelled:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, 8, 8, generator=generator)
    y = torch.arange(n) % 2
    return Labelled(TensorDataset(x), y=y, b=(y + (torch.arange(n) % 5 == 0).long()) % 2)


def test_sizes_are_those_of_the_shrunk_network():
    model, inputs = SimpleConvNet(2, widths=(4, 6, 8), kernel=3).eval(), Inputs(pictures(), CPU)
    sites = place(model, inputs.example()).sites
    sizes = Sizes(model, sites, inputs)
    masks = {site.name: torch.arange(site.units) % 3 > 0 for site in sites}
    found = sizes(masks)
    small = bise.subnetwork(model, masks, example=inputs.example()).shrink(inputs.example(8))
    assert found["parameters"] == sum(p.numel() for p in small.parameters())
    assert found["macs"] == size(small, inputs.example(1)).macs
    # 2 of 4, 4 of 6 and 5 of 8 filters are left; 64 places, 9 weights a filter and channel
    assert found["macs"] == 64 * 9 * (3 * 2 + 2 * 4 + 4 * 5) + 5 * 2
    assert found["sparsity"]["units"] == pytest.approx(100 * 7 / 18)
    assert sizes({}) == sizes({site.name: torch.ones(site.units, dtype=torch.bool) for site in sites})
    assert sizes({})["sparsity"] == {"units": 0, "paper": 0, "physical": 0}


def test_masks_by_rank():
    ranks = {"a": torch.tensor([0.3, -1.0]), "b": torch.tensor([0.0, 2.0])}
    masks = ranked_masks(ranks, (0.0, 0.25, 0.5, 1.0))
    kept = {level: [*found["a"].tolist(), *found["b"].tolist()] for level, found in masks.items()}
    assert kept == {
        0.0: [True] * 4,
        0.25: [True, False, True, True],
        0.5: [True, False, False, True],
        1.0: [False] * 4,
    }


def test_magnitudes_are_norms_of_filters():
    model = SimpleConvNet(2, widths=(2, 3), kernel=1).eval()
    with torch.no_grad():
        for block in model.blocks:
            block[0].weight.fill_(1.0)
        model.blocks[1][0].weight[2] = 2.0
    sites = place(model, torch.randn(2, 3, 4, 4)).sites
    first, second = magnitudes(model, sites).values()
    assert torch.allclose(first, torch.tensor([3.0, 3.0]).sqrt())  # three channels of one weight each
    assert torch.allclose(second, torch.tensor([2.0, 2.0, 8.0]).sqrt())


def test_points_are_what_an_audit_finds():
    data, model = toy(), toy_model()
    inputs = Inputs(data, CPU)
    sites = place(model.eval(), inputs.example()).sites
    dense = Subnetwork(model, sites)
    ranks = {site.name: torch.arange(site.units) for site in sites}
    masks = ranked_masks(ranks, (0.0, 0.5))
    found = points(dense, masks, data, labels(data), Sizes(model, sites, inputs))
    for point in found:
        seen = bise.audit(bise.subnetwork(model, masks[point["at"]]), data, probe=False)
        assert point["accuracy"] == pytest.approx(seen.accuracy)
        assert point["unbiased"] == pytest.approx(seen.unbiased)
        assert point["worst_group"] == pytest.approx(seen.worst_group)


def test_a_probe_reads_what_is_there():
    """b is the sign of one feature; where its unit is closed, nothing of it is left."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 2, generator=generator)
    y, b = torch.arange(600) % 2, (x[:, 0] > 0).long()
    data = Labelled(TensorDataset(x), y=y, b=b)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0], [-1.0, 0], [0, 1.0]]))
        model[0].bias.zero_()
    settings = replace(PROBE, head_epochs=20)
    open_all = bise.subnetwork(model, {"1": torch.tensor([True] * 3)}, example=x[:4], bottleneck="2")
    closed = bise.subnetwork(model, {"1": torch.tensor([False, False, True])}, example=x[:4], bottleneck="2")
    seen = bias_probe(open_all, data, data, seed=0, config=settings)
    blind = bias_probe(closed, data, data, seed=0, config=settings)
    assert seen["probe"] > 0.97
    assert abs(blind["probe"] - 0.5) < 0.08
    assert seen["chance"] == pytest.approx(max(b.float().mean(), 1 - b.float().mean()))


BERT = pytest.param("civilcomments", marks=pytest.mark.long)


@pytest.mark.parametrize("name", [*(name for name in COUNTS if name != "civilcomments"), BERT])
def test_counts_are_the_supplements(name):
    found = count(recipe(name))
    weights = found["matrices" if name == "civilcomments" else "parameters"]
    assert (weights, found["scores"]) == COUNTS[name]


def test_few_samples_hold_conflicting_ones():
    data = toy(n=4000, rho=0.999)
    there = int(labels(data).conflicting.sum())
    some = few(data, 40, seed=0)
    assert len(some) == 40
    assert int(labels(some).conflicting.sum()) == min(there, 10)


# BatchNorm


def test_statistics_are_the_mean_over_even_batches():
    data, model = toy(rho=0.9), toy_model().eval()
    inputs = Inputs(data, CPU)
    sites = place(model, inputs.example()).sites
    mask = {site.name: torch.arange(site.units) % 2 == 0 for site in sites}
    sub = bise.subnetwork(model, mask, example=inputs.example())
    before = bise.fingerprint(model)
    done = bise.reestimate(sub, data, steps=400, batch_size=90, seed=3)
    assert bise.fingerprint(model) == before  # the caller's statistics too
    assert {n: m.tolist() for n, m in done.masks.items()} == {n: m.tolist() for n, m in mask.items()}
    ours = dict(done.network.named_parameters())
    assert all(torch.equal(ours[name], p) for name, p in model.named_parameters())
    # cells evenly: the mean over cells of each cell's mean, up to the noise of 36,000 draws
    hidden = model[0](data.tensors[0])
    cells = labels(data)
    means = torch.stack([hidden[cells.index == cell].mean(0) for cell in cells.counts.nonzero().flatten()])
    squares = torch.stack([(hidden**2)[cells.index == cell].mean(0) for cell in cells.counts.nonzero().flatten()])
    layer = done.network[1]
    assert torch.allclose(layer.running_mean, means.mean(0), atol=0.03)
    assert torch.allclose(layer.running_var, squares.mean(0) - means.mean(0) ** 2, rtol=0.05)
    assert not torch.allclose(layer.running_mean, hidden.mean(0), atol=0.03)  # which natural draws would give
    assert layer.momentum == model[1].momentum
    assert done.record["reestimated"]["steps"] == 400


def test_a_network_without_batch_norm_is_refused():
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    sub = bise.subnetwork(model, {"1": torch.tensor([True, False, True, True])})
    with pytest.raises(BadInput, match="Sequential has no BatchNorm"):
        bise.reestimate(sub, toy())
    with pytest.raises(BadInput, match="batch_size=1"):
        bise.reestimate(sub, toy(), batch_size=1)


# tables


def test_tables_show_ours_and_the_papers():
    rows = [
        {"label": "vanilla", "rho": 0.99, "accuracy": value, "last": {"accuracy": value / 2}}
        for value in (0.90, 0.91, 0.92)
    ] + [{"label": "vanilla", "rho": 0.995, "accuracy": 0.5}]
    columns = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}) for rho in (0.99, 0.995)]
    lines = [
        Line(title="ours", label="vanilla", paper={"ρ = 0.99": (88.9, 0.4)}),
        Line(title="last", label="vanilla", part="last."),
        Line(title="none", label="extraction"),
    ]
    assert table(rows, lines, columns).splitlines() == [
        "|  | n | ρ = 0.99 | ρ = 0.995 |",
        "| --- | --- | --- | --- |",
        "| ours | 1 – 3 | 91.0 ± 1.0 | 50.0 |",
        "| *the paper* | *3* | *88.9 ± 0.4* |  |",
        "| last | 3 | 45.5 ± 0.5 | – |",
        "| none | – | – | – |",
    ]
    # a column without a figure is left out, unless the paper has one
    empty = [*columns, Column(title="seconds", metric="seconds"), Column(title="S", metric="sparsity")]
    with_s = [Line(title="ours", label="vanilla", paper={"S": 20.9}), *lines[1:]]
    assert table(rows, with_s, empty).splitlines()[0] == "|  | n | ρ = 0.99 | ρ = 0.995 | S |"
    # one that the table isn't about needs half of the lines, and n doesn't count it
    timed = [{**row, "seconds": 2.0} if row["accuracy"] == 0.9 else row for row in rows]
    aside = [columns[0], Column(title="seconds", metric="seconds", factor=1, aside=True)]
    assert table(timed, lines, aside).splitlines()[0] == "|  | n | ρ = 0.99 |"
    assert table(timed, lines[::2], aside).splitlines()[2] == "| ours | 3 | 91.0 ± 1.0 | 2.0 |"
    assert spread([1.0, 2.0, 4.0], 2) == "2.33 ± 1.53"  # deviations −4/3, −1/3, 5/3: variance 14/3 / 2


def test_a_collapse_is_said():
    rows = [
        {"label": "a", "kind": "extract", "device": "X", "stopped": "epoch 3: fc closed wholly"},
        {"label": "a", "kind": "extract", "device": "X", "stopped": "the schedule's end"},
        {"label": "vanilla", "kind": "vanilla", "device": "X"},
    ]
    assert "1 of 2 extractions went back" in footnote(rows)
    assert "“a”" in footnote(rows)
    assert "extractions" not in footnote(rows[1:])


def test_a_share_of_every_cell_is_held_out():
    y = torch.tensor([0] * 30 + [0] * 3 + [1] + [1] * 25)
    b = torch.tensor([0] * 30 + [1] * 3 + [0] + [1] * 25)
    data = Labelled(TensorDataset(torch.arange(59.0)[:, None]), y=y, b=b)
    rest, held = parted(data, 0.1, seed=0)
    # 3 of 30 and 2 of 25 by their share, one of 3 so that the cell is judged, the only one stays for training
    assert labels(held).counts.tolist() == [3, 1, 0, 2]
    assert labels(rest).counts.tolist() == [27, 2, 1, 23]
    seen = [float(x) for part in (rest, held) for x, _, _ in part]
    assert sorted(seen) == list(range(59))
    assert [x.item() for x, _, _ in parted(data, 0.1, seed=1)[1]] != [x.item() for x, _, _ in held]


@pytest.mark.data
def test_colours_are_drawn_anew_for_the_same_digits(tmp_path):
    runner = Runner(SCALES["paper"], tmp_path, CPU, starts=lambda name: "scratch", root=lambda name: None)
    job = Job(label="", kind="extract", rho=0.99, seed=1)
    data = runner.splits(job)
    train = data.train
    assert data.search is train
    drawn, quality = runner._biased(replace(job, redrawn=True), data)
    y, b = labels(train).y, labels(train).b[:, 0]
    other = labels(drawn).b[:, 0]
    assert quality is None
    assert torch.equal(labels(drawn).y, y)
    conflicting, again = b != y, other != y
    assert int(conflicting.sum()) == int(again.sum()) == pytest.approx(600, abs=10)  # 1 % of each class, rounded
    assert int((conflicting & again).sum()) < 30  # by chance 6 are among both
    assert runner._biased(job, data)[0] is train


@pytest.mark.parametrize("odd", [{"bias": "noise"}, {"bias": "pseudo"}, {"protocol": "held-out"}])
def test_what_data_drawn_anew_cannot_have_is_refused(odd):
    with pytest.raises(BadInput, match=f"{next(iter(odd))}='{next(iter(odd.values()))}'"):
        Job(label="", kind="extract", redrawn=True, **odd)
