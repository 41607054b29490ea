"""Groups by construction: clusters that stand apart, a class that is easy to read, columns as a table has them."""

from __future__ import annotations

import pytest
import torch

from bise.base.errors import BadInput
from bise.measure.spread import agreement
from bise.methods.finding.clusters import fit_clusters, fit_readings
from bise.methods.finding.columns import column_of, is_named

pytest.importorskip("sklearn")


def blobs(k, n=600, d=20, apart=8.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    group = torch.randint(0, k, (n,), generator=generator)
    centres = torch.randn(k, d, generator=generator)
    centres = apart * centres / centres.norm(dim=1, keepdim=True)
    return centres[group] + torch.randn(n, d, generator=generator) / 2, group


@pytest.mark.parametrize("k", [2, 3, 6])
def test_clusters_are_the_planted_groups_and_as_many(k):
    features, group = blobs(k)
    found = fit_clusters(features[:400])
    assert found is not None
    assert found.k == k
    assert agreement(found(features), group) == pytest.approx(1), "on samples that they were not fitted on too"


def test_a_cloud_has_no_clusters_and_neither_has_a_point():
    assert fit_clusters(torch.randn(500, 30, generator=torch.Generator().manual_seed(0))) is None
    assert fit_clusters(torch.ones(500, 30)) is None


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (torch.randn(19, 4), "19 samples are too few for 2 groups of 10; give at least 20"),
        (torch.tensor([[1.0, float("nan")]] * 30), "features of sample 0 hold nan or infinite values"),
        (torch.randn(30), "give one row of numbers a sample"),
        (torch.randn(30, 0), "give one row of numbers a sample"),
    ],
)
def test_features_that_nothing_can_be_grouped_by_are_refused(features, said):
    with pytest.raises(BadInput, match=said):
        fit_clusters(features)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_is_read_is_the_shortcut_also_where_it_misleads(classes):
    """y goes with the shortcut in 95 % of the samples; the others are read as what the shortcut says."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (2000,), generator=generator)
    shortcut = torch.where(torch.rand(2000, generator=generator) < 0.95, y, (y + 1) % classes)
    features = torch.randn(2000, 10, generator=generator)
    features[torch.arange(2000), shortcut] += 6
    half = torch.arange(2000) % 2
    read = fit_readings(features, y, half)
    for given in (half, None):
        assert float((read(features, given) == shortcut).float().mean()) > 0.99


def test_no_sample_is_read_by_a_classifier_that_learned_from_it():
    """Random targets of samples that each have a feature of their own: who learned them reads them, nobody else can."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (200,), generator=generator)
    features, half = 100 * torch.eye(200), torch.arange(200) % 2
    read = fit_readings(features, y, half)
    assert float((read(features, half) == y).float().mean()) < 0.7
    assert float((read(features, 1 - half) == y).float().mean()) == 1


def test_a_class_that_only_one_half_has_is_no_trouble():
    y = torch.tensor([0, 1] * 20 + [2, 0] * 20)
    half = torch.tensor([1] * 40 + [0] * 40)  # class 1 in half 1 alone, class 2 in half 0 alone
    read = fit_readings(10 * torch.nn.functional.one_hot(y, 3).float(), y, half)
    assert read(10 * torch.eye(3)).tolist()[0] == 0


def test_columns_become_groups():
    few = column_of("sex", ["f", "m", "", " f"])
    assert few is not None
    assert few.groups == ("f", "m")
    assert few(["m", "x", "", "f"]).tolist() == [1, -1, -1, 0]
    numbers = column_of("age", [str(n) for n in range(1, 101)])
    assert numbers is not None
    assert numbers.groups == ("1 to 25", "26 to 50", "51 to 75", "76 to 100")
    assert numbers(["25", "26", "", "100", "1000"]).tolist() == [0, 1, -1, 3, 3]
    rarely = column_of("gain", ["0"] * 90 + [str(n) for n in range(1, 21)])
    assert rarely is not None
    assert rarely.groups == ("0", "1 to 20")
    ordered = column_of("grade", ["10", "9", "9.5"])
    assert ordered is not None
    assert ordered.groups == ("9", "9.5", "10")
    for nothing in (["a"] * 5, [""] * 5, [f"name {n}" for n in range(60)], []):
        assert column_of("c", nothing) is None


def test_columns_that_the_law_names_are_known_by_their_words():
    assert all(map(is_named, ["sex", "Gender", "native-country", "raceEthnicity", "age_group"]))
    assert not any(map(is_named, ["wage", "engaged", "racer", "message", "education", "x1"]))
