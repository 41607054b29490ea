"""A stranger's run folder has nothing called, imported, fetched or shown before the user has said that it may."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tomllib
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import save_file
from transformers import BertTokenizer
from typer.testing import CliRunner

import bise
from bise.base.errors import BadInput, BiseWarning
from bise.cli.app import app
from bise.data.sets.digits import digits_split as digits
from bise.jobs.extract import extract_job
from bise.jobs.recipes import RECIPES, recipe
from bise.jobs.sources import described_by, trust_run
from bise.network.architectures.small import digit_net
from bise.runs.trust import is_trusted, record_of, remember
from conftest import ROOT, toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]
UNCHECKED = {"weights", "data", "shrunk"}


def make():
    return toy_model()


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def own(base):
    return ["--model", "test_trust:make", "--weights", base / "net.safetensors", "--data", "test_trust:splits"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result, code=2):
    assert result.exit_code == code, result.output
    (line,) = result.stderr.strip().splitlines()
    return line


def unchecked(folder, *more):
    found = json.loads(run("verify", folder, "--json", *more).stdout)
    assert found["holds"]
    return {promise["name"] for promise in found["promises"] if promise["state"] == "unchecked"}


def edit(folder, **changes):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content["source"] |= changes
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A run that the commands made, of functions that were named to them."""
    base = tmp_path_factory.mktemp("trust")
    save_file(trained(make(), splits("train")).state_dict(), base / "net.safetensors")
    result = run("extract", *own(base), "--out", base / "run", *QUICK)
    assert result.exit_code == 0, result.output
    return base / "run"


