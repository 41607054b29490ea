"""The (x, y, b) contract and what follows from labels alone."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from bise import BadInput
from bise.data import Cells, Labelled, labels
from bise.data.core.sampling import Sampler, strata


class Triples(Dataset):
    """Yields (x, y, b) and has no labels beforehand."""

    def __init__(self, y, b):
        self.pairs = list(zip(y, b, strict=True))
        self.seen = 0

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        self.seen += 1
        return torch.zeros(2), *self.pairs[i]


def test_labels_are_read_in_one_counted_pass():
    data = Triples([0, 0, 1, 1], [0, 1, 1, 0])
    told = []
    cells = labels(data, progress=lambda *row: told.append(row))
    assert data.seen == 4
    assert told[-1] == ("reading labels", 4, 4)
    assert cells.y.tolist() == [0, 0, 1, 1]
    assert cells.b.tolist() == [[0], [1], [1], [0]]


def test_a_class_of_ones_own_may_keep_labels_in_another_order():
    class Split(Triples):
        def __init__(self, y, b, index):
            super().__init__(y, b)
            self.y, self.b, self.index = torch.tensor(y), torch.tensor(b), index

        def __len__(self):
            return len(self.index)

        def __getitem__(self, i):
            return super().__getitem__(self.index[i])

    for index in ([3, 0, 2, 1], [2, 1]):
        cells = labels(Split([0, 0, 1, 1], [0, 1, 1, 0], index))
        assert cells.y.tolist() == [[0, 0, 1, 1][i] for i in index]
        assert cells.b.flatten().tolist() == [[0, 1, 1, 0][i] for i in index]


def test_a_class_without_a_conflicting_sample_is_told_of():
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    some = Cells.of(y, torch.tensor([0, 0, 0, 1, 1, 0, 2, 2, 0]))
    (sentence,) = some.unopposed()
    assert sentence.startswith("no training sample of y = 0 conflicts with b, so nothing tells the two apart there")
    assert not Cells.of(y, torch.tensor([0, 0, 1, 1, 1, 0, 2, 2, 0])).unopposed()


def test_labels_that_are_read_in_pieces_are_the_same(monkeypatch):
    y, b = [0, 1, 1, 0, 1], [(0, 2), (1, 0), (0, 1), (1, 1), (0, 0)]
    whole = labels(Triples(y, b))
    monkeypatch.setattr("bise.data.core.contract.READ_AT_ONCE", 2)
    parts = labels(Triples(y, b))
    assert torch.equal(parts.y, whole.y)
    assert torch.equal(parts.b, whole.b)
    with pytest.raises(BadInput, match="b has several shapes"):
        labels(Triples(y, [*b[:4], 0]))


def test_labels_known_beforehand_need_no_pass():
    inner = Triples([9, 9], [9, 9])
    data = Labelled(inner, y=[0, 1], b=np.array([1, 0]))
    assert labels(data).b.tolist() == [[1], [0]]
    assert inner.seen == 0
    x, y, b = data[1]
    assert (x.tolist(), y, b) == ([0, 0], 1, 0)


def test_several_biases_come_as_tuples():
    data = Labelled(torch.zeros(3, 2), y=[0, 1, 1], b=[(0, 2), (1, 0), (0, 1)])
    cells = labels(data)
    assert cells.bias_classes == (2, 3)
    assert data[0][2] == (0, 2)
    assert labels(Triples([0, 1, 1], [(0, 2), (1, 0), (0, 1)])).b.tolist() == [[0, 2], [1, 0], [0, 1]]


def test_dicts_of_tensors_pass_through():
    data = Labelled([{"ids": torch.ones(2)}, {"ids": torch.zeros(2)}], y=[0, 1], b=[1, 0])
    assert set(data[0][0]) == {"ids"}


def test_cells_counts_and_empty_ones():
    # y: 0 0 0 1 1, b: 0 0 1 2 2 -> cells (0,0)=2 (0,1)=1 (1,2)=2; the other three of 2 × 3 are empty
    cells = Cells.of(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 2, 2]))
    assert cells.classes == 2
    assert cells.bias_classes == (3,)
    assert cells.counts.tolist() == [2, 1, 0, 0, 0, 2]
    assert cells.empty == [(0, 2), (1, 0), (1, 1)]
    assert cells.names() == {0: "y=0 b=0", 1: "y=0 b=1", 5: "y=1 b=2"}


def test_cells_of_several_biases_by_hand():
    cells = Cells.of(torch.tensor([0, 1, 1]), torch.tensor([[0, 3], [2, 0], [1, 2]]))
    # (y * 3 + b_1) * 4 + b_2
    assert cells.index.tolist() == [3, 20, 18]
    assert [cells.labels_of(i) for i in (3, 20, 18)] == [(0, 0, 3), (1, 2, 0), (1, 1, 2)]


def test_alignment_is_the_largest_lift_not_the_largest_count():
    # b = 0 is most frequent for both classes (60 of 100, 80 of 100), but relative to its share it belongs to y = 1:
    # P(b=0|y=0)/P(b=0) = 0.6/0.7 < P(b=1|y=0)/P(b=1) = 0.4/0.3
    y = torch.tensor([0] * 100 + [1] * 100)
    b = torch.tensor([0] * 60 + [1] * 40 + [0] * 80 + [1] * 20)
    cells = Cells.of(y, b)
    assert cells.aligned_bias.tolist() == [[1, 0]]
    assert cells.rho == ((40 + 80) / 200,)


def test_a_given_mapping_wins():
    y, b = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    cells = Cells.of(y, b, aligned={0: 1, 1: 0})
    assert not cells.aligned.any()
    assert cells.alignment_given


def test_alignment_per_bias_and_its_groups():
    y = torch.tensor([0, 0, 1, 1])
    b = torch.tensor([[0, 0], [0, 1], [1, 1], [1, 0]])
    cells = Cells.of(y, b, aligned={0: (0, 0), 1: (1, 1)})
    assert cells.aligned.tolist() == [[True, True], [True, False], [True, True], [True, False]]
    assert cells.alignment_index.tolist() == [0, 1, 0, 1]
    assert set(cells.alignment_names().values()) == {"aligned, aligned", "aligned, conflicting"}


def test_more_bias_classes_than_targets():
    cells = Cells.of(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 4, 2, 2]), bias_classes=[7])
    assert cells.bias_classes == (7,)
    assert len(cells.counts) == 14


def test_one_conflicting_b_is_said_since_mi_is_zero_there():
    (sentence,) = Cells.of(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 1, 1, 1])).one_sided()
    assert sentence.startswith("all 1 conflicting samples share b=1, so the mutual information")
    assert not Cells.of(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 0])).one_sided()


@pytest.mark.parametrize(
    ("y", "b", "extra", "sentence"),
    [
        ([], [], {}, "empty"),
        ([0, -1], [0, 1], {}, "label -1"),
        ([0, 5], [0, 1], {"classes": 3}, "label 5, out of range for classes=3"),
        ([0, 1], [0, 9], {"bias_classes": [4]}, "label 9, out of range for bias_classes"),
        ([0, 1], [0, 1], {"aligned": {0: 0}}, "no entry for y=1"),
        ([0, 1], [0, 1], {"aligned": {0: 0, 1: 7}}, "out of range"),
        ([0, 1], [[0, 1], [1, 0]], {"aligned": {0: 0, 1: 1}}, "give a tuple"),
    ],
)
def test_bad_labels_are_named(y, b, extra, sentence):
    with pytest.raises(BadInput, match=sentence):
        Cells.of(torch.tensor(y, dtype=torch.long), torch.tensor(b, dtype=torch.long), **extra)


class Stream(IterableDataset):
    """That knows its length."""

    def __iter__(self):
        return iter([(torch.zeros(1), 0, 0)])

    def __len__(self):
        return 1


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda: Labelled(torch.zeros(2, 1), y=[0, 1, 1], b=[0, 1, 1]), "3 labels for 2 samples"),
        (lambda: Labelled(torch.zeros(2, 1), y=[0, 0.5], b=[0, 1]), "0.5, which is no whole number"),
        (lambda: Labelled(torch.zeros(2, 1), y=[0, math.inf], b=[0, 1]), "y holds inf, which is no whole number"),
        (lambda: Labelled(torch.zeros(2, 1), y=[0, 1], b=[0, None]), "give ints from 0, and −1 where it is not known"),
        (lambda: Labelled(torch.zeros(2, 1), y=["a", "b"], b=[0, 1]), "can't be read as whole numbers"),
        (lambda: labels(iter([])), "no map-style data set"),
        (
            lambda: labels(pandas.DataFrame({"x": [1, 2], "y": [0, 1]})),
            r"DataFrame gives no sample 0 \(KeyError\); it needs",
        ),
        (lambda: labels({"x": [1, 2], "y": [0, 1]}), r"dict gives no sample 0 \(KeyError\); it needs"),
        (lambda: labels(Stream()), r"Stream gives no sample 0 \(NotImplementedError\); .* a stream into a list"),
        (lambda: labels(TensorDataset(torch.zeros(3, 1))), "not \\(x, y, b\\)"),
        (lambda: labels(TensorDataset(torch.zeros(3, 1), torch.arange(3))), "no bias labels"),
        (lambda: labels(Labelled(torch.zeros(2, 1), y=[0, 1])), "no bias labels"),
        (lambda: Labelled(torch.zeros(2, 1), y=[0, 1], b=[0, 1], groups="rows"), "groups='rows'"),
    ],
)
def test_bad_data_sets_are_named(data, sentence):
    with pytest.raises(BadInput, match=sentence):
        data()


@given(
    strata_of=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    count=st.integers(1, 200),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_balanced_draws_are_even_over_the_strata(strata_of, count, seed):
    tensor = torch.tensor(strata_of)
    order = Sampler(len(tensor), tensor).draw(count, 1, torch.Generator().manual_seed(seed))
    assert len(order) == count
    drawn = torch.bincount(tensor[order], minlength=6)[torch.unique(tensor)]
    assert int(drawn.max() - drawn.min()) <= 1


def test_balanced_draws_are_uniform_within_a_stratum():
    tensor = torch.tensor([0] * 4 + [1])
    order = Sampler(5, tensor).draw(80_000, 1, torch.Generator().manual_seed(0))
    counts = torch.bincount(order, minlength=5).double()
    assert counts[4] == 40_000
    # 10,000 expected each, standard deviation about 87
    assert torch.allclose(counts[:4], torch.full((4,), 10_000.0, dtype=torch.float64), atol=450)


def test_a_natural_epoch_sees_every_sample_once():
    order = Sampler(10).draw(None, 3, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(10))
    assert len(Sampler(10).draw(5, 4, torch.Generator().manual_seed(0))) == 20


def test_strata_with_several_biases_are_the_alignment_groups():
    cells = Cells.of(torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 0], [0, 1], [1, 1], [1, 0]]))
    assert strata(cells, "auto").tolist() == cells.alignment_index.tolist()
    assert strata(cells, "cells").tolist() == cells.index.tolist()
