"""Models that take another way on other inputs than the example: the shrunk network follows, or refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bise
from bise import BadInput
from bise.network.shrinking.removal import check_sizes_on_cpu
from bise.network.shrinking.verify import OtherSize
from bise.network.twin import duplicate


class Net(nn.Module):
    def __init__(self, before=lambda x: x, behind=lambda h: h):
        super().__init__()
        self.conv, self.relu, self.fc = nn.Conv2d(3, 6, 2, stride=2), nn.ReLU(), nn.Linear(6, 2)
        self.before, self.behind = before, behind

    def forward(self, x):
        return self.fc(self.behind(self.relu(self.conv(self.before(x))).mean((2, 3))))


def pictures(size, n=4):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(size))


def half_of(model, x):
    torch.manual_seed(0)
    return bise.subnetwork(model.eval(), {"relu": torch.arange(6) % 2 == 0}, example=x)


BRANCHES = {
    "odd sizes": (lambda x: F.pad(x, (0, 1, 0, 1)) if x.shape[-1] % 2 else x, 17),
    "large sizes": (lambda x: F.avg_pool2d(x, 2) if x.shape[-1] > 100 else x, 101),
    "small sizes": (lambda x: F.interpolate(x, size=(20, 20)) if x.shape[-1] < 12 else x, 8),
}


@pytest.mark.parametrize("kind", BRANCHES)
def test_sizes_that_the_forward_branches_on_are_not_free(kind):
    before, other = BRANCHES[kind]
    sub = half_of(Net(before), pictures(16))
    small = sub.shrink(pictures(16))
    assert "size        x 16 × 16 only, as in the example" in str(small.shrink_report)
    assert torch.allclose(small(pictures(16, 7)), sub(pictures(16, 7)), atol=1e-6)
    with pytest.raises(AssertionError, match="x: dimension 2 has to be 16, as in the example"):
        small(pictures(other))
    small = sub.shrink(pictures(other))
    assert torch.allclose(small(pictures(other)), sub(pictures(other)), atol=1e-6)


def test_sizes_that_nothing_branches_on_stay_free():
    sub = half_of(Net(), pictures(16))
    small = sub.shrink(pictures(16))
    assert small.shrink_report.held == ()
    for size in (9, 16, 31, 120):
        assert torch.allclose(small(pictures(size, 1)), sub(pictures(size, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("branches", "other"),
    [(lambda x: x.shape[2] != x.shape[3], (16, 24)), (lambda x: x.shape[3] > 2 * x.shape[2], (16, 40))],
    ids=["unequal", "wide"],
)
def test_what_the_forward_makes_of_height_and_width_is_not_free(branches, other):
    sub = half_of(Net(lambda x: x * 2 + 1 if branches(x) else x), pictures(16))
    small = sub.shrink(pictures(16))
    assert small.shrink_report.held == ("x 16 × 16",)
    with pytest.raises(AssertionError, match="x: dimension 3 has to be 16"):
        small(torch.randn(2, 3, *other))
    free = half_of(Net(), pictures(16))
    x = torch.randn(2, 3, *other, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(free.shrink(pictures(16))(x), free(x), atol=1e-6)


@pytest.mark.parametrize("branches", [lambda n: n > 8, lambda n: n % 5 == 0], ids=["large", "multiples"])
def test_batches_that_are_treated_in_another_way_are_told_of(branches):
    sub = half_of(Net(behind=lambda h: h * 2 + 1 if branches(h.shape[0]) else h), pictures(16))
    with pytest.raises(BadInput, match="treats some batches in another way"):
        sub.shrink(pictures(16))


class Signal(nn.Module):
    """Of signals [N, C, L] or sequences [N, T, F]: captured at one length, which its arithmetic has built in."""

    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Conv1d(2, 6, 3, padding=1) if kind == "signal" else nn.Linear(2, 6)
        self.relu, self.fc, self.dim = nn.ReLU(), nn.Linear(6, 2), -1 if kind == "signal" else 1

    def forward(self, x):
        h = self.relu(self.layer(x))
        return self.fc(h.sum(self.dim) / h.shape[self.dim])


@pytest.mark.parametrize(("kind", "dim"), [("signal", 2), ("sequence", 1)])
def test_lengths_of_signals_and_sequences_are_held(kind, dim):
    x = torch.randn(4, 2, 20, generator=torch.Generator().manual_seed(0))
    x = x if kind == "signal" else x.mT
    sub = half_of(Signal(kind), x)
    small = sub.shrink(x)
    assert small.shrink_report.held == ("x 20",), "channels are for the first layer to refuse"
    assert torch.allclose(small(x[:3]), sub(x[:3]), atol=1e-6)
    with pytest.raises(AssertionError, match=f"x: dimension {dim} has to be 20, as in the example"):
        small(torch.cat([x, x], dim))


class Choices(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.relu, self.fc = nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x, turned=False, scale=None):
        h = self.relu(self.layer(x))
        h = h if scale is None else h * scale
        return self.fc(-h if turned else h)


@pytest.mark.parametrize(
    ("given", "other", "expected"),
    [
        ({"turned": True}, {"turned": False}, "turned has to be True, as in the example"),
        ({"scale": 2.5}, {"scale": 3.0}, r"scale has to be 2\.5, as in the example"),
        ({"scale": None}, {"scale": torch.ones(6)}, "scale has to be None, as in the example"),
        ({"scale": torch.tensor(2.5)}, {"scale": torch.tensor(3.0)}, None),  # a tensor stays an input
    ],
    ids=["flag", "number", "none", "tensor"],
)
def test_arguments_that_are_not_tensors_are_the_examples(given, other, expected, tmp_path):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    sub = half_of(Choices(), {"x": x, **given})
    small = sub.shrink({"x": x, **given})
    assert torch.allclose(small(x=x, **given), sub(x=x, **given), atol=1e-6)
    with pytest.raises(BadInput, match=f"{next(iter(given))} of the example is no tensor of samples"):
        bise.export(small, tmp_path / "net.pt2", {"x": x, **given})
    if expected is None:
        assert torch.allclose(small(x=x, **other), sub(x=x, **other), atol=1e-6)
    else:
        with pytest.raises(AssertionError, match=expected):
            small(x=x, **other)


def test_a_weight_that_is_computed_is_not_folded_into(tmp_path):
    from torch.nn.utils.parametrizations import spectral_norm

    net = Net()
    net.conv = nn.Sequential(spectral_norm(nn.Conv2d(3, 6, 2)), nn.BatchNorm2d(6))
    net.conv[1].running_mean.uniform_()
    sub = half_of(net, pictures(16))
    small = sub.shrink(pictures(16), fold_batchnorm=True)
    assert torch.allclose(small(pictures(16)), sub(pictures(16)), atol=1e-6)
    assert bise.export(sub.shrink(pictures(16)), tmp_path / "net.pt2", pictures(16)) <= 1e-5


def test_a_model_that_is_finite_in_float32_alone_is_proven_by_its_graph():
    def behind(h):  # 0 times float32's lowest number is 0, and times float64's, which float32 can't hold, it's nothing
        return h + torch.zeros_like(h, dtype=torch.float32) * torch.finfo(h.dtype).min

    sub = half_of(Net(behind=behind), pictures(16))
    assert not duplicate(sub).double()(pictures(16).double()).isfinite().all()
    assert max(sub.shrink(pictures(16)).shrink_report.differences.values()) <= 1e-10


def test_pictures_in_a_dict_are_tried_at_other_sizes():
    class Named(Net):
        def forward(self, picture):
            return super().forward(picture)

    sub = half_of(Named(BRANCHES["odd sizes"][0]), {"picture": pictures(16)})
    small = sub.shrink({"picture": pictures(16)})
    assert small.shrink_report.held == ("picture 16 × 16",)
    with pytest.raises(AssertionError, match="picture: dimension 2 has to be 16"):
        small(picture=pictures(17))
    assert (
        "random, another resolution"
        in half_of(Named(), {"picture": pictures(16)}).shrink({"picture": pictures(16)}).shrink_report.differences
    )


def test_one_sample_that_is_treated_in_another_way_is_told_of():
    sub = half_of(Net(behind=lambda h: h - h.mean(0) if len(h) > 1 else h), pictures(16))
    with pytest.raises(BadInput, match="treats one sample in another way than several"):
        sub.shrink(pictures(16))


def test_one_sample_may_lose_its_dimension():
    sub = half_of(Net(behind=lambda h: h.squeeze()), pictures(16))
    small = sub.shrink(pictures(16))
    assert torch.allclose(small(pictures(16, 1)).flatten(), sub(pictures(16, 1)), atol=1e-6)


class Words(nn.Module):
    def __init__(self, most):
        super().__init__()
        self.words, self.layer, self.relu, self.fc = nn.Embedding(30, 4), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)
        self.most = most

    def forward(self, ids):
        if ids.shape[1] > self.most:
            ids = ids[:, : self.most]
        return self.fc(self.relu(self.layer(self.words(ids).mean(1))))


class Ends(Words):
    """Asks for as many ends of sentences in each sample, as BART's classifier does."""

    def forward(self, ids):
        if not torch.compiler.is_exporting() and len((ids == 2).sum(1).unique()) > 1:
            raise ValueError("All examples must have the same number of <eos> tokens.")
        return super().forward(ids)