@pytest.fixture
def strange(mine, tmp_path):
    """The same run in a folder of which nobody has said anything; what a page shows is to be made again."""
    folder = tmp_path / "run"
    shutil.copytree(mine, folder)
    for name in ("report.html", "samples.json", "thresholds.json"):
        (folder / name).unlink()
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder, with what a function that a stranger chose could harm, or run."""
    folder = tmp_path / "here"
    folder.mkdir()
    for split in ("val", "test"):
        (folder / split).mkdir()
        (folder / split / "picture.png").write_bytes(b"mine")
    (folder / "trap.py").write_text("open('imported', 'w').close()\ndef make(): pass\n")
    monkeypatch.chdir(folder)
    yield folder
    sys.modules.pop("trap", None)


def plain(output):
    """What a table says, in one line."""
    return " ".join(output.replace("│", " ").split())


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in sorted(folder.rglob("*"))}


def commands(folder, elsewhere):
    return {
        "verify": ["verify", folder],
        "report": ["report", folder],
        "audit": ["audit", folder],
        "shrink": ["shrink", folder],
        "export": ["export", folder, elsewhere / "model.pt2"],
        "finetune": ["finetune", folder, "--epochs", "1"],
        "refit": ["refit", folder],
        "front": ["front", folder, "--budget", "0.5", "--no-refit"],
        "folder": ["shrink", folder, "--folder", elsewhere / "deployed"],
        "limits": ["audit", folder, "--fail-under", "accuracy=0.1", "--junit", elsewhere / "limits.xml"],
        "from": ["extract", "--from", folder, "--out", elsewhere / "other", *QUICK],
        "audit from": ["audit", "--from", folder],
    }


COMMANDS = list(commands(Path(), Path()))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "source",
    [
        {"data": "shutil:rmtree"},
        {"data": "runpy:run_path"},
        {"model": "trap:make"},
        {"data": "trap:make", "model": "demo:digits", "model_arguments": {}, "weights": None},
        {"model": "bise.cli.app:main"},
    ],
    ids=lambda source: next(iter(source.values())),
)
def test_nothing_that_a_stranger_names_is_called_or_imported(strange, here, command, source):
    if source.get("data") == "shutil:rmtree":
        (here / "train").mkdir()
        (here / "train" / "picture.png").write_bytes(b"mine")
    else:
        (here / "train").write_text("open('ran', 'w').close()")
    edit(strange, **source)
    before = contents(here)
    result = run(*commands(strange, here)[command])
    assert contents(here) == before
    assert "trap" not in sys.modules
    told = plain(result.output)
    assert "--trust" in told
    if command == "verify":
        assert result.exit_code == (1 if "weights" in source else 0)  # a network of ours has other weights
    elif command == "report":
        assert result.exit_code == 0
        assert "so the page has no slider and samples" in told
    else:
        line = sentence(result)
        assert all(repr(name) in line for name in source.values() if name and name != "demo:digits")
    assert "trap" not in sys.modules


def test_runs_of_strangers_are_compared_and_nothing_of_theirs_is_called(strange, here, mine):
    edit(strange, model="trap:make", data="shutil:rmtree")
    (here / "train").mkdir()
    before = contents(here), contents(strange)
    compared = run("compare", strange, mine, "--out", here.parent / "compared.html")
    assert compared.exit_code == 0, compared.output
    assert (contents(here), contents(strange)) == before
    assert "trap" not in sys.modules
    assert "subnetwork" in compared.stdout


def test_a_strangers_run_has_a_card_and_nothing_of_theirs_is_called(strange, here):
    edit(strange, model="trap:make", data="shutil:rmtree")
    (here / "train").mkdir()
    before = contents(here)
    made = run("report", strange, "--card")
    assert made.exit_code == 0, made.output
    assert contents(here) == before
    assert "trap" not in sys.modules
    assert not (strange / "samples.json").exists()


def test_a_folder_of_a_comparison_names_functions_that_nobody_calls(strange, here):
    """No command makes anything of it but its page; what its configuration says of model and data is passed over."""
    folder = strange.parent / "bench"
    folder.mkdir()
    line = {"method": "erm", "dataset": "own", "reasons": [], "n": 1, "macs": 1, "seconds": 1.0, "samples": 1}
    line |= {"unbiased": {"mean": 0.5, "sd": None}, "worst_group": {"mean": 0.5, "sd": None}, "peak_bytes": 1}
    line |= {"weights_changed": 1, "labels": ["y"], "difference": {}}
    about = {"select": "last", "settings": 1, "seeds": [0], "against": "erm", "device": "cpu"}
    source = {"model": "trap:make", "data": "shutil:rmtree", "weights": None}
    (folder / "config.json").write_text(json.dumps({"schema": 2, "job": "bench", "own": source, "source": source}))
    (folder / "summary.json").write_text(json.dumps({"schema": 2, "bench": about, "rows": [], "table": [line]}))
    (here / "train").mkdir()
    before = contents(here)
    for command, arguments in commands(folder, here).items():
        found = run(*arguments)
        assert found.exit_code == (0 if command == "report" else 2), (command, found.output)
    assert contents(here) == before
    assert "trap" not in sys.modules


def test_who_made_a_run_is_not_asked(mine):
    assert unchecked(mine) == set()
    record = record_of(mine)
    assert record.is_relative_to(os.environ["BISE_HOME"])
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    noted = json.loads(record.read_text())
    assert (noted["folder"], noted["model"]) == (str(mine), "test_trust:make")
    assert [path.name for path in record.parent.iterdir() if path.suffix != ".json"] == []


def test_what_is_made_of_a_trusted_run_is_trusted(mine, tmp_path):
    assert run("extract", "--from", mine, "--out", tmp_path / "other", *QUICK).exit_code == 0
    assert unchecked(tmp_path / "other") == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_trust_is_said_once(strange, tmp_path, command):
    arguments = commands(strange, tmp_path)[command]
    first = run(*arguments)
    assert first.exit_code == (0 if command in ("verify", "report") else 2)
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "model.pt2").exists()
    assert not is_trusted(strange, described_by(strange))
    said = run(*arguments, "--trust")
    assert said.exit_code == 0, said.output
    assert is_trusted(strange, described_by(strange))
    assert unchecked(strange) == set()
    if command == "report":
        assert (strange / "samples.json").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "test_trust:splits"},
        {"data": "shutil:rmtree"},
        {"weights": None},
        {"own": {"target": "y"}},
        {"model": "demo:digits", "model_arguments": {}},
    ],
    ids=str,
)
def test_an_edit_of_the_configuration_takes_the_trust_away(strange, changes):
    trust_run(strange)
    before = json.loads((strange / "config.json").read_text())["source"]
    edit(strange, **changes)
    assert not is_trusted(strange, described_by(strange))
    assert sentence(run("shrink", strange))
    edit(strange, **before)
    if changes.keys() - before.keys():  # nor is what was added forgotten by setting the others back
        taken = json.loads((strange / "config.json").read_text())["source"]
        assert not is_trusted(strange, taken)
        return
    assert is_trusted(strange, described_by(strange))


def test_an_edit_of_figures_leaves_the_trust(strange):
    trust_run(strange)
    content = json.loads((strange / "config.json").read_text())
    (strange / "config.json").write_text(json.dumps(content | {"bottleneck": "5"}))
    assert is_trusted(strange, described_by(strange))


def test_trust_is_not_carried_by_a_copy(mine, strange, tmp_path):
    """Neither the folder nor its configuration takes it along, and a link to a trusted folder has it."""
    assert (strange / "config.json").read_bytes() == (mine / "config.json").read_bytes()
    assert unchecked(strange) == UNCHECKED
    (tmp_path / "link").symlink_to(mine)
    assert unchecked(tmp_path / "link") == set()


def test_a_module_of_the_same_name_elsewhere_is_other_code(tmp_path, monkeypatch):
    source = {"model": "my_nets:make", "weights": None, "data": "my_nets.inner:load"}
    for name in ("one", "two"):
        (tmp_path / name / "my_nets").mkdir(parents=True)
        for file in ("__init__.py", "inner.py"):
            (tmp_path / name / "my_nets" / file).write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path / "one")
    remember(tmp_path / "run", source)
    assert is_trusted(tmp_path / "run", source)
    monkeypatch.chdir(tmp_path / "two")
    assert not is_trusted(tmp_path / "run", source)
    monkeypatch.chdir(tmp_path)
    assert not is_trusted(tmp_path / "run", source)
    monkeypatch.chdir(tmp_path / "one")
    (tmp_path / "one/my_nets/inner.py").unlink()
    assert not is_trusted(tmp_path / "run", source)


def test_where_the_module_is_not_found_the_sentence_says_so(strange):
    edit(strange, model="no_such_module:make")
    assert "not all of it is found from here; run from the folder that holds it" in sentence(run("shrink", strange))
    assert "can't be imported" in sentence(run("shrink", strange, "--trust"))


def test_to_name_them_again_is_consent_for_that_command(strange, mine):
    base = mine.parent
    audited = run("audit", strange, *own(base), "--json")
    assert audited.exit_code == 0, audited.output
    line = sentence(run("audit", strange, *own(base)[:4]))
    assert "'test_trust:make' and 'test_trust:splits'" in line
    assert line.endswith("give --trust, or name your own by --model and --data")
    assert unchecked(strange, *own(base)[:4]) == {"data", "shrunk"}
    assert not record_of(strange).exists()


def test_a_record_that_others_could_have_written_counts_for_nothing(strange, tmp_path):
    trust_run(strange)
    record = record_of(strange)
    record.chmod(0o622)
    assert "can be written by others; remove it" in sentence(run("shrink", strange))
    record.chmod(0o600)
    record.rename(tmp_path / "record")
    record.symlink_to(tmp_path / "record")
    assert "is no file of your own" in sentence(run("shrink", strange))
    record.unlink()
    record.write_text("{ not JSON")
    record.chmod(0o600)
    assert "can't be read" in sentence(run("shrink", strange))
    record.write_text("[]")
    assert "--trust" in sentence(run("shrink", strange))


def test_where_it_cannot_be_remembered(mine, strange, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BISE_HOME", str(tmp_path / "file" / "home"))
    assert "name another folder in BISE_HOME" in sentence(run("shrink", strange, "--trust"))
    source = json.loads((mine / "config.json").read_text())["source"]
    (tmp_path / "file").unlink()
    (tmp_path / "file").mkdir()
    assert not is_trusted(mine, source)
    (tmp_path / "file" / "home").write_text("")
    result = run("extract", *own(mine.parent), "--out", tmp_path / "new", *QUICK)
    assert result.exit_code == 0, result.output
    assert "later commands on" in result.stderr
    assert "will ask for --trust" in result.stderr
    assert (tmp_path / "new/summary.json").exists()


def test_the_home_is_the_users_state(monkeypatch, tmp_path):
    monkeypatch.delenv("BISE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert record_of(tmp_path).parent == tmp_path / "state/bise/trusted"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # to be ignored, by the standard
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert record_of(tmp_path).parent == tmp_path / "home/.local/state/bise/trusted"


def test_trust_needs_a_run(mine):
    assert "--trust is about the functions that a run names" in sentence(run("audit", *own(mine.parent), "--trust"))


@pytest.mark.parametrize(
    ("what", "key", "arguments"),
    [
        ("model", "recipe:civilcomments", {"attn_implementation": "someone/kernels"}),
        ("model", "recipe:civilcomments", {"hidden_size": "64"}),
        ("model", "recipe:civilcomments", {"recipe": "celeba"}),
        ("model", "demo:digits", {"seed": [1]}),
        ("model", "demo:digits", {"rho": 0.5}),
        ("data", "demo:digits", {"seed": 0, "rho": "0.5"}),
        ("data", "recipe:celeba", {"rho": [0.5, [0.5]]}),
        ("data", "recipe:celeba", {"root": ["/"]}),
    ],
)
def test_our_own_functions_take_what_bise_writes_and_no_more(strange, what, key, arguments):
    """Another library reads further settings, as the name of a kernel to be fetched and run."""
    edit(strange, **{what: key, f"{what}_arguments": arguments, "weights": None})
    assert "which bise doesn't write" in sentence(run("shrink", strange))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("protocol", [None, "authors"])
def test_a_recipe_of_either_protocol_brings_what_its_key_takes(tmp_path, name, protocol):
    """What `bise train` writes of a recipe, and what an extraction on its data for masks adds."""
    chosen = recipe(name, protocol=protocol)
    data = {"rho": chosen.rho, "protocol": chosen.protocol, "seed": 0, "root": None, "select": "best", "limit": None}
    source = {
        "model": f"recipe:{name}",
        "model_arguments": dict(chosen.shape),
        "data": f"recipe:{name}",
        "data_arguments": data | {"train": chosen.search},
    }
    (tmp_path / "config.json").write_text(json.dumps({"schema": 2, "source": source}))
    assert described_by(tmp_path) == json.loads(json.dumps(source))


@pytest.mark.parametrize("name", ["trap:make", "bise.jobs.recipes:architecture", "recipe:made-up", "demo:digit_net"])
@pytest.mark.parametrize("arguments", [{}, {"recipe": "celeba"}])
def test_only_our_keys_have_arguments(strange, here, name, arguments):
    """Arguments, be they none, say that a name is a key: whatever else has some is refused, and never called."""
    edit(strange, model=name, model_arguments=arguments)
    for more in ((), ("--trust",)):
        assert f"gives {name!r} arguments, which only bise's own keys take" in sentence(run("shrink", strange, *more))
    assert "trap" not in sys.modules


def test_a_function_that_is_called_as_a_key_is_not_taken_for_it(strange, here):
    """recipe.py may be a file of the user's own: its functions are asked for, and are no recipes of ours."""
    (here / "recipe.py").write_text("import test_trust\ndef celeba(): return test_trust.make()\n")
    edit(strange, model="recipe:celeba")
    assert "'recipe:celeba'" in sentence(run("shrink", strange))
    assert run("shrink", strange, "--trust").exit_code == 0
    assert sys.modules.pop("recipe").__file__ == str(here / "recipe.py")


