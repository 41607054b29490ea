"""Stopping and going on at the command line: whose folder it is, what is done again, and what may go wrong beside."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
import small_job
from bise import BadInput, BiseWarning
from bise.base.errors import NonFinite
from bise.base.files import read_json
from bise.cli.app import app
from bise.data import Labelled, PictureFiles, Transform
from bise.data.core.identity import data_sha256
from bise.engine.checkpoints import Checkpoint
from bise.engine.config import TrainConfig
from bise.engine.training import _Training
from bise.extraction.config import ExtractConfig
from bise.jobs.demo import demo, settings
from bise.network.architectures.small import digit_net
from bise.runs.folder import _difference
from conftest import ROOT, copy_run, toy, toy_model
from small_job import OWN, QUICK, splits


class Stop(Exception):
    """Stands in for a kill, right after a checkpoint; benchmarks/kill.py kills in earnest."""


def other_splits(split):
    return splits(split)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def sentence(result, code=2):
    """The one line that a user sees."""
    assert result.exit_code == code, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("bise: ")
    return line


def stopped(saves, *arguments):
    """A command that comes to its end right after so many checkpoints."""
    save, seen = Checkpoint.save, []

    def counted(self, tensors, state):
        save(self, tensors, state)
        seen.append(self.path)
        if len(seen) == saves:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", counted)
        result = run(*arguments, "--checkpoint-every", "0")
    assert "Stop" in sentence(result, 1)
    return seen


def content(folder):
    """Every file of a run that holds no times."""
    made = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: raw for name, raw in made.items() if name.suffix in (".safetensors", ".jsonl")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An extraction and a finetuning without a stop."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    good("extract", *OWN, *QUICK, "--out", folder)
    shutil.copytree(folder, folder.with_name("extracted"))
    good("finetune", folder, "--epochs", "2")
    return folder


@pytest.fixture
def extracted(whole, tmp_path):
    return copy_run(whole.with_name("extracted"), tmp_path / "run")


# whose folder it is


def test_a_finished_run_is_recognised_and_left_alone(extracted):
    before = {path: path.stat().st_mtime_ns for path in extracted.rglob("*")}
    for more in ([], ["--resume"]):
        result = good("extract", *OWN, *QUICK, "--out", extracted, *more)
        assert "holds this run, finished; nothing was done" in result.stderr
        assert "subnetwork" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in extracted.rglob("*")} == before
    shown = json.loads(good("extract", *OWN, *QUICK, "--out", extracted, "--json").stdout)
    assert shown == {key: value for key, value in read_json(extracted / "summary.json").items() if key != "schema"}


def test_another_configuration_other_data_and_other_weights_are_refused(extracted, tmp_path):
    out = ["--out", extracted, "--resume"]
    line = sentence(run("extract", *OWN, *QUICK, "--gamma", "2", *out))
    assert "another configuration (extract.gamma is 0.3 there and 2.0 here); choose another folder" in line
    other = ["--model", "small_job:make", "--data", "test_stopping:other_splits"]
    assert "source.data is small_job:splits there" in sentence(run("extract", *other, *QUICK, *out))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            small_job,
            "splits",
            lambda split, splits=splits: toy(seed=9) if split == "train" else splits(split),
        )
        assert "(sha256.train is " in sentence(run("extract", *OWN, *QUICK, *out))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_job, "make", toy_model)
        assert "(sha256.weights is " in sentence(run("extract", *OWN, *QUICK, *out))
        assert "weights of this Sequential are not the ones" in sentence(run("finetune", extracted))
    assert "is no run of bise" in sentence(run("extract", *OWN, *QUICK, "--resume", "--out", ROOT / "tests"))


def test_a_run_that_was_begun_goes_on_only_when_asked(whole, tmp_path):
    out = tmp_path / "run"
    stopped(7, "extract", *OWN, *QUICK, "--out", out)
    assert "begun and not finished; go on with --resume" in sentence(run("extract", *OWN, *QUICK, "--out", out))
    assert "isn't finished; run extract again with --resume" in sentence(run("finetune", out))
    assert "another configuration" in sentence(run("extract", *OWN, *QUICK, "--out", out, "--resume", "--seed", "3"))
    (out / "metrics.jsonl").write_text((out / "metrics.jsonl").read_text() + '{"job": "extr')  # half a row
    (out / ".config.json.1.part").write_text("{")
    good("extract", *OWN, *QUICK, "--out", out, "--resume")
    assert content(out) == content(whole.with_name("extracted"))
    assert {path.name for path in out.iterdir()} == {path.name for path in whole.with_name("extracted").iterdir()}


def test_what_is_left_of_a_process_that_died_at_once_is_no_obstacle(tmp_path):
    out = tmp_path / "run"
    (out / "checkpoints/extract").mkdir(parents=True)
    (out / ".config.json.77.part").write_text("{")
    (out / ".lock").write_text("77")
    good("extract", *OWN, *QUICK, "--out", out)


def test_finetuning_does_no_part_twice(whole, extracted, monkeypatch):
    command = ["finetune", extracted, "--epochs", "2"]
    seen = stopped(15, *command)
    assert {path.stem for path in seen} == {"finetuned", "dense_finetuned"}
    assert "begun and not finished" in sentence(run(*command))
    epoch, trained_epochs = _Training.epoch, []
    monkeypatch.setattr(_Training, "epoch", lambda self, *given: trained_epochs.append(self) or epoch(self, *given))
    good(*command, "--resume")
    assert len(trained_epochs) <= 2, "the dense control's alone"
    assert content(extracted) == content(whole)
    rows = [json.loads(line) for line in (extracted / "metrics.jsonl").read_text().splitlines()]
    tuned = [(row["job"], row["epoch"]) for row in rows if row["job"] != "extract"]
    assert tuned == [("finetuned", 1), ("finetuned", 2), ("dense_finetuned", 1), ("dense_finetuned", 2)]
    assert "holds this run, finished" in good(*command).stderr
    line = sentence(run("finetune", extracted, "--epochs", "3"))
    assert "(finetune.epochs is 2 there and 3 here); delete" in line
    (extracted / "finetune.json").unlink()
    stopped(15, "finetune", extracted, "--epochs", "3")
    (extracted / "finetune.json").unlink()
    good(*command)  # nothing of the one that was begun is taken for its own
    assert content(extracted) == content(whole)


def test_states_on_their_way_out_are_no_unfinished_job(extracted):
    (extracted / "checkpoints/.extract").mkdir(parents=True)  # killed in the moment after the summary was written
    assert "holds this run, finished" in good("extract", *OWN, *QUICK, "--out", extracted).stderr
    good("finetune", extracted, "--epochs", "1")
    assert not (extracted / "checkpoints").exists()


def test_other_commands_say_which_job_has_to_go_on(extracted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "begun"
    stopped(7, "extract", *OWN, *QUICK, "--out", out)
    for command in (["verify", out], ["shrink", out], ["finetune", out], ["audit", out]):
        assert "run extract again with --resume first" in sentence(run(*command))
    assert "go on with --resume" in sentence(run("report", out))
    line = sentence(run("shrink", extracted, "--of", "finetuned"))
    assert line.endswith(f"{extracted / 'finetuned'} does not exist; bise finetune {extracted} makes one")
    stopped(15, "finetune", extracted, "--epochs", "2")
    assert (extracted / "finetuned").exists(), "the dense control is missing"
    for command in (["verify", extracted], ["shrink", extracted, "--of", "finetuned"]):
        assert "run finetune again with --resume first" in sentence(run(*command))
    good("finetune", extracted, "--epochs", "2", "--resume")
    assert good("verify", extracted).stdout.count("✓ holds") == 10


def test_weights_that_a_run_has_not_made_yet_are_not_looked_for_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(digit_net(5).state_dict(), tmp_path / "model.safetensors")  # somebody else's
    with monkeypatch.context() as patch:
        patch.setattr(_Training, "epoch", raises(Stop))
        with pytest.raises(Stop):
            demo(tmp_path / "run")
    line = sentence(run("extract", "--from", tmp_path / "run", *QUICK, "--out", tmp_path / "mine"))
    assert f"{tmp_path / 'run/model.safetensors'} does not exist; run demo again with --resume first" in line
    assert not (tmp_path / "mine").exists()


def raises(error):
    def function(*_, **__):
        raise error

    return function


def test_a_job_that_refuses_its_input_leaves_no_folder_for_tensorboard_either(tmp_path):
    pytest.importorskip("tensorboard")
    out = tmp_path / "runs/run"
    command = ["extract", *OWN, *QUICK, "--out", out, "--tensorboard"]
    sentence(run(*command, "--sites", "nowhere"))
    assert not out.parent.exists()
    good(*command)
    assert list((out / "events/extract").iterdir())


def test_data_are_known_by_what_is_in_them(tmp_path):
    assert data_sha256(toy()) == data_sha256(toy())
    x, labelled = toy().tensors[0], toy()
    changed = x.clone()
    changed[5, 2] += 1e-6
    sets = [Labelled(TensorDataset(part), y=labelled.y, b=labelled.b) for part in (x, changed)]
    sets.append(Labelled(TensorDataset(x), y=labelled.y, b=labelled.b.flip(0)))
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file in files:
        Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(file)
    pictures = PictureFiles(files, size=2)
    hashes = [data_sha256(data) for data in sets] + [data_sha256(pictures)]
    files[1].write_bytes(files[1].read_bytes()[:-1])
    hashes += [data_sha256(pictures), data_sha256(None)]
    files[2].unlink()
    assert len({*hashes, data_sha256(pictures)}) == 7


# one process a folder

HOLD = """
import os, sys, time
from pathlib import Path
from bise.base.locks import Lock
lock = Lock(Path(sys.argv[1]))
if not os.fork():  # as processes that read ahead are
    os.close(1)
    time.sleep(3)
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_gone(extracted):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, extracted], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    for command in (["finetune", extracted, "--epochs", "1"], ["shrink", extracted]):
        assert f"is in use by another process ({holder.pid})" in sentence(run(*command))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    good("finetune", extracted, "--epochs", "1")
    assert not (extracted / ".lock").exists()


# disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting isn't permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def epochs(out):
    """How far the checkpoint of an extraction is, read without our code."""
    files = [out / f"checkpoints/extract/extract{which}.safetensors" for which in ("", ".previous")]
    with safe_open(next(file for file in files if file.exists()), framework="pt") as file:
        assert all(file.get_tensor(name).isfinite().all() for name in ("scores", "velocity", "raw", "heads"))
        return len(json.loads(file.metadata()["state"])["history"])


def test_a_full_disk_and_a_read_only_one(whole, small_disk, tmp_path):
    out = small_disk / "run"
    command = ["extract", *OWN, *QUICK, "--out", out]
    stopped(7, *command)
    before = epochs(out)
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "ballast").write_bytes(bytes(free))
    line = sentence(run(*command, "--resume"), 1)
    assert "can't be written (No space left on device)" in line
    assert line.endswith("then go on with --resume")
    assert epochs(out) >= before > 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for folder in (out, small_disk / "new"):
        line = sentence(run("extract", *OWN, *QUICK, "--out", folder, "--resume"))
        assert "can't be written (Read-only file system)" in line
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    (small_disk / "ballast").unlink()
    good(*command, "--resume")
    assert content(out) == content(whole.with_name("extracted"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "holds this run, finished" in good(*command).stderr
    for refused, remedy in (
        (["shrink", out], "name a file elsewhere with --out or --onnx, or work on a copy"),
        (["export", out, out / "small.pt2"], "name a file elsewhere"),
        (["report", out], "name a file elsewhere with --out"),
        (["finetune", out], "work on a copy of the run"),
    ):
        line = sentence(run(*refused))
        assert line.startswith(f"bise: {out} can't be written")
        assert remedy in line
    file, page = tmp_path / "small.pt2", tmp_path / "page.html"
    assert f"its summary and its page don't tell of {file}" in good("export", out, file).stderr
    good("report", out, "--out", page)
    assert file.stat().st_size > 0
    assert page.stat().st_size > 0


def test_a_report_gathers_what_a_full_disk_left_out(extracted, monkeypatch):
    made = {name: (extracted / name).read_bytes() for name in ("thresholds.json", "samples.json")}
    for name in made:
        (extracted / name).unlink()
    good("report", extracted)
    assert {name: (extracted / name).read_bytes() for name in made} == made
    page = (extracted / "report.html").read_text()
    assert all(f'id="{part}"' in page for part in ("threshold", "samples"))
    (extracted / "samples.json").unlink()
    monkeypatch.setattr(small_job, "splits", lambda split: splits("val" if split == "train" else split))
    said = good("report", extracted).stderr
    assert "samples.json of" in said
    assert "train changed since the run was made; bring the data back), so the page has no samples" in said
    assert not (extracted / "samples.json").exists()


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(whole, tmp_path):
    out = tmp_path / "run"
    seen = stopped(7, "extract", *OWN, *QUICK, "--out", out)
    reached = epochs(out)
    size, before = seen[-1].stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 100, before[1]))  # of any file that is written
    try:
        result = run("extract", *OWN, *QUICK, "--out", out, "--resume", "--checkpoint-every", "0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"{seen[-1]} can't be written (File too large)" in sentence(result, 1)
    assert epochs(out) >= reached > 0
    good("extract", *OWN, *QUICK, "--out", out, "--resume")
    assert content(out) == content(whole.with_name("extracted"))


# data that go away, numbers that are none, memory that is short


def pictures(folder):
    y = torch.arange(60) % 2
    b = torch.where(torch.arange(60) % 5 == 0, 1 - y, y)
    generator = np.random.default_rng(0)
    for i in range(60):
        Image.fromarray(generator.integers(0, 255, (6, 6, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    files = PictureFiles([folder / f"{i}.png" for i in range(60)], size=6)
    return Labelled(files, y=y, b=b, transform=Transform(mean=(0.5,), std=(0.5,)))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:60])])
