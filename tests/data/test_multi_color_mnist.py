"""Multi-Color MNIST: the source's counts, colours and alignment groups; noisy bias labels; some of a data set."""

from __future__ import annotations

import gzip
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from bise import BadInput
from bise.data import Labelled, labels, load, noisy_bias
from bise.data.core.contract import Deferred
from bise.data.core.subset import subset
from bise.data.core.transforms import Transform
from bise.data.sets.biased_mnist import biased_mnist
from bise.data.sets.idx import read_idx
from bise.data.sets.multi_color_mnist import LEFT, assign, colour, multi_color_mnist
from bise.measure.groups import group_accuracy


@pytest.mark.data
@pytest.mark.parametrize(("split", "expected"), [("train", [56_430, 2_972, 573, 25]), ("test", [100, 900, 904, 8_096])])
def test_counts_of_the_source(data_root, split, expected):
    data = load("multi-color-mnist", split=split, protocol="paper", root=data_root)
    cells = labels(data)
    assert torch.bincount(cells.alignment_index).tolist() == expected
    assert cells.groups == "alignment"
    assert cells.bias_classes == (10, 10)
    if split == "test":
        assert (int(cells.counts.min()), int(cells.counts.max())) == (8, 12)


@pytest.mark.data
def test_pictures_carry_both_colours_and_the_noise_is_small(data_root):
    data = load("multi-color-mnist", split="test", root=data_root)
    x = data.tensors[0]
    assert x.shape == (10_000, 3, 28, 28)
    palette = torch.tensor(LEFT)
    left = x[:, :, 0, 0] - palette[data.b[:, 0]]  # corners hold no digit
    right = x[:, :, 0, 27] - (1 - palette[data.b[:, 1]])
    for difference in (left, right):
        # truncation to bytes takes half a step off on average; clamping tames the palette's extremes
        assert float(difference.mean()) == pytest.approx(-0.5 / 255, abs=3e-4)
        assert 0.004 < float(difference.std()) < 0.006
    raw = read_idx(data_root / "mnist/t10k-images-idx3-ubyte.gz")
    white = (raw == 255)[:, None].expand_as(x)
    assert bool((x[white] == 1).all())


@pytest.mark.data
def test_the_paper_protocol_divides_twice_and_validation_digits_are_ours(data_root):
    plain = load("multi-color-mnist", split="test", root=data_root)
    paper = load("multi-color-mnist", split="test", protocol="paper", root=data_root)
    assert torch.allclose(paper.tensors[0], plain.tensors[0] / 255)
    sizes = {
        protocol: [len(multi_color_mnist(s, protocol=protocol, root=data_root)) for s in ("train", "val")]
        for protocol in ("held-out", "paper")
    }
    assert sizes == {"held-out": [50_000, 10_000], "paper": [60_000, 10_000]}
    val = labels(multi_color_mnist("val", protocol="paper", root=data_root))
    assert val.rho == pytest.approx((0.1, 0.1), abs=0.005)


def test_a_pixel_by_hand():
    images = torch.zeros(1, 28, 28, dtype=torch.uint8)
    images[0, 5, 3], images[0, 5, 20], images[0, 6, 20] = 100, 100, 255
    out = colour(images, torch.tensor([[6, 8]]), 0.0, torch.Generator())
    # left colour 6 is (.0246, .2357, .7587), right colour 8 the complement of (.2077, .3929, .0187)
    assert out[0, :, 0, 13].tolist() == [6, 60, 193]
    assert out[0, :, 0, 14].tolist() == [202, 154, 250]
    assert out[0, :, 5, 3].tolist() == [106, 160, 255]
    assert out[0, :, 5, 20].tolist() == [255, 254, 255]
    assert out[0, :, 6, 20].tolist() == [255, 255, 255]


@given(st.integers(0, 9), st.integers(0, 300), st.floats(0, 1), st.floats(0, 1))
def test_pairs_are_within_a_sample_of_their_share(digit, n, left, right):
    b = assign(torch.full((n,), digit), left, right)
    for pair_left in (digit, (digit + 1) % 10):
        for pair_right in (digit, (digit + 3) % 10):
            share = (left if pair_left == digit else (1 - left) / 9) * (
                right if pair_right == digit else (1 - right) / 9
            )
            count = int(((b[:, 0] == pair_left) & (b[:, 1] == pair_right)).sum())
            assert abs(count - n * share) <= 1 + 1e-6