@pytest.mark.parametrize("name", ["weights", "data", "root"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_pipe_or_device_that_a_run_names_is_read(strange, tmp_path, name, kind):
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    edit(strange, **({"own": {"root": str(path)}} if name == "root" else {name: str(path)}))
    assert "a pipe or a device" in sentence(run("shrink", strange, "--trust"))


@pytest.mark.parametrize("kind", ["pipe", "device", "link to nothing"])
@pytest.mark.parametrize("data", ["{}", "hf:{}", "hf:{}:one"])
def test_nor_one_in_a_folder_that_a_run_names(strange, tmp_path, data, kind):
    """As a folder from an archive may hold one; a link that leads nowhere is never read."""
    folder = tmp_path / "data"
    (folder / "data").mkdir(parents=True)
    odd = folder / "data/train-0.parquet"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    edit(strange, data=data.format(folder))
    assert ("a pipe or a device" in sentence(run("shrink", strange, "--trust"))) == (kind != "link to nothing")


def test_a_page_shows_no_files_that_a_stranger_chose(strange, tmp_path):
    """The model is ours and the data are a table, so nothing is called; but a page goes to others."""
    secret = tmp_path / "private.csv"
    rows = "".join(f"{i % 2},{i % 3 == 0:d},{part},dear diary {i}\n" for i, part in enumerate(["train", "test"] * 40))
    secret.write_text("y,b,part,note\n" + rows)
    columns = {"target": "y", "bias": "b", "split_column": "part", "features": "note"}
    edit(strange, model="demo:digits", model_arguments={}, weights=None, data=str(secret), own=columns)
    result = run("report", strange)
    assert result.exit_code == 0
    assert "the page would show some; if you want that, give --trust" in result.stderr
    assert "diary" not in "".join(path.read_text(errors="replace") for path in strange.iterdir() if path.is_file())


def test_maker_and_user_share_a_run_only_where_it_is_the_same_user(mine, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.stat(mine).st_uid + 1)
    with pytest.raises(BadInput, match="is no file of your own"):
        is_trusted(mine, described_by(mine))


WATCH = """
import json, os, sys

events, watching = [], True
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
           "os.chown", "os.utime", "shutil.")

FOLDERS = {"os.remove": {0: 1}, "os.rmdir": {0: 1}, "os.mkdir": {0: 2}, "os.rename": {0: 2, 1: 3}}
opening = -1
plainly = os.open

def opened(path, flags, mode=0o777, *, dir_fd=None):  # the event says nothing of the folder
    global opening
    opening = -1 if dir_fd is None else dir_fd
    try:
        return plainly(path, flags, mode, dir_fd=dir_fd)
    finally:
        opening = -1

def placed(path, folder):
    where = os.getcwd() if not isinstance(folder, int) or folder < 0 else os.readlink(f"/proc/self/fd/{folder}")
    return os.path.normpath(os.path.join(where, os.fsdecode(path)))

def hook(event, args):
    if not watching:
        return
    if event == "import":
        events.append(["import", str(args[0])])
    elif event == "open" and isinstance(args[2], int) and args[2] & WRITES and not isinstance(args[0], int):
        events.append(["write", placed(args[0], opening)])
    elif event.startswith(CHANGES):
        named = FOLDERS.get(event, {})
        paths = [(number, one) for number, one in enumerate(args) if isinstance(one, (str, bytes, os.PathLike))]
        events.extend(["write", placed(one, args[named[number]] if number in named else -1)] for number, one in paths)
    elif event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn")):
        events.append([event, repr(args)])

os.supports_dir_fd.add(opened)  # where bise asks whether names may be relative
os.open = opened
sys.addaudithook(hook)
from typer.testing import CliRunner
from bise.cli.app import app

out, *folders = sys.argv[1:]
codes = {}
for folder in folders:
    for command in ("verify", "report", "audit", "shrink", "compare", "card", "refit", "front"):
        more = {"compare": [folder], "card": ["--card"], "front": ["--budget", "0.5", "--no-refit"]}.get(command, [])
        result = CliRunner().invoke(app, ["report" if command == "card" else command, folder, *more])
        codes[f"{command} {os.path.basename(folder)}"] = [result.exit_code, result.output]
watching = False
files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
json.dump({"codes": codes, "events": events, "modules": files}, open(out, "w"))
"""


def a_tokenizer_of_a_hub(strange, folder):
    """Its data are a table of texts, whose tokenizer has a name that only a hub knows."""
    shutil.copytree(strange, folder)
    rows = "".join(f"{i % 2},{i % 3 == 0:d},{part},some words\n" for i, part in enumerate(["train", "test"] * 40))
    (folder.parent / "texts.csv").write_text("y,b,part,text\n" + rows)
    texts = {"target": "y", "bias": "b", "split_column": "part", "text": "text", "tokenizer": "someone/tokenizer"}
    edit(folder, data=str(folder.parent / "texts.csv"), own=texts)


def cached_tokenizer(home, vocabulary):
    """One that a hub was asked for on another day, as the hub's library keeps it."""
    kept = home / "hub/models--someone--cached"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs/main").write_text("0" * 40)
    BertTokenizer(str(vocabulary)).save_pretrained(kept / "snapshots" / ("0" * 40))
    (kept / "snapshots" / ("0" * 40) / "config.json").write_text('{"model_type": "bert"}')


def our_own(folder):
    """A run of our own functions, for which nobody is asked: everything is computed."""
    arguments = {"seed": 0, "rho": 0.9}
    with pytest.warns(BiseWarning):  # a network that knows nothing
        extract_job(
            digit_net(),
            partial(digits, **arguments),
            folder,
            preset="balanced",
            changes={"steps": 2, "upsilon": 1, "batch_size": 20, "head_epochs": 1, "baseline": False},
            bottleneck=None,
            sites=None,
            source={
                "model": "demo:digits",
                "model_arguments": {},
                "weights": None,
                "data": "demo:digits",
                "data_arguments": arguments,
            },
            progress=lambda *_: None,
        )
    for name in ("report.html", "samples.json", "thresholds.json"):
        (folder / name).unlink()


def dependencies():
    """The distributions that bise and its extras name, and those that these name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    due = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    found = set()
    while due:
        name = re.split(r"[^\w.-]", due.pop())[0].lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        try:
            due += [one for one in importlib.metadata.requires(name) or () if "extra ==" not in one]
        except importlib.metadata.PackageNotFoundError:  # for another system
            continue
    return found


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system doesn't tell which folder is open")
def test_watched_from_within_nothing_is_imported_written_or_contacted(strange, here, tmp_path, vocabulary):
    """Every import, every file that is opened to be written, every socket and process of eight commands."""
    a_tokenizer_of_a_hub(strange, tmp_path / "texts")
    shutil.copytree(tmp_path / "texts", tmp_path / "cached")
    texts = json.loads((tmp_path / "cached/config.json").read_text())["source"]["own"]
    edit(tmp_path / "cached", own=texts | {"tokenizer": "someone/cached"})
    cached_tokenizer(tmp_path / "hugging-face", vocabulary)
    our_own(tmp_path / "ours")
    edit(strange, model="trap:make", data="shutil:rmtree")
    (here / "train").mkdir()
    folders = [strange, tmp_path / "texts", tmp_path / "cached", tmp_path / "ours"]
    unset = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "TORCHINDUCTOR_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": f"{Path(bise.__file__).parent.parent}", "PYTHONDONTWRITEBYTECODE": "1"}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment |= {"HF_HOME": str(tmp_path / "hugging-face"), "TMPDIR": str(scratch)}
    before = contents(here)
    (tmp_path / "watch.py").write_text(WATCH)
    command = [sys.executable, tmp_path / "watch.py", tmp_path / "seen.json", *folders]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(here) == before
    seen = json.loads((tmp_path / "seen.json").read_text())
    refused = {"verify": 0, "report": 0, "audit": 2, "shrink": 2, "compare": 0, "card": 0, "refit": 2, "front": 2}
    for name, (code, output) in seen["codes"].items():
        command, _, of = name.partition(" ")
        expected = 0 if of == "ours" else 1 if name == "verify cached" else refused[command]
        assert code == expected, (name, output)
    assert "are not those that the run had" in plain(seen["codes"]["verify cached"][1])  # so they were tokenised
    assert "○ unchecked" not in seen["codes"]["verify ours"][1]
    assert "this machine only" in plain(seen["codes"]["verify texts"][1])
    assert (tmp_path / "ours/samples.json").exists()  # it was at work

    places = {kind: [what for event, what in seen["events"] if event == kind] for kind in ("import", "write")}
    assert len(places["import"]) > 1000
    assert not {"trap", "test_trust"} & {*places["import"], *seen["modules"]}
    assert [event for event in seen["events"] if event[0] not in places] == []
    assert any(path.startswith(str(tmp_path / "ours")) for path in places["write"])
    # Python tries whether the temporary folder can be written, and torch makes an empty folder in it
    allowed = [Path(os.devnull), scratch, *folders]
    assert [path for path in places["write"] if not any(Path(path).is_relative_to(place) for place in allowed)] == []
    assert [name for name, content in contents(scratch).items() if content] == []
    assert all(path.name.startswith("torchinductor_") for path in scratch.iterdir())
    assert strangers(seen["modules"]) == []


def strangers(modules):
    """The modules that are neither Python's nor bise's nor of a distribution that bise depends on."""
    known, owners = dependencies(), importlib.metadata.packages_distributions()
    standard = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    found = []
    for name, file in modules.items():
        path = None if file is None else Path(file).resolve()
        if name in ("torch.ops", "torch.classes"):  # made up by torch, as if they lay in the working folder
            continue
        if name == "bise_torchvision":  # what `make` puts into an environment whose wheels don't fit
            continue
        if path is None or path.is_relative_to(Path(bise.__file__).parent) or path.name == "watch.py":
            continue
        if any(path.is_relative_to(folder) for folder in installed):
            top = path.relative_to(next(f for f in installed if path.is_relative_to(f))).parts[0].partition(".")[0]
            named = {owner.lower().replace("_", "-") for owner in owners.get(top, ())}
            if not named & known and not top.startswith("_"):
                found.append(name)
        elif not any(path.is_relative_to(folder) for folder in standard):
            found.append(name)
    return found
