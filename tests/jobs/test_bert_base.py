"""BERT-base with random weights: extraction, shrinking and ONNX on a laptop's memory, with the supplement's counts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
from pathlib import Path
import torch
import bise
from bise.data import Labelled
from bise.data.core.coders import word_pieces
from bise.data.core.tokens import Sentences
from bise.engine.inputs import Inputs
from bise.network.size import size
from bise.network.architectures.pretrained import bert

folder, vocabulary = map(Path, sys.argv[1:])
torch.manual_seed(0)
model = bert(2)[0].eval()
adjectives, groups = ("kind", "vile"), ("young", "old")
y, b = [i % 2 for i in range(16)], [i // 2 % 2 for i in range(16)]
lines = [f"you are a {adjectives[y[i]]} {groups[b[i]]} {'very ' * i} person" for i in range(16)]
data = Labelled(Sentences(lines, word_pieces(vocabulary, 220)), y=y, b=b, aligned=[0, 1])
config = bise.ExtractConfig(steps=1, upsilon=1, head_epochs=1, head_steps=1, batch_size=8, tau_min=0.5, lr=1.0)
sub = bise.extract(model, data, config=config, sites="paper")
masks = {name: torch.arange(len(mask)) % 4 > 0 for name, mask in sub.masks.items()}
sub = bise.subnetwork(model, masks)
example = Inputs(data, torch.device("cpu")).example(4)
small = sub.shrink(example)
difference = bise.export(small, folder / "model.onnx", example, texts=data)
print(json.dumps({
    "units": sub.units,
    "sites": len(masks),
    "matrices": sum(p.numel() for p in model.parameters() if p.dim() > 1),
    "after": sum(p.numel() for p in small.parameters() if p.dim() > 1),
    "macs": size(small, example).macs / size(model, example).macs,
    "float64": small.shrink_report.differences,
    "onnx": difference,
    "files": sorted(p.name for p in folder.iterdir()),
    "bytes": (folder / "model.onnx").stat().st_size,
    "peak": next(int(row.split()[1]) * 1024 for row in open("/proc/self/status") if row.startswith("VmHWM")),
}))
"""


@pytest.mark.long
@pytest.mark.data
def test_bert_base_within_ten_gigabytes(tmp_path, data_root):
    pytest.importorskip("onnxruntime")
    # VmHWM, since ru_maxrss starts at that of the process that started this one
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(data_root / "bert")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # 12 · (3072 + 768) + 768 units, of which every fourth is closed
    assert found["units"] == [35_136, 46_848]
    assert found["sites"] == 25
    assert found["matrices"] == 109_361_664
    # a quarter of each feed-forward's two matrices and of the pooler's rows is gone, and of the outputs' rows
    hidden, wide = 768, 3072
    per_layer = hidden * wide - hidden * (wide * 3 // 4) + wide * hidden - (wide * 3 // 4) * (hidden * 3 // 4)
    pooler = hidden * hidden - hidden * (hidden * 3 // 4)
    classifier = 2 * hidden - 2 * (hidden * 3 // 4)
    assert found["matrices"] - found["after"] == 12 * per_layer + pooler + classifier
    assert max(found["float64"].values()) <= 1e-10
    assert found["onnx"] <= 1e-4
    assert found["files"] == ["model.onnx", "model.tokenizer.json"]
    assert found["bytes"] < 4.2 * 93e6
    assert found["peak"] < 10e9, f"{found['peak'] / 1e9:.1f} GB"
