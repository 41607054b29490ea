"""A run folder that changes while a job works in it: folders swapped for links, at every call of the system."""

from __future__ import annotations

import ast
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

import bise
from bise import BadInput
from bise.base.errors import Unwritable
from bise.base.files import SCHEMA, append_bytes, read_bytes, read_json, read_tensors, write_bytes, write_json
from bise.base.plain import NotPlain, check_plain, make_folder, move, remove, remove_empty, remove_folder
from bise.engine.checkpoints import Checkpoint
from bise.network.placement import place
from bise.network.subnetwork import Subnetwork
from bise.runs.events import append_events
from bise.runs.folder import Run
from bise.runs.reading import read_run
from conftest import toy, toy_model

SOURCE = Path(bise.__file__).parent
SECRET = b"not yours\n"
WATCHED = ("open", "mkdir", "replace", "rename", "unlink", "rmdir", "scandir", "lstat", "stat")
SWAPPED = ["checkpoints"] + [
    pytest.param(name, marks=pytest.mark.long)
    for name in ("checkpoints/finetune", "subnetwork", "finetuned", "events", "events/finetuned")
]
# what a job meets when its folder changes under it
SAID = (BadInput, Unwritable, NotPlain, FileNotFoundError)


@pytest.fixture(scope="module")
def network():
    return Subnetwork(toy_model(), place(toy_model(), toy().tensors[0][:2]).sites)


def begun(folder: Path) -> None:
    """A run with a subnetwork, an unfinished finetuning and what a killed process left."""
    write_json(folder / "config.json", {})
    write_json(folder / "summary.json", {})
    for name in ("subnetwork", "finetuned", "checkpoints/finetune", "events/finetuned"):
        write_bytes(folder / name / "subnetwork.json", b"{}")
        write_bytes(folder / name / ".x.1.part", b"half")
    write_json(folder / "finetune.json", {"finetune": 1})


def job(folder: Path, sub: Subnetwork) -> None:
    """Everything that a job does to a run folder, without the learning between."""
    with Run(folder, {"finetune": 1}, job="finetune", resume=True, tensorboard=True) as run:
        log = run.log("finetuned")
        state = Checkpoint(run.checkpoint("finetuned"), key="k")
        state.load()
        for epoch in (1, 2):
            log({"epoch": epoch, "loss": 0.5})
            state.save({"x": torch.zeros(2)}, {})
        state.conclude({"x": torch.zeros(2)}, {})
        assert state.load() is not None
        run.once("finetuned", lambda: {"accuracy": 1.0})
        sub.save(run.folder / "finetuned")
        run.finish({"finetune": {}})


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def make_outside(folder: Path) -> dict[str, bytes | None]:
    """A folder of somebody else, with all the names that a run has."""
    inner = ("subnetwork.json", "subnetwork.safetensors", "finetuned.safetensors", "finetuned.previous.safetensors")
    for where in (folder, folder / "finetune", folder / "finetuned", folder / ".finetune", folder / ".x.1.part"):
        for name in (*inner, "finetuned.json", "file"):
            write_bytes(where / name, SECRET)
    write_bytes(folder / ".y.1.part", SECRET)
    return contents(folder)


@contextmanager
def at_call(number: int, do):
    """While open, the `number`-th watched call of the system is preceded by `do`; gives the list of calls."""
    calls: list[str] = []

    def watched(name, real):
        def call(*arguments, **named):
            calls.append(name)
            if len(calls) == number:
                calls.append("swapping")
                do()
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WATCHED:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        patch.setattr(os, "fsync", lambda handle: None)  # it takes most of the time, and nothing here is about power
        yield calls


def swap(path: Path, outside: Path) -> None:
    with suppress(OSError):
        path.rename(path.with_name(f"was-{path.name}"))
    with suppress(FileExistsError, NotADirectoryError, FileNotFoundError):
        path.symlink_to(outside)


@pytest.mark.parametrize("name", SWAPPED)
def test_a_folder_swapped_for_a_link_at_any_moment_leads_nowhere(network, tmp_path, name):
    pytest.importorskip("tensorboard")
    whole, outside, folder = tmp_path / "whole", tmp_path / "outside", tmp_path / "run"
    begun(whole)
    before = make_outside(outside)
    shutil.copytree(whole, folder)
    with at_call(0, None) as calls:
        job(folder, network)
    assert len(calls) > 200
    refused = 0
    for number in range(1, len(calls) + 1):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        with at_call(number, lambda: swap(folder / name, outside)):
            try:
                job(folder, network)
            except SAID:
                refused += 1
        assert contents(outside) == before, f"at call {number}"
    assert refused > 10 or name == "subnetwork", "a finetuning only reads that"


