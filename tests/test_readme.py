"""The README's Python runs as it stands, on a user's names."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from conftest import toy, toy_model, trained

README = Path(__file__).parent.parent / "README.md"


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    train = toy()
    names = {
        "images": train.dataset,
        "targets": train.y,
        "backgrounds": train.b,
        "model": trained(toy_model(), train),
        "val": toy(rho=1 / 3, seed=1),
        "test": toy(rho=1 / 3, seed=2),
        "example": train.tensors[0][:8],
    }
    exec(compile(block, str(README), "exec"), names)
    assert capsys.readouterr().out.count("\nworst group") == 2
    assert (tmp_path / "mine/subnetwork.safetensors").exists()
    assert (tmp_path / "model.pt2").exists()
    assert not torch.equal(names["tuned"].network[0].weight, names["model"][0].weight)


def test_the_readmes_commands_exist():
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\S+)$", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
