"""Each command killed at each of its writes, and two processes that work in one folder at the same time."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct

import pytest
import torch
from safetensors import safe_open

from bise import load_pretrained
from conftest import copy_run
from small_job import OWN
from warm import Warm

QUICK = ["--steps", "4", "--upsilon", "1", "--batch-size", "60", "--seed", "0"]
BENCH = ["--methods", "erm,jtt,dfr", "--seeds", "1", "--epochs", "2", "--limit", "200"]
OFTEN = ["--checkpoint-every", "0"]
TIMES = {"seconds", "latency_by_batch", "machine", "phases", "path", "peak_bytes", "samples"}
"""Of a summary: what no two runs have in common; of a row that was stopped, a comparison counts no costs."""


@pytest.fixture(scope="module")
def warm():
    process = Warm()
    yield process
    process.close()


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """A few pictures with a white bar, which stands for a digit, in MNIST's format."""
    root = tmp_path_factory.mktemp("data")
    (root / "mnist").mkdir()
    for part, count in (("train", 1500), ("t10k", 3000)):
        y = torch.arange(count) % 10
        x = torch.zeros(count, 28, 28, dtype=torch.uint8)
        x[torch.arange(count), 2 * y + 4, 4:24] = 255
        for name, values in ((f"{part}-labels-idx1", y), (f"{part}-images-idx3", x)):
            head = struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape)
            raw = gzip.compress(head + values.to(torch.uint8).numpy().tobytes(), 1)
            (root / f"mnist/{name}-ubyte.gz").write_bytes(raw)
    return root


@pytest.fixture(scope="module")
def extracted(warm, tmp_path_factory):
    """The run that the other commands work on."""
    folder = tmp_path_factory.mktemp("extracted") / "run"
    good(warm, ["extract", *OWN, *QUICK, "--out", folder])
    return folder


def good(warm, words):
    (found,) = warm.run(words)
    assert found[0] == 0, found
    return found


def commands(folder, mnist):
    """{name: (its words, whether it works on a run that is there already)}; each writes in `folder` alone."""
    run = folder / "run"
    train = ["train", "biased-mnist", "--limit", "100", "--epochs", "2", "--data-root", mnist, "--device", "cpu"]
    return {
        "train": ([*train, "--out", run, *OFTEN], False),
        "extract": (["extract", *OWN, *QUICK, "--out", run, *OFTEN], False),
        "finetune": (["finetune", run, "--epochs", "2", *OFTEN], True),
        "refit": (["refit", run], True),
        "shrink": (["shrink", run, "--out", run / "small.pt2"], True),
        "export": (["export", run, folder / "small.onnx"], True),
        "report": (["report", run], True),
        "extract and refit": (["extract", *OWN, *QUICK, "--out", run, "--refit", *OFTEN], False),
        "front": (["front", run, "--budget", "0.5", "--budget", "0.7", *OFTEN], True),
        "bench": (["bench", *OWN, *BENCH, "--out", run, *OFTEN], False),
        "folder": (["shrink", run, "--folder", folder / "deployed"], True),
        "card": (["report", run, "--card"], True),
        "compare": (["compare", run, run, "--out", folder / "compared.html"], True),
        "junit": (["audit", run, "--fail-under", "accuracy=0.1", "--junit", folder / "limits.xml"], True),
        "audit": (["audit", run], True),
        "verify": (["verify", run], True),
    }


def timeless(content):
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if key not in TIMES}
    return [timeless(value) for value in content] if isinstance(content, list) else content


def content(folder):
    """{file: what is in it, without times}; a file that is half written is an error."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name.startswith("."):
            continue
        raw = path.read_bytes()
        if path.suffix == ".json":
            raw = timeless(json.loads(raw))
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                assert all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118
        elif path.suffix == ".html":
            assert raw.rstrip().endswith(b"</html>")
            raw = "a page"
        elif path.suffix in (".pt2", ".onnx"):
            raw = "a network"
        found[str(path.relative_to(folder))] = raw
    return found


def left(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))


def prepare(folder, extracted, there):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if there:
        copy_run(extracted, folder / "run")


def killed_at(warm, words, writes, *, folder, extracted, there):
    """Kill a command at each of these writes, and let it go on."""
    resumable = "--checkpoint-every" in words
    prepare(folder, extracted, there)
    *_, count = good(warm, words)
    if not there:  # the first also notes that the folder is trusted, which is a write that later ones lack
        prepare(folder, extracted, there)
        *_, count = good(warm, words)
    whole = content(folder)
    assert left(folder) == []
    for n in (n for n in writes if n <= count):
        prepare(folder, extracted, there)
        ((code, _, errors, _),) = warm.run(words, kill=n)
        assert code == -9, (n, code, errors)
        content(folder)
        again = [*words, "--resume"] if resumable else words
        ((code, _, errors, _),) = warm.run(again)
        if code == 2 and "begun and not finished; go on with --resume" in errors:
            ((code, _, errors, _),) = warm.run([*again, "--resume"])
        if code == 2 and "exists and isn't empty; name a new folder" in errors:
            load_pretrained(folder / "deployed")  # in one step it was there as a whole, and can't be made again
            shutil.rmtree(folder / "deployed")
            ((code, _, errors, _),) = warm.run(again)
        assert code == 0, (n, errors)
        assert content(folder) == whole, n
        assert left(folder) == [], n
    return count


WRITES = {
    "train": (5, 60),
    "extract": (9, 110),
    "finetune": (3, 7, 90),
    "refit": (3, 17, 70, 72),
    "shrink": (11, 19),
    "export": (19,),
    "report": (1, 4, 5, 6, 8),
    "extract and refit": (190,),
    "front": (190,),
    "bench": (7, 60, 290),
    "folder": (20, 60),
    "card": (8,),
    "compare": (9,),
    "junit": (9,),
}
"""A few of each command's: at which of them a quick test kills it."""
QUICKEST = ("extract", "finetune", "refit", "report", "bench")
SLOW = [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.long) for name in WRITES]