def test_nothing_outside_is_read_through_a_swapped_folder(network, tmp_path):
    whole, outside, folder = tmp_path / "whole", tmp_path / "outside", tmp_path / "run"
    begun(whole)
    for where in (whole / "subnetwork", outside):
        network.save(where)
    write_json(outside / "subnetwork.json", {**read_json(outside / "subnetwork.json"), "bottleneck": "outside"})
    shutil.copytree(whole, folder)
    with at_call(0, None) as calls:
        assert read_run(folder).saved["subnetwork"].content["bottleneck"] == network.bottleneck
    kept = 0
    for number in range(1, len(calls) + 1):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        with at_call(number, lambda: swap(folder / "subnetwork", outside)), suppress(BadInput):
            found = read_run(folder).saved
            assert all(one.content["bottleneck"] != "outside" for one in found.values()), f"at call {number}"
            kept += len(found)
    assert 0 < kept < len(calls), "swapped after it was read, and before"


CALLS = {
    "read": lambda path: read_bytes(path),
    "read json": lambda path: read_json(path),
    "read tensors": lambda path: read_tensors(path),
    "write": lambda path: write_bytes(path, b"new"),
    "append": lambda path: append_bytes(path, b"new"),
    "events": lambda path: append_events(path.parent / "inner"),
    "move away": lambda path: move(path, path.with_name("moved")),
    "move out": lambda path: move(path.parent.parent / "file", path),
    "move in": lambda path: move(path, path.parent.parent / "moved"),
    "remove": lambda path: remove(path),
    "remove folder": lambda path: remove_folder(path.parent / "folder"),
    "remove link": lambda path: remove_folder(path.parent),
    "remove empty": lambda path: remove_empty(path.parent / "empty"),
    "make": lambda path: make_folder(path.parent / "new" / "newer"),
    "a name that leads out": lambda path: write_bytes(path.parent.parent / "real" / ".." / ".." / "file", b"new"),
    "remove what leads out": lambda path: remove_folder(path.parent.parent / "real" / ".." / ".." / "outside"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_refuses_a_folder_that_became_a_link(tmp_path, call):
    if call is CALLS["events"]:
        pytest.importorskip("tensorboard")
    folder, outside = tmp_path / "run", tmp_path / "outside"
    for where in (folder / "real", outside, outside / "folder"):
        write_bytes(where / "file", SECRET)
    (outside / "empty").mkdir()
    write_bytes(folder / "file", b"mine")
    write_bytes(tmp_path / "file", SECRET)
    check_plain(folder)
    (folder / "part").symlink_to(outside)
    before = contents(outside)
    with pytest.raises((BadInput, OSError), match=r"symbolic link|leads out"):
        call(folder / "part" / "file")
    assert contents(outside) == before
    assert (tmp_path / "file").read_bytes() == SECRET
    assert (folder / "file").read_bytes() == b"mine"


def test_a_link_within_a_removed_folder_goes_and_what_it_leads_to_stays(tmp_path):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    before = make_outside(outside)
    write_bytes(folder / "part" / "inner" / "file", b"")
    check_plain(folder)
    (folder / "part" / "inner" / "link").symlink_to(outside)
    (folder / "part" / "file").symlink_to(outside / "file")
    os.mkfifo(folder / "part" / "pipe")
    remove_folder(folder / "part")
    assert not (folder / "part").exists()
    assert contents(outside) == before


def test_the_run_folder_itself_and_your_own_paths_may_go_through_links(network, tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "far").mkdir()
    (tmp_path / "disk" / "near").symlink_to(tmp_path / "disk" / "far")
    folder = tmp_path / "runs" / "near"
    begun(folder)
    job(folder, network)
    assert read_json(tmp_path / "disk/far/summary.json") == {"schema": SCHEMA, "finetune": {}}
    assert not list((tmp_path / "disk/far").glob("checkpoints/finetune*"))
    write_json(tmp_path / "runs" / "own.json", {"a": 1})
    assert read_json(tmp_path / "disk" / "own.json")["a"] == 1


def test_relative_paths_mean_the_folder_that_one_works_in(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name / "run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    check_plain(Path("run"))
    write_bytes(Path("run/part/file"), b"1")
    monkeypatch.chdir(tmp_path / "two")
    write_bytes(Path("run/part/file"), b"2")
    assert read_bytes(Path("run/part/file")) == b"2"
    assert [(tmp_path / name / "run/part/file").read_bytes() for name in ("one", "two")] == [b"1", b"2"]


def test_without_relative_names_a_job_goes_the_same_way(network, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("bise.base.plain.RELATIVE", False)
    begun(tmp_path / "run")
    job(tmp_path / "run", network)
    found = {str(path.relative_to(tmp_path / "run")).partition(".tfevents")[0] for path in tmp_path.glob("run/*/*")}
    assert found == {
        "events/finetuned",
        "finetuned/subnetwork.json",
        "finetuned/subnetwork.safetensors",
        "subnetwork/subnetwork.json",
    }


def test_folders_within_folders_have_an_end(tmp_path):
    deep = tmp_path / "run" / Path(*["x"] * 33)
    deep.mkdir(parents=True)
    with pytest.raises(BadInput, match="folders within folders, more than 32"):
        check_plain(tmp_path / "run")
    deep.rmdir()
    check_plain(tmp_path / "run")


BY_PATH = {
    "base/output.py": "the null device, in the place of a closed output",
    "cli/several.py": "the null device; a copy of a run, made by a further process for itself",
    "data/sets/biased_madlibs.py": "data of the user's",
    "data/sets/celeba.py": "data of the user's",
    "data/sets/cifar10.py": "data of the user's",
    "data/core/coders.py": "the user's vocabulary",
    "data/own/arrow_files.py": "data of the user's",
    "data/own/columns.py": "data of the user's",
    "data/sets/fetching.py": "downloads, in the cache",
    "data/sets/idx.py": "data of the user's",
    "data/core/pictures.py": "data of the user's",
    "jobs/bench_rows.py": "what the system knows of this process's memory",
    "jobs/exporting.py": "a file that the user named with --out; torch writes it",
    "jobs/pretrained.py": "a new folder that the user named, and files beside the user's model",
    "engine/storage.py": "a file without a name, of a store of samples",
    "network/weights.py": "weights that the user named, or the run's configuration: only read, and only as tensors",
    "reporting/document.py": "the pages' style, from the package",
    "reporting/page.py": "the page's script, from the package",
    "runs/folder.py": "the run folder itself, before there is a run",
    "runs/trust.py": "the record of what the user trusts, which lies far from every run",
    "studies/page.py": "the README of a checkout",
    "studies/reproduction.py": "folders of the reproduction, which are no runs",
    "studies/runner.py": "the cache of the reproduction, which holds no runs",
}
"""{module that opens, makes or removes by a path: what lies there}; a run's files go through the file modules."""
FILE_MODULES = ("base/plain.py", "base/files.py")
METHODS = {
    "fdopen", "hardlink_to", "makedirs", "mkdir", "open", "read_bytes", "read_text", "removedirs", "rename", "renames",
    "rmdir", "rmtree", "savez", "symlink_to", "tofile", "touch", "truncate", "unlink", "write_bytes", "write_text",
}  # fmt: skip
FUNCTIONS = {
    "SummaryWriter", "copyfile", "copytree", "load_file", "move", "np.load", "np.save", "open", "os.remove",
    "os.replace", "safe_open", "save_file", "shutil.copy", "shutil.move", "torch.export.save", "torch.save",
}  # fmt: skip


def by_path(tree: ast.AST, ours: set[str]):
    """Calls that open, make, move or remove a file by its path, but for those of the file modules."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        method = isinstance(node.func, ast.Attribute) and node.func.attr
        # a path's replace takes one argument, that of a text two
        moves = method == "replace" and len(node.args) == 1 and not node.keywords
        if name not in ours and (name in FUNCTIONS or method in METHODS or moves):
            yield name


def of_file_modules(tree: ast.AST) -> set[str]:
    """The names that a module has from the file modules."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name for node in froms if node.module in ("bise.base.plain", "bise.base.files") for alias in node.names
    }


def test_only_the_file_modules_open_by_path_what_lies_in_a_run():
    found = set()
    for path in SOURCE.rglob("*.py"):
        tree, name = ast.parse(path.read_text("utf-8")), str(path.relative_to(SOURCE))
        if name not in FILE_MODULES and [call for call in by_path(tree, of_file_modules(tree)) if not _is_other(call)]:
            found.add(name)
    assert found == set(BY_PATH)
    used = ast.parse((SOURCE / "base/files.py").read_text("utf-8"))
    assert set(by_path(used, of_file_modules(used))) == {"os.fdopen"}, "files.py opens through plain.py"


def _is_other(call: str) -> bool:
    """What only looks like a call on a path."""
    return call == "self.shape_env.replace"


@pytest.mark.parametrize(
    "line",
    [
        "open(p)",
        "p.open('rb')",
        "os.open(p, 0)",
        "io.open(p)",
        "(a / b).read_text()",
        "p.write_bytes(b'')",
        "p.unlink()",
        "shutil.rmtree(p)",
        "p.replace(q)",
        "os.replace(p, q)",
        "os.remove(p)",
        "SummaryWriter(p)",
        "safe_open(p)",
    ],
)
def test_the_walk_sees_what_it_looks_for(line):
    assert list(by_path(ast.parse(line), set()))


def test_the_walk_passes_over_texts_and_the_file_modules():
    lines = "from bise.base.plain import move\nmove(p, q)\n"
    lines += "text.replace('a', 'b')\nreplace(config, a=1)\nmoment.replace(a=1)"
    tree = ast.parse(lines)
    assert not list(by_path(tree, of_file_modules(tree)))
