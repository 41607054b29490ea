"""Files to deploy: written whole, compared, with a free batch size."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bise.base.errors import BadInput
from bise.base.version import VERSION
from bise.data import Labelled, LabelNames, Transform
from bise.jobs.exporting import export
from bise.network.twin import fingerprint
from test_shrink_models import close, made


@functools.cache
def shrunk(name: str) -> tuple[nn.Module, Any]:
    """Half of its units gone, once for all the files that are written of it."""
    sub, x = made(name)
    close(sub, 0.5, torch.Generator().manual_seed(2))
    return sub.shrink(x), x


@pytest.mark.parametrize("name", ["SimpleConvNet", "BERT"])
@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_file_computes_the_same(name: str, ending: str, tmp_path: Path) -> None:
    if ending == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    small, x = shrunk(name)
    path = tmp_path / f"model.{ending}"
    assert export(small, path, x) < 1e-5
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_onnx_takes_any_batch_size(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    small, x = shrunk("SimpleConvNet")
    export(small, tmp_path / "model.onnx", x)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch in (1, 7):
        more = torch.randn(batch, 3, 28, 28)
        (logits,) = session.run(None, {"x": more.numpy()})
        torch.testing.assert_close(torch.from_numpy(logits), small(more).detach(), rtol=1e-4, atol=1e-5)
    folded = {node.op_type for node in __import__("onnx").load(str(tmp_path / "model.onnx")).graph.node}
    assert "BatchNormalization" not in folded


def test_a_model_in_train_mode_is_exported_as_it_computes_and_left_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 2))
    x = torch.randn(5, 8)
    model(x)
    before = fingerprint(model)
    assert export(model, tmp_path / "model.pt2", x) < 1e-5
    assert fingerprint(model) == before
    assert model.training


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch's own, about its LSTM
def test_a_length_that_the_model_fixes_is_fixed_in_the_file(ending: str, tmp_path: Path) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 16, batch_first=True)
            self.hidden, self.act, self.out = nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.act(self.hidden(self.lstm(self.embed(x))[0][:, -1])))

    torch.manual_seed(0)
    words = torch.randint(0, 20, (4, 12))
    path = tmp_path / f"model.{ending}"
    assert export(Reader().eval(), path, words) < 1e-5
    if ending == "onnx":
        (slot,) = pytest.importorskip("onnxruntime").InferenceSession(str(path)).get_inputs()
        assert slot.shape[1] == 12
        assert isinstance(slot.shape[0], str)


def test_places_that_take_no_file_are_refused(tmp_path: Path) -> None:
    sub, x = made("MLP")
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(BadInput, match="folder.pt2 is a folder"):
        export(sub, tmp_path / "folder.pt2", x)
    with pytest.raises(BadInput, match="/proc/model.pt2 can't be written"):
        export(sub.shrink(x), "/proc/model.pt2", x)
    with pytest.raises(BadInput, match="the example holds NaN"):
        sub.shrink(x * torch.nan)


def test_bad_endings_and_batches_are_refused(tmp_path: Path) -> None:
    sub, x = made("MLP")
    small = sub.shrink(x)
    with pytest.raises(BadInput, match=r"\.zip"):
        export(small, tmp_path / "model.zip", x)
    with pytest.raises(BadInput, match="batch of 1"):
        export(small, tmp_path / "model.pt2", x[:1])
    assert not list(tmp_path.iterdir())


def told_by(path: Path) -> dict[str, Any]:
    """What a file says of itself, read by the runtime that it is for."""
    if path.suffix == ".pt2":
        extra = {"bise.json": ""}
        torch.export.load(path, extra_files=extra)
        return dict(json.loads(extra["bise.json"]))
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return {name: json.loads(text) for name, text in session.get_modelmeta().custom_metadata_map.items()}


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_a_file_says_its_classes_its_scale_and_its_size(ending: str, tmp_path: Path) -> None:
    model, path = nn.Sequential(nn.Flatten(), nn.Linear(60, 2)), tmp_path / f"model.{ending}"
    names = LabelNames(target="hair", biases=("sex",), classes=("blond", "därk"), bias_classes=(("f", "m"),))
    scale = Transform(mean=(0.5, 0.4, 0.3), std=(0.25,) * 3)
    pixels = TensorDataset(torch.zeros(4, 3, 4, 5, dtype=torch.uint8))
    data = Labelled(pixels, y=[0, 1, 0, 1], b=[0, 0, 1, 1], names=names, transform=scale)
    export(model, path, data.tensors[0], data=data)
    assert told_by(path) == {
        "bise": VERSION,
        "input_size": [3, 4, 5],
        "target": "hair",
        "class_names": ["blond", "därk"],
        "mean": [0.5, 0.4, 0.3],
        "std": [0.25, 0.25, 0.25],
    }
    export(model, path, data.tensors[0])
    assert told_by(path) == {"bise": VERSION, "input_size": [3, 4, 5]}


def test_a_file_for_sentences_says_that_they_may_be_of_any_length(tmp_path: Path) -> None:
    small, x = shrunk("BERT")
    export(small, tmp_path / "model.pt2", x)
    assert told_by(tmp_path / "model.pt2")["input_size"] == {name: [None] for name in x}