def test_each_sample_keeps_its_tokens_in_the_check():
    ids = torch.randint(3, 30, (4, 10), generator=torch.Generator().manual_seed(0))
    ids[:, -1] = 2
    differences = half_of(Ends(10**9), ids).shrink(ids).shrink_report.differences
    assert {"random", "random, one sample more", "random, one sample"} <= differences.keys()


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch.export.load's own, in some versions
def test_a_length_that_is_cut_is_not_free_in_files_either(tmp_path, ending):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 30, (4, 10), generator=generator)
    sub = half_of(Words(16), ids)
    small = sub.shrink(ids)
    with pytest.raises(AssertionError, match="x: dimension 1 has to be 10"):
        small(torch.cat([ids, ids], 1))
    path = tmp_path / f"net.{ending}"
    bise.export(Words(16).eval(), path, ids)
    longer = torch.randint(0, 30, (4, 24), generator=generator)
    if ending == "pt2":
        run = torch.export.load(path).module()
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(path)

        def run(given):
            return session.run(None, {session.get_inputs()[0].name: given.numpy()})

    run(ids)
    with pytest.raises(Exception, match="10"):  # each runtime has its own kind and words, and both name the size
        run(longer)


def test_sizes_are_tried_on_a_cpu_for_models_elsewhere():
    ids = torch.arange(40).view(4, 10) % 30
    with pytest.raises(OtherSize, match=r"another size, \+7"):
        check_sizes_on_cpu(half_of(Words(16), ids), ids)
    check_sizes_on_cpu(half_of(Words(10**9), ids), ids)


