"""Files to deploy: written whole, compared, with a free batch size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_shrink_models import close, made

from bise.errors import BadInput
from bise.exporting import export


@pytest.mark.parametrize("name", ["SimpleConvNet", "BERT"])
@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_file_computes_the_same(name: str, ending: str, tmp_path: Path) -> None:
    if ending == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    sub, x = made(name)
    close(sub, 0.5, torch.Generator().manual_seed(2))
    path = tmp_path / f"model.{ending}"
    assert export(sub.shrink(x), path, x) < 1e-5
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_onnx_takes_any_batch_size(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    sub, x = made("SimpleConvNet")
    close(sub, 0.5, torch.Generator().manual_seed(2))
    small = sub.shrink(x)
    export(small, tmp_path / "model.onnx", x)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch in (1, 7):
        more = torch.randn(batch, 3, 28, 28)
        (logits,) = session.run(None, {"x": more.numpy()})
        torch.testing.assert_close(torch.from_numpy(logits), small(more).detach(), rtol=1e-4, atol=1e-5)
    folded = {node.op_type for node in __import__("onnx").load(str(tmp_path / "model.onnx")).graph.node}
    assert "BatchNormalization" not in folded


def test_bad_endings_and_batches_are_refused(tmp_path: Path) -> None:
    sub, x = made("MLP")
    small = sub.shrink(x)
    with pytest.raises(BadInput, match=r"\.zip"):
        export(small, tmp_path / "model.zip", x)
    with pytest.raises(BadInput, match="batch of 1"):
        export(small, tmp_path / "model.pt2", x[:1])
    assert not list(tmp_path.iterdir())
