"""Real MNIST digits: BiasedMNIST's counts, and extraction with both presets and every kind of MI."""

from __future__ import annotations

import gzip

import pytest
import torch
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, ExtractConfig, TrainConfig
from bise.data import Labelled, labels, load
from bise.data.sets.biased_mnist import PALETTE
from bise.data.sets.idx import read_idx
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet

pytestmark = pytest.mark.data


@pytest.mark.parametrize(("rho", "conflicting"), [(0.99, 606), (0.995, 305), (0.997, 184), (0.999, 63)])
def test_counts_of_the_source(data_root, rho, conflicting):
    data = load("biased-mnist", split="train", rho=rho, protocol="paper", root=data_root)
    assert len(data) == 60_000
    assert int((data.y != data.b).sum()) == conflicting


def test_the_test_set_is_unbiased(data_root):
    cells = labels(load("biased-mnist", split="test", root=data_root))
    assert int(cells.aligned.sum()) == 996
    assert (int(cells.counts.min()), int(cells.counts.max())) == (83, 114)


def test_backgrounds_carry_the_colour_and_digits_are_white(data_root):
    data = load("biased-mnist", split="test", root=data_root)
    raw = read_idx(data_root / "mnist/t10k-images-idx3-ubyte.gz")
    x, _, b = data[7]
    assert torch.equal(x[:, raw[7] > 0], torch.ones(3, int((raw[7] > 0).sum())))
    assert torch.allclose(x[:, 0, 0], torch.tensor(PALETTE[b]) / 255 * 2 - 1)


def test_validation_digits_are_held_out_or_recoloured(data_root):
    parts = {
        p: [load("biased-mnist", split=s, protocol=p, root=data_root) for s in ("train", "val")]
        for p in ("held-out", "paper")
    }
    assert [len(d) for d in parts["held-out"]] == [50_000, 10_000]
    assert [len(d) for d in parts["paper"]] == [60_000, 10_000]
    shapes = [{(row > 0.99).all(0).numpy().tobytes() for row in d.tensors[0]} for d in parts["held-out"]]
    assert len(shapes[0] & shapes[1]) < 10  # MNIST itself holds a few digits twice


def test_broken_files_are_named(tmp_path):
    (tmp_path / "mnist").mkdir()
    with pytest.raises(BadInput, match="does not exist"):
        load("biased-mnist", split="test", root=tmp_path)
    path = tmp_path / "mnist/t10k-labels-idx1-ubyte.gz"
    for content in (b"", b"nonsense", gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"), gzip.compress(b"\0\0\x0d\x01")):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="t10k-labels"):
            load("biased-mnist", split="test", root=tmp_path)
    with pytest.raises(BadInput, match="data set 'mnist' is unknown"):
        load("mnist", split="test", root=tmp_path)


@pytest.fixture(scope="module")
def biased(data_root):
    """2,000 real digits at ρ = 0.95, quartered to 14 × 14, and a small SimpleConvNet that fell for the colours."""
    parts = {}
    for split, count, rho in (("train", 2000, 0.95), ("val", 500, 0.1), ("test", 1000, 0.1)):
        raw = load("biased-mnist", split=split, rho=rho, seed=1, root=data_root)
        x = torch.nn.functional.avg_pool2d(raw.tensors[0][:count], 2)
        parts[split] = Labelled(
            TensorDataset(x), y=raw.y[:count], b=raw.b[:count], classes=10, bias_classes=10, aligned=range(10)
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vanilla = owning(SimpleConvNet(widths=(8, 16, 32), kernel=3))
    fit(vanilla, Inputs(parts["train"], torch.device("cpu")), labels(parts["train"]), TrainConfig(epochs=8, lr=0.05))
    return vanilla.bare(), parts


# each kind of MI with one preset and one kind with both, or all of them with `make test-all`
@pytest.mark.parametrize("mi", ["conflicting", "batch", pytest.param("none", marks=pytest.mark.long)])
def test_the_balanced_preset_debiases_real_digits(biased, mi):
    model, parts = biased
    before = bise.fingerprint(model)
    sub = bise.extract(model, parts["train"], val=parts["val"], config=ExtractConfig(mi=mi, upsilon=2))
    vanilla, after = bise.audit(model, parts["test"]), bise.audit(sub, parts["test"])
    assert after.conflicting.accuracy > vanilla.conflicting.accuracy + 0.05
    assert sub.units[0] < sub.units[1]
    assert bise.fingerprint(model) == before


@pytest.mark.parametrize("mi", ["conflicting", pytest.param("batch", marks=pytest.mark.long), "none"])
def test_the_paper_preset_debiases_real_digits(biased, mi):
    model, parts = biased
    config = ExtractConfig.paper(mi=mi, upsilon=1, head_epochs=2)
    sub = bise.extract(model, parts["train"], val=parts["val"], config=config)
    vanilla, after = bise.audit(model, parts["test"]), bise.audit(sub, parts["test"])
    assert after.conflicting.accuracy > vanilla.conflicting.accuracy + 0.03
    assert sub.record["config"]["weights"] == "paper"