def test_a_length_that_nothing_cuts_stays_free():
    ids = torch.arange(40).view(4, 10) % 30
    sub = half_of(Words(10**9), ids)
    assert torch.allclose(sub.shrink(ids)(ids[:, [*range(10)] * 3]), sub(ids[:, [*range(10)] * 3]), atol=1e-6)


FLOATS = {
    "inputs cast": lambda h: h.float() * 2,
    "a matrix made": lambda h: h @ torch.eye(6),
}


@pytest.mark.parametrize("kind", FLOATS)
def test_a_forward_that_knows_only_float32_is_proven_by_its_graph(kind):
    sub = half_of(Net(behind=FLOATS[kind]), pictures(16))
    small = sub.shrink(pictures(16))
    assert small.shrink_report.parameters_after < small.shrink_report.parameters_before
    assert max(small.shrink_report.differences.values()) <= 1e-10
    assert torch.allclose(small(pictures(16, 7)), sub(pictures(16, 7)), atol=1e-6)


class Query(nn.Module):
    """A layer that reads a parameter: learned queries, prototypes."""

    def __init__(self):
        super().__init__()
        self.query, self.project, self.layer = nn.Parameter(torch.randn(1, 5)), nn.Linear(5, 6), nn.Linear(8, 6)
        self.relu, self.fc = nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.relu(self.layer(x) + self.project(self.query)))


class Tokens(nn.Module):
    """BatchNorm over tokens, behind a layer whose channels come last."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.norm, self.relu = nn.Linear(8, 6), nn.BatchNorm1d(width), nn.ReLU()
        self.norm.running_mean.uniform_()
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.relu(self.norm(self.layer(x.unsqueeze(1).expand(-1, self.norm.num_features, -1)))).mean(1))


@pytest.mark.parametrize("model", [Query(), Tokens(3), Tokens(6)], ids=["query", "tokens", "as many tokens"])
def test_layers_in_unusual_places(model, tmp_path):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    sub = half_of(model, x)
    for small in (sub.shrink(x), sub.shrink(x, fold_batchnorm=True)):
        assert torch.allclose(small(x), sub(x), atol=1e-6)
    assert bise.export(small, tmp_path / "net.pt2", x) <= 1e-5


def test_casts_pools_and_infinities():
    def behind(h):
        whole = h + (h + 0.7).int()  # of a closed unit 0.7 becomes 0
        return torch.cat([whole[:, :5], torch.full((len(h), 1), -2.0)], 1)

    sub = half_of(Net(behind=behind), pictures(16))
    sub.shrink(pictures(16))

    class Masked(Net):
        def forward(self, x):
            return super().forward(x).masked_fill(torch.tensor([False, True]), -torch.inf)

    assert max(half_of(Masked(), pictures(16)).shrink(pictures(16)).shrink_report.differences.values()) <= 1e-10


def test_an_average_by_a_divisor_of_its_own():
    class Divided(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu, self.conv, self.fc = nn.ReLU(), nn.Conv2d(6, 4, 1), nn.Linear(4, 2)
            self.first, self.shift = nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)
            self.shift.running_mean.uniform_()

        def forward(self, x):
            h = F.avg_pool2d(self.shift(self.relu(self.first(x))), 2, divisor_override=3)
            return self.fc(self.conv(h).mean((2, 3)))

    assert max(half_of(Divided(), pictures(8)).shrink(pictures(8)).shrink_report.differences.values()) <= 1e-10


def test_a_part_of_a_larger_picture():
    whole = pictures(20)
    part = whole[:, :, 2:-2, 2:-2]
    small = half_of(Net(), part).shrink(part)
    assert small(part).shape == (4, 2)
