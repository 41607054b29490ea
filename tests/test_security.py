"""No file can run code, leave its folder or fill the memory; only what --model and --data name by hand is imported."""

from __future__ import annotations

import ast
import io
import json
import pickle
import stat
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import bise
from bise import BadInput
from bise.cli.app import app
from bise.data.core.coders import coder_of
from bise.data.own.hugging_face import read_hugging_face
from bise.data.own.tables import read_table
from bise.data.sets.cifar10 import cifar10
from bise.network.architectures.pretrained import bert
from bise.network.weights import read_state

SOURCE = Path(bise.__file__).parent
FORBIDDEN = {
    "eval", "exec", "__import__", "loads_pickle", "read_pickle", "extractall", "unpack_archive", "system", "popen",
    "literal_eval", "to_csv",
}  # fmt: skip
MODULES = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle", "yaml", "subprocess", "tarfile", "ctypes"}
NEEDED = {  # a call by this name has to say this
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "library.AutoTokenizer.from_pretrained": ("trust_remote_code", False),
    "library.AutoConfig.from_pretrained": ("trust_remote_code", False),
    "kind.from_pretrained": ("use_safetensors", True),
    "chosen.get_state_dict": ("weights_only", True),
}
ALLOWED = {  # what looks dangerous, and where it is meant
    ("jobs/python_sources.py", "importlib.import_module"): "what --model and --data name",
    ("__init__.py", "import_module"): "our own modules, when they are asked for",
    ("base/extras.py", "import_module"): "scikit-learn",
    ("jobs/loops/lightning.py", "import_module"): "lightning, by one of its two names",
    ("jobs/exporting.py", "torch.export.load"): "the file that was written a moment ago",
    ("studies/origin.py", "subprocess"): "git, asked which commit our own source is of",
    ("data/own/hub_files.py", "datasets.load_from_disk"): "Arrow files and JSON",
}
LOADERS = {"import_module", "load_from_disk", "from_pretrained", "get_state_dict"}


def name_of(node):
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def findings(tree, where):
    """What could unpickle, evaluate or unpack, in one module."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if names == ["pickle"] and [alias.name for alias in node.names] == ["UnpicklingError"]:
                continue  # what torch.load raises
            banned_modules = (name for name in names if name.split(".")[0] in MODULES and (where, name) not in ALLOWED)
            yield from (f"{where}:{node.lineno} imports {name}" for name in banned_modules)
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        last = name.split(".")[-1]
        said = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        if (last == "eval" and name != "eval") or name == "platform.system":  # of a module, of a machine
            continue
        if name in NEEDED:
            option, value = NEEDED[name]
            if said.get(option) is not value:
                yield f"{where}:{node.lineno} {name} without {option}={value}"
        loads = last in LOADERS or name in ("torch.export.load", "torch.jit.load")
        banned = last in FORBIDDEN or name == "compile" or "trust_remote_code" in said
        if name not in NEEDED and (banned or (loads and (where, name) not in ALLOWED)):
            yield f"{where}:{node.lineno} calls {name}"


def test_nothing_in_the_source_unpickles_evaluates_or_unpacks():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    found = [what for path in files for what in findings(ast.parse(path.read_text("utf-8")), _short(path))]
    assert found == []


def _short(path):
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)", "torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)", "eval(text)",
        "import pickle", "from yaml import load", "pd.read_pickle(path)", "archive.extractall(folder)",
        "library.AutoTokenizer.from_pretrained(name)", "torch.jit.load(path)", "importlib.import_module(name)",
    ],
)  # fmt: skip
def test_the_walk_sees_what_it_looks_for(line):
    assert list(findings(ast.parse(line), "elsewhere.py"))


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.fixture
def ran(tmp_path):
    """The file that evil code would make; it has to be missing at the end."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def test_weights_that_would_run_code(tmp_path, ran):
    torch.save({"weight": Evil(ran)}, tmp_path / "a.pt")
    torch.save({"weight": Evil(ran)}, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "c.pt").write_bytes(pickle.dumps(Evil(ran)))
    for name in ("a.pt", "b.pt", "c.pt"):
        with pytest.raises(BadInput, match="can't be read"):
            read_state(tmp_path / name)