def test_the_metric_is_the_mean_of_cells_within_alignment_groups():
    # two digits; y=0 has two conflicting cells, one with nine samples that are right and one with one that isn't
    y = torch.tensor([0] * 11 + [1])
    b = torch.tensor([(0, 0)] + [(0, 1)] * 9 + [(0, 2)] + [(1, 1)])
    data = Labelled(
        TensorDataset(torch.zeros(12, 1)),
        y=y,
        b=b,
        classes=2,
        bias_classes=(3, 3),
        aligned=[(0, 0), (1, 1)],
        groups="alignment",
    )
    cells = labels(data)
    correct = torch.tensor([True] * 10 + [False, False])
    groups = group_accuracy(correct, cells.index, cells.names(), cells.alignment_names())
    assert groups.by_group == pytest.approx({"aligned, aligned": 0.5, "aligned, conflicting": 0.5})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rho": (0.99, 0.95, 0.9)}, "has 3 entries"),
        ({"rho": (0.99, 1.5)}, "rho=1.5"),
        ({"rho": float("nan")}, "rho=nan"),
        ({"severity": 6}, "severity=6"),
        ({"protocol": "mine"}, "protocol='mine'"),
        ({"split": "valid"}, "split='valid'"),
    ],
)
def test_bad_arguments_are_named(tmp_path, options, expected):
    with pytest.raises(BadInput, match=expected):
        multi_color_mnist(**({"split": "train", "root": tmp_path} | options))


def idx(path, shape, content):
    path.parent.mkdir(exist_ok=True)
    header = b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    path.write_bytes(gzip.compress(header + content))


@pytest.mark.parametrize("make", [biased_mnist, multi_color_mnist])
def test_pictures_and_labels_must_be_as_many(tmp_path, make):
    idx(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", (4,), bytes([0, 1, 2, 3]))
    idx(tmp_path / "mnist/t10k-images-idx3-ubyte.gz", (3, 28, 28), bytes(3 * 784))
    data = make("test", root=tmp_path)
    assert len(data) == 4
    with pytest.raises(BadInput, match=r"shape \(3, 28, 28\) for 4 labels"):
        _ = data.tensors
    idx(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", (2,), bytes([0, 12]))
    with pytest.raises(BadInput, match="no digits from 0 to 9"):
        make("test", root=tmp_path)


def a_set(n=100, biases=1):
    b = torch.arange(n) % 5 if biases == 1 else torch.stack([torch.arange(n) % 5, torch.arange(n) % 3], 1)
    return Labelled(
        Deferred(lambda: torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1), n),
        y=torch.arange(n) % 2,
        b=b,
        aligned=[0, 1] if biases == 1 else [(0, 0), (1, 1)],
        transform=Transform(std=(2.0,)),
    )


@given(st.floats(0, 1), st.integers(0, 100), st.integers(1, 2))
def test_noise_changes_exactly_so_many_labels(p, seed, biases):
    data = a_set(biases=biases)
    noisy = noisy_bias(data, p, seed)
    changed = noisy.b != data.b
    assert int((changed if biases == 1 else changed.all(1)).sum()) == round(p * 100)
    assert int((changed if biases == 1 else changed.any(1)).sum()) == round(p * 100)
    assert torch.equal(noisy.y, data.y)
    assert noisy.dataset is data.dataset
    assert (noisy.transform, noisy.aligned, noisy.groups) == (data.transform, data.aligned, data.groups)
    assert labels(noisy).bias_classes == labels(data).bias_classes
    assert torch.equal(noisy_bias(data, p, seed).b, noisy.b)
    assert data.b.max() == 4 if biases == 1 else True


def test_noise_leaves_samples_without_a_bias_label_alone():
    b = torch.tensor([0, 1, -1, -1] * 10)
    noisy = noisy_bias(Labelled(TensorDataset(torch.zeros(40, 1)), y=torch.arange(40) % 2, b=b), 1.0)
    assert noisy.b.tolist() == [1, 0, -1, -1] * 10


def test_noise_refuses_what_has_no_other_label():
    with pytest.raises(BadInput, match="p=2"):
        noisy_bias(a_set(), 2)
    with pytest.raises(BadInput, match="has no other"):
        noisy_bias(Labelled(TensorDataset(torch.zeros(3, 1)), y=[0, 1, 0], b=[0, 0, 0]), 0.5)


def test_noise_goes_to_every_other_label_alike():
    data = Labelled(TensorDataset(torch.zeros(9000, 1)), y=torch.arange(9000) % 2, b=torch.zeros(9000), bias_classes=4)
    counts = torch.bincount(noisy_bias(data, 1.0).b, minlength=4).tolist()
    assert counts[0] == 0
    assert all(abs(count - 3000) < 5 * 45 for count in counts[1:])  # five standard deviations of a binomial


def test_a_subset_is_drawn_and_keeps_x_with_its_labels():
    data = a_set()
    some = subset(data, 20, seed=3)
    assert len(some) == len(some.y) == 20
    number = (some.tensors[0].flatten() * 2 * 255).round().long()
    assert torch.equal(number % 2, some.y)
    assert torch.equal(number % 5, some.b)
    assert subset(data, 1000) is data
    listed = Labelled(TensorDataset(torch.arange(50).float()[:, None]), y=torch.arange(50) % 2)
    part = subset(listed, 7)
    assert [int(part[i][0]) % 2 for i in range(7)] == part.y.tolist()
    with pytest.raises(BadInput, match="too few"):
        subset(data, 0)