@pytest.mark.parametrize("name", SLOW)
def test_a_kill_at_a_write_leaves_nothing_half_done(warm, extracted, mnist, tmp_path, name):
    words, there = commands(tmp_path / "at", mnist)[name]
    count = killed_at(warm, words, WRITES[name], folder=tmp_path / "at", extracted=extracted, there=there)
    assert count >= max(WRITES[name])


CHUNK = 50
ALL = "BISE_ALL_KILLS" in os.environ
"""Whether each of the first 200 writes is tried, and pairs 40 times; it takes hours, and otherwise a part is enough."""


@pytest.mark.long
@pytest.mark.parametrize("first", [*range(1, 201, CHUNK), 201])
@pytest.mark.parametrize("name", WRITES)
def test_a_kill_at_each_write_leaves_nothing_half_done(warm, extracted, mnist, tmp_path, name, first):
    """Each of the first 200 or every tenth of them, and some of those behind."""
    words, there = commands(tmp_path / "at", mnist)[name]
    step = 1 if ALL else 10
    writes = range(201, 2000, 23 * step) if first == 201 else range(first, first + CHUNK, step)
    count = killed_at(warm, words, writes, folder=tmp_path / "at", extracted=extracted, there=there)
    print(f"{name}: killed at {len([n for n in writes if n <= count])} of {count} writes, from {first} on")


@pytest.mark.parametrize("name", ["audit", "verify"])
def test_what_only_reads_writes_nothing_in_the_folder(warm, extracted, mnist, tmp_path, name):
    words, _ = commands(tmp_path / "at", mnist)[name]
    prepare(tmp_path / "at", extracted, True)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    good(warm, words)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# two at the same time

REFUSED = ("is in use by another process", "begun and not finished")


def both(warm, words, *, folder, extracted, there):
    """Start a command twice at the same time: one works; the other does too, or ends with one sentence."""
    prepare(folder, extracted, there)
    found = warm.run(words, words)
    codes = sorted(code for code, *_ in found)
    assert codes in ([0, 0], [0, 2]), found
    for code, _, errors, _ in found:
        if code:
            (line,) = errors.splitlines()
            assert line.startswith("bise: ")
            assert any(reason in line for reason in REFUSED), line
    assert left(folder) == []
    return content(folder)


def together(warm, name, times, tmp_path, extracted, mnist):
    words, there = commands(tmp_path / "at", mnist)[name]
    prepare(tmp_path / "at", extracted, there)
    good(warm, words)
    whole = content(tmp_path / "at")
    for _ in range(times):
        assert both(warm, words, folder=tmp_path / "at", extracted=extracted, there=there) == whole


@pytest.mark.parametrize("name", ["extract", pytest.param("finetune", marks=pytest.mark.long), "report"])
def test_two_processes_on_one_folder(warm, extracted, mnist, tmp_path, name):
    together(warm, name, 3, tmp_path, extracted, mnist)


@pytest.mark.long
@pytest.mark.parametrize("name", WRITES)
def test_two_processes_on_one_folder_many_times(warm, extracted, mnist, tmp_path, name):
    together(warm, name, 40 if ALL else 8, tmp_path, extracted, mnist)


@pytest.mark.parametrize("name", ["extract", pytest.param("finetune", marks=pytest.mark.long)])
def test_two_processes_go_on_with_one_run(warm, extracted, mnist, tmp_path, name):
    """Both resume what a third one, which was killed, had begun."""
    words, there = commands(tmp_path / "at", mnist)[name]
    prepare(tmp_path / "at", extracted, there)
    good(warm, words)
    whole = content(tmp_path / "at")
    prepare(tmp_path / "at", extracted, there)
    assert warm.run(words, kill=60)[0][0] == -9
    found = warm.run([*words, "--resume"], [*words, "--resume"])
    assert sorted(code for code, *_ in found) in ([0, 0], [0, 2]), found
    assert content(tmp_path / "at") == whole
    assert left(tmp_path / "at") == []