def test_data_that_would_run_code(tmp_path, ran):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(pickle.dumps({b"labels": [1], b"data": Evil(ran)}))
    with pytest.raises(BadInput):
        cifar10("test", tmp_path).images()
    (folder / "test_batch").unlink()
    (tmp_path / "images_test.webp").write_bytes(b"")
    np.savez(tmp_path / "labels.npz", y_test=np.array([Evil(ran)], dtype=object))
    with pytest.raises(BadInput, match="y_test"):
        cifar10("test", tmp_path).labels()


def test_folders_that_bring_code(tmp_path, ran, vocabulary, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = f"open({str(ran)!r}, 'w')\nclass Evil: pass\n"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "evil.py").write_text(code)
    auto = {"AutoTokenizer": ["evil.Evil", None], "AutoModelForSequenceClassification": "evil.Evil"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto, "tokenizer_class": "Evil"}))
    (folder / "config.json").write_text(json.dumps({"auto_map": auto, "model_type": "evil"}))
    with pytest.raises(BadInput, match="can't be loaded"):
        coder_of(folder, 8)
    torch.save({"x": Evil(ran)}, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 4, "num_attention_heads": 1}))
    with pytest.raises(BadInput, match="BERT weights"):
        bert(2, folder)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "evil.py"}]}))
    (folder / "dataset_info.json").write_text(json.dumps({"builder_name": "evil", "features": {}}))
    with pytest.raises(BadInput, match="can't be read"):
        read_hugging_face(folder, target="y")


def archive(path, entries, packing=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", packing) as out:
        for name, content in entries:
            out.writestr(name, content)


def array(values):
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def test_an_archive_is_never_unpacked_to_the_disk(tmp_path):
    inside = tmp_path / "deep" / "data"
    inside.mkdir(parents=True)
    (inside / "images_test.webp").write_bytes(b"")
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    names = ["../../escaped", str(tmp_path / "absolute"), "y_test.npy/../../../up", "..\\back"]
    entries = [*((name, b"x") for name in names), (link, b"/etc"), ("y_test.npy", array(np.array([3, 4])))]
    archive(inside / "labels.npz", entries)
    before = sorted(tmp_path.rglob("*"))
    assert cifar10("test", inside).labels().tolist() == [3, 4]
    archive(inside / "w.pt", entries)
    with pytest.raises(BadInput):
        read_state(inside / "w.pt")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, inside / "w.pt"])


def test_bombs_are_refused_before_they_are_unpacked(tmp_path):
    (tmp_path / "images_test.webp").write_bytes(b"")
    bomb = b"\0" * (200 << 20)
    archive(tmp_path / "labels.npz", [("y_test.npy", bomb)], zipfile.ZIP_DEFLATED)
    archive(tmp_path / "w.pt", [("archive/data.pkl", bomb)], zipfile.ZIP_DEFLATED)
    del bomb
    tracemalloc.start()
    with pytest.raises(BadInput, match="unpacks to more"):
        cifar10("test", tmp_path).labels()
    with pytest.raises(BadInput, match="compressed archive"):
        read_state(tmp_path / "w.pt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_formulas_are_text(tmp_path):
    formula = "=cmd|' /C calc'!A0"
    text = "y,b,x\n" + "".join(f'"{formula if i % 2 else "+1+1"}",@SUM(A1),{i}\n' for i in range(8))
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv", target="y", bias="b").names.classes == ("+1+1", formula)


@pytest.mark.parametrize("command", ["audit", "extract", "verify"])
def test_the_help_says_what_is_imported_and_run(command):
    shown = " ".join(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "returns the model" in shown
    assert "imported and run" in shown.replace("│ │ ", "").replace("│", "")