def test_a_picture_that_vanishes_or_is_cut_short_is_named(tmp_path, harm, workers):
    data = pictures(tmp_path)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    config = ExtractConfig(steps=3, batch_size=30, upsilon=2, head_epochs=1, tau_min=0.4)
    with pytest.raises(BadInput, match=r"\d+\.png can't be read as a picture"):
        bise.extract(
            net, data, config=config, workers=workers,
            log=lambda row: [harm(path) for path in tmp_path.glob("*.png")] if row["epoch"] == 1 else None,
        )  # fmt: skip


class Explosive(nn.Module):
    """sqrt has an infinite gradient at 0, where its value is fine; 1e30 squared is no float."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(1, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x)
        return self.last((h * h).sqrt())


@pytest.mark.parametrize(("value", "what"), [(0.0, "gradient"), (1e30, "loss")])
def test_the_batch_behind_a_number_that_is_none_is_kept(value, what):
    y = torch.arange(40) % 2
    x = torch.rand(40, 1, generator=torch.Generator().manual_seed(0)) + 1
    x[17] = value
    data = Labelled(TensorDataset(x), y=y, b=torch.where(torch.arange(40) % 5 == 0, 1 - y, y))
    with pytest.raises(NonFinite, match=f"the {what} became non-finite at epoch 1, step") as caught:
        bise.finetune(Explosive(), data, config=TrainConfig(epochs=1, batch_size=8, lr=1e-6))
    assert 17 in caught.value.samples
    assert len(caught.value.samples) == 8
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))  # an epoch's order is the seed's
    assert caught.value.samples == order.split(8)[caught.value.step - 1].tolist()


def huge(split):
    data = toy()
    x = data.tensors[0].clone()
    x[300:] *= 2e37
    return Labelled(TensorDataset(x), y=data.y, b=data.b) if split == "train" else None


def test_the_samples_are_listed_in_the_run_folder(tmp_path):
    save_file(toy_model().state_dict(), tmp_path / "w.safetensors")
    model = ["--model", "conftest:toy_model", "--weights", tmp_path / "w.safetensors"]
    result = run("extract", *model, "--data", "test_stopping:huge", *QUICK, "--out", tmp_path / "run")
    listed = tmp_path / "run/non_finite.json"
    assert sentence(result).endswith(f"the 60 training samples of that batch are listed in {listed}")
    found = read_json(listed)
    assert (found["job"], found["epoch"], found["step"], len(found["samples"])) == ("extract", 1, 1, 60)
    assert max(found["samples"]) >= 300


def test_the_list_goes_when_the_job_is_tried_again(extracted):
    sentence(run("finetune", extracted, "--epochs", "1", "--lr", "1e38"))
    assert (extracted / "non_finite.json").exists()
    good("verify", extracted)  # the run that was to be finetuned is as good as before
    good("finetune", extracted, "--epochs", "1")
    assert not (extracted / "non_finite.json").exists()


class Tight(nn.Module):
    """Stands in for a small device: it holds so many samples at a time."""

    def __init__(self, most):
        super().__init__()
        self.net, self.most = toy_model(), most

    def forward(self, x):
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has little")
        return self.net(x)


def test_a_device_without_room_takes_less_at_a_time():
    test = toy(rho=1 / 3, seed=2)
    with pytest.warns(BiseWarning, match=r"no room for \d+ samples at a time; it gets \d+ from now on"):
        found = bise.audit(Tight(70), test)
    assert found.by_group == bise.audit(Tight(10_000), test).by_group


def test_a_step_without_room_names_batch_size():
    expected = r"ran out of memory \(CUDA out of memory\); lower batch_size \(now 80\)"
    with pytest.raises(BadInput, match=expected):
        bise.finetune(Tight(40), toy(), config=TrainConfig.finetuning(batch_size=80))
    with pytest.warns(BiseWarning, match="no room"), pytest.raises(BadInput, match=expected):
        bise.extract(Tight(40), toy(), config=ExtractConfig(batch_size=80))


# kills


def kill(count, out, *options):
    """benchmarks/kill.py in a process of its own, from which it forks the ones that are killed."""
    command = [sys.executable, ROOT / "benchmarks/kill.py", "--kills", str(count), "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_json(out)
    assert found["kills"] >= count
    assert found["troubles"] == 0
    assert all(job["kills"] for job in found["jobs"].values())


@pytest.mark.long
def test_three_kills(tmp_path):
    kill(3, tmp_path / "kill.json", "--epochs", "8")


@pytest.mark.long
def test_twenty_kills(tmp_path):
    kill(20, tmp_path / "kill.json")


@pytest.mark.long
def test_the_demo_goes_on(tmp_path, monkeypatch):
    """Stopped in three of its parts, one after another."""
    small = {"copies": 1, "noise": 0.03, "turned": 0.0, "brightness": 1.0}
    monkeypatch.setattr("bise.jobs.demo.look", lambda seed, rho: {"seed": seed, "rho": 0.97, **small})
    monkeypatch.setattr("bise.jobs.demo.settings", lambda seed: settings(seed, epochs=(3, 2), upsilon=1))
    demo(tmp_path / "whole")
    save = Checkpoint.save
    for part, count in (("train", 2), ("extract", 4), ("dense_finetuned", 1)):
        seen = []

        def counted(self, tensors, state, seen=seen, part=part, count=count):
            save(self, tensors, state)
            seen.append(self.path.stem)
            if seen.count(part) == count:
                raise Stop

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "save", counted)
            with pytest.raises(Stop):
                demo(tmp_path / "run", every=0, resume=True)
    assert "isn't finished; run demo again with --resume first" in sentence(run("finetune", tmp_path / "run"))
    demo(tmp_path / "run", resume=True)
    assert content(tmp_path / "run") == content(tmp_path / "whole")
    assert not (tmp_path / "run/checkpoints").exists()


def test_a_field_that_an_older_version_lacked_is_named():
    assert _difference({"extract": {"a": 1}}, {"extract": {"a": 1, "patience": None}}) == (
        "extract.patience is not set there and None here"
    )
    assert _difference({"a": None}, {"a": 2}) == "a is None there and 2 here"
