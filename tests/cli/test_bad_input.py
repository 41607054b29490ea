"""Everything that a user can get wrong, one line each: exit code 2, one sentence that says what, nothing written."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
import zipfile
from contextlib import suppress

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from bise.base.errors import BadInput
from bise.base.files import SCHEMA
from bise.cli.app import app
from bise.data import Labelled
from bise.jobs.sources import trust_run
from conftest import copy_run, toy, toy_model
from small_texts import WORDS


def make():
    return toy_model()


def five_features():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


def raises():
    raise OSError("no such\ndevice")


def ends():
    raise SystemExit(3)


def returns_text():
    return "a model"


def needs_arguments(width):
    return nn.Linear(width, 2)


def wrong_inside():
    return nn.Linear(8, width=2)


def half_a_model():
    return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 3))


def too_few_classes():
    return toy_model(classes=2)


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def no_train(split):
    return None if split == "train" else toy()


def no_test(split):
    return None if split == "test" else toy()


def raises_for_splits(split):
    raise KeyError("no such\nsplit")


def ends_for_splits(split):
    raise SystemExit("no such split")


def numbers(split):
    return 7


def no_bias(split):
    return [(torch.zeros(8), 0), (torch.ones(8), 1)] * 20


def with_nan(split):
    data = splits(split)
    data.tensors[0][3, 2] = torch.nan
    return data


def other_width(split):
    y = torch.arange(60) % 3
    return Labelled(TensorDataset(torch.randn(60, 9)), y=y, b=(y + (torch.arange(60) % 7 == 0)) % 3)


FOLDS = ("train", "train", "val", "test")
CSV = "age,city,fold,sex,hired,file,words\n" + "".join(
    f"{20 + i % 9},{'ab'[i % 2]},{FOLDS[i % 4]},{'fm'[(i // 3) % 2]},{i % 2},pic{i % 3}.png,some words\n"
    for i in range(48)
)
ROWS = CSV.splitlines(keepends=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with good and bad files of every kind."""
    base = tmp_path_factory.mktemp("world")
    save_file(make().state_dict(), base / "net.safetensors")
    save_file(nn.Linear(2, 2).state_dict(), base / "other.safetensors")
    torch.save(make(), base / "pickled.pt")
    torch.save([1, 2], base / "list.pt")
    torch.save(make().state_dict(), base / "good.pt")
    with (
        zipfile.ZipFile(base / "good.pt") as good,
        zipfile.ZipFile(base / "packed.pt", "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for name in good.namelist():
            out.writestr(name, good.read(name))
    (base / "cut.pt").write_bytes((base / "good.pt").read_bytes()[:-300])
    (base / "folder.pt").mkdir()
    (base / "folder.safetensors").mkdir()
    for name in ("junk.safetensors", "junk.pt", "junk.parquet", "file.txt"):
        (base / name).write_bytes(b"certainly not one of these")
    for name in ("empty.csv", "empty.pt", "empty.safetensors"):
        (base / name).write_bytes(b"")
    written = {
        "rows.csv": CSV,
        "header.csv": ROWS[0],
        "ragged.csv": CSV + "1,2\n",
        "quotes.csv": CSV + '1,"a"b,train,f,0,x,y\n',
        "open.csv": CSV + '1,"a,train,f,0,x,y\n',
        "twice.csv": CSV.replace("city", "age", 1),
        "one_class.csv": ROWS[0] + "".join(row for row in ROWS[1:] if row.split(",")[4] == "0"),
        "no_target.csv": CSV + "20,a,train,f,,pic0.png,words\n",
        "odd_target.csv": CSV + "20,a,train,f,0.5,pic0.png,words\n",
        "odd_split.csv": CSV + "20,a,Tuesday,f,0,pic0.png,words\n",
        "no_bias.csv": "".join(row.replace(",f,", ",,").replace(",m,", ",,") for row in ROWS),
        "one_bias.csv": "".join(row.replace(",f,", ",m,") for row in ROWS),
        "huge.csv": CSV + "1e99,a,train,f,0,pic0.png,words\n",
        "commas.csv": ROWS[0] + "".join('"1,5"' + row[2:] for row in ROWS[1:]),
        "no_picture.csv": CSV.replace("pic0.png", "", 1),
        "absent.csv": CSV.replace("pic1.png", "nowhere.png"),
        "biases.csv": "file,shade\nnone.png,1\n",
        "biases_twice.csv": "file,shade\nx.png,1\nx.png,1\n",
        "biases_alone.csv": "file\nx.png\n",
        "biases_empty.csv": "file,shade\nx.png,\n",
    }
    for name, text in written.items():
        (base / name).write_text(text)
    (base / "nul.csv").write_bytes(CSV.encode() + b"\0\n")
    (base / "latin.csv").write_bytes(CSV.encode() + b"20,\xe9,train,f,0,x,y\n")
    (base / "packed.csv").write_bytes(gzip.compress(CSV.encode()))
    for i in range(3):
        Image.new("RGB", (6, 6), (i * 80, 0, 0)).save(base / f"pic{i}.png")
    for kind in ("a", "b"):
        (base / "pics" / kind).mkdir(parents=True)
        (base / "one_kind" / "a").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 6)).save(base / "pics/a/x.png")
    Image.new("RGB", (6, 6)).save(base / "pics/b/y.png")
    Image.new("RGB", (6, 6)).save(base / "one_kind/a/x.png")
    (base / "nothing").mkdir()
    (base / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (base / "words.txt").write_text("just\nwords\n")
    (base / "tokenizer").mkdir()
    (base / "tokenizer/tokenizer.json").write_text("{}")
    (base / "hf").mkdir()
    (base / "hf/state.json").write_text("{}")
    (base / "mine").mkdir()
    (base / "mine/thesis.txt").write_text("dear")
    (base / "mnist").mkdir()
    (base / "mnist/train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03abc")
    _runs(base)
    return base


def _runs(base):
    """A good run, and copies of it that were tampered with."""
    own = ["--model", "test_bad_input:make", "--data", "test_bad_input:splits"]
    quick = ["--steps", "2", "--upsilon", "1", "--batch-size", "60"]
    result = CliRunner().invoke(app, ["extract", *own, *quick, "--out", str(base / "run")])
    assert result.exit_code == 0, result.output

    def tampered(name, file, change):
        shutil.copytree(base / "run", base / name)
        path = base / name / file
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        with suppress(BadInput):  # what can't even be trusted
            trust_run(base / name)

    tampered("run_newer", "config.json", lambda c: c.update(schema=99))
    tampered("run_bare", "config.json", lambda c: c.pop("schema"))
    tampered("run_no_source", "config.json", lambda c: c.pop("source"))
    tampered("run_odd_source", "config.json", lambda c: c["source"].update(model=7))
    tampered("run_odd_own", "config.json", lambda c: c["source"].update(own={"target": ["y"]}))
    tampered("run_arguments", "config.json", lambda c: c["source"].update(model_arguments={"a": 1}))
    tampered("run_no_model", "config.json", lambda c: c["source"].update(model="no_such_module:make"))
    tampered("run_no_weights", "config.json", lambda c: c["source"].update(weights="/no/such.safetensors"))
    tampered("run_no_data", "config.json", lambda c: c["source"].update(data="no/such.csv"))
    tampered("run_other_weights", "subnetwork/subnetwork.json", lambda c: c.update(weights="0" * 64))
    tampered("run_odd_sites", "subnetwork/subnetwork.json", lambda c: c.update(sites=[{"name": "2"}]))
    tampered("run_no_sites", "subnetwork/subnetwork.json", lambda c: c.pop("sites"))
    tampered("run_foreign_site", "subnetwork/subnetwork.json", lambda c: c["sites"][0].update(name="layer9"))
    tampered("run_more_units", "subnetwork/subnetwork.json", lambda c: c["sites"][0].update(units=99))
    tampered("run_odd_dim", "subnetwork/subnetwork.json", lambda c: c["sites"][0].update(dim=7))
    for name, file in (("run_unfinished", "summary.json"), ("run_no_config", "config.json")):
        copy_run(base / "run", base / name)
        (base / name / file).unlink()
    shutil.copytree(base / "run", base / "run_broken")
    (base / "run_broken/config.json").write_text("{ not JSON")
    (base / "run_broken/summary.json").write_text("[]")
    copy_run(base / "run", base / "run_junk")
    (base / "run_junk/subnetwork/subnetwork.safetensors").write_bytes(b"junk")
    shutil.copytree(base / "run", base / "run_code")
    (base / "run_code/helper.py").write_text("raise SystemExit")


OWN = "--model test_bad_input:make --data test_bad_input:splits"
TABLE = "--target hired --bias sex --split-column fold"
PICTURES = f"--model test_bad_input:five_features {TABLE} --image file --size 4"
NET = "--model test_bad_input:five_features --data {w}/rows.csv"

BAD = [
    # the command line itself
    ("extrakt", "no such command 'extrakt'"),
    ("--colour", "no such option: --colour"),
    ("train", "missing"),
    ("extract --data x", "missing option '--out'"),
    ("extract --out", "'--out' requires an argument"),
    ("demo --seed many --out {out}", "invalid value for '--seed'"),
    ("demo --rho much --out {out}", "invalid value for '--rho'"),
    ("demo --speed 3", "no such option: --speed"),
    ("demo extra --out {out}", "unexpected extra argument"),
    ("data chek {w}/rows.csv", "no such command 'chek'"),
    ("data sheet {w}/rows.csv --out a.png --per-group 0", "invalid value for '--per-group'"),
    ("export {w}/run", "missing argument 'file'"),
    (f"extract {OWN} --out {{out}} --workers -1", "invalid value for '--workers'"),
    # demo
    ("demo --rho 1 --out {out}", "no conflicting sample"),
    ("demo --rho 1.5 --out {out}", "rho=1.5 is no share"),
    ("demo --rho nan --out {out}", "rho=nan is no share"),
    ("demo --seed 99999999999999999999 --out {out}", "seed=99999999999999999999"),
    ("demo --out {w}/mine", "is no run of bise"),
    ("demo --out {w}/file.txt", "is no run of bise"),
    ("demo --out {w}/file.txt/run", "can't be"),
    ("demo --out {w}/run", "holds a run of another configuration"),
    # train
    ("train mnist --out {out}", "recipe 'mnist' is unknown"),
    ("train biased-mnist --rho lots --out {out}", "--rho 'lots' is no number"),
    ("train biased-mnist --rho 0.9,0.9,0.9 --out {out}", "is no number"),
    ("train biased-mnist --rho 2 --data-root {w} --out {out}", "rho=2.0 is no share"),
    ("train biased-mnist --rho 0.9,0.8 --data-root {w} --out {out}", "is no share"),
    ("train celeba --rho 0.9 --out {out}", "rho=0.9 can't be set for celeba"),
    ("train biased-mnist --protocol new --data-root {w} --out {out}", "protocol='new' is unknown"),
    ("train biased-mnist --epochs 0 --out {out}", "epochs=0 must be"),
    ("train biased-mnist --epochs -3 --out {out}", "epochs=-3 must be"),
    ("train biased-mnist --select worst --out {out}", "select='worst' is unknown"),
    ("train biased-mnist --device tpu --out {out}", "--device 'tpu' is unknown"),
    ("train biased-mnist --device meta --out {out}", "--device 'meta' is unknown"),
    ("train biased-mnist --device cuda --out {out}", "finds no GPU"),
    ("train biased-mnist --data-root {w} --out {out}", "does not exist"),
    ("train biased-mnist --data-root {w}/nothing --out {out}", "does not exist; run"),
    ("train biased-mnist --data-root {w}/rows.csv --out {out}", "does not exist"),
    ("train multi-color-mnist --data-root {w}/nothing --out {out}", "does not exist"),
    ("train corrupted-cifar10 --data-root {w}/nothing --weights scratch --out {out}", "holds no CIFAR-10"),
    ("train celeba --data-root {w}/nothing --weights scratch --out {out}", "list_attr_celeba.txt does not exist"),
    ("train civilcomments --data-root {w}/nothing --weights scratch --out {out}", "does not exist"),
    ("train biased-madlibs-small --data-root {w}/nothing --out {out}", "does not exist"),
    # audit
    ("audit", "--model is missing"),
    ("audit --model test_bad_input:make", "--data is missing"),
    (f"audit {OWN} --split valid", "it takes the name of a split"),
    ("audit --model test_bad_input:make --data test_bad_input:no_test", "has no split 'test'"),
    (f"audit {OWN} --run {{w}}/nothing", "does not exist"),
    (f"audit {OWN} --run {{w}}/run_other_weights", "are not the ones"),
    (f"audit {OWN} --from {{w}}/run", "a run brings model"),
    ("audit --from {w}/nothing", "does not exist"),
    ("audit --from {w}/file.txt", "can't be read"),
    ("audit --model test_bad_input:too_few_classes --data test_bad_input:splits", "out of range"),
    ("audit --model test_bad_input:make --data test_bad_input:other_width", "shapes cannot be multiplied"),
    # --model and --weights
    ("extract --model make --data test_bad_input:splits --out {out}", "write package.module:function"),
    ("extract --model :make --data test_bad_input:splits --out {out}", "names no function"),
    ("extract --model test_bad_input: --data test_bad_input:splits --out {out}", "names no function"),
    ("extract --model ..:x --data test_bad_input:splits --out {out}", "can't be imported"),
    ("extract --model no_such_module:make --data test_bad_input:splits --out {out}", "can't be imported"),
    ("extract --model test_bad_input:nothing --data test_bad_input:splits --out {out}", "can't be imported"),
    ("extract --model test_bad_input:WORDS --data test_bad_input:splits --out {out}", "can't be called"),
    ("extract --model test_bad_input:raises --data test_bad_input:splits --out {out}", "raised OSError"),
    ("extract --model test_bad_input:ends --data test_bad_input:splits --out {out}", "raised SystemExit: 3"),
    ("extract --model test_bad_input:returns_text --data test_bad_input:splits --out {out}", "returned str"),
    ("extract --model test_bad_input:needs_arguments --data test_bad_input:splits --out {out}", "without arguments"),
    ("extract --model test_bad_input:wrong_inside --data test_bad_input:splits --out {out}", "raised TypeError"),
    ("extract --model test_bad_input:half_a_model --data test_bad_input:splits --out {out}", "weights without a shape"),
    ("extract --model test_bad_input:too_few_classes --data test_bad_input:splits --out {out}", "out of range"),
    (f"extract {OWN} --weights {{w}}/none.safetensors --out {{out}}", "does not exist"),
    (f"extract {OWN} --weights {{w}}/none.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/folder.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/folder.safetensors --out {{out}}", "is no readable safetensors"),
    (f"extract {OWN} --weights {{w}}/junk.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/empty.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/cut.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/packed.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/pickled.pt --out {{out}}", "can't be read"),
    (f"extract {OWN} --weights {{w}}/list.pt --out {{out}}", "hold no state dict"),
    (f"extract {OWN} --weights {{w}}/junk.safetensors --out {{out}}", "is no readable safetensors"),
    (f"extract {OWN} --weights {{w}}/empty.safetensors --out {{out}}", "is no readable safetensors"),
    (f"extract {OWN} --weights {{w}}/other.safetensors --out {{out}}", "doesn't fit"),
    # --data as a function
    ("extract --model test_bad_input:make --data nowhere --out {out}", "is no file or folder"),
    ("extract --model test_bad_input:make --data no_such:f --out {out}", "can't be imported"),
    ("extract --model test_bad_input:make --data test_bad_input:raises_for_splits --out {out}", "raised KeyError"),
    ("extract --model test_bad_input:make --data test_bad_input:ends_for_splits --out {out}", "raised SystemExit: no"),
    ("extract --model test_bad_input:make --data test_bad_input:no_train --out {out}", "no split 'train'"),
    ("extract --model test_bad_input:make --data test_bad_input:numbers --out {out}", "int"),
    ("extract --model test_bad_input:make --data test_bad_input:no_bias --out {out}", "bias"),
    ("extract --model test_bad_input:make --data test_bad_input:with_nan --out {out}", "NaN"),
    ("extract --model test_bad_input:make --data test_bad_input:other_width --out {out}", "cannot be multiplied"),
    (f"extract {OWN} --target y --out {{out}}", "--target has no meaning"),
    # extract's own settings
    (f"extract {OWN} --preset fast --out {{out}}", "--preset 'fast' is unknown"),
    (f"extract {OWN} --gamma -1 --out {{out}}", "gamma=-1.0"),
    (f"extract {OWN} --gamma nan --out {{out}}", "gamma=nan"),
    (f"extract {OWN} --gamma inf --out {{out}}", "gamma=inf"),
    (f"extract {OWN} --mi some --out {{out}}", "mi='some' is unknown"),
    (f"extract {OWN} --bn moving --out {{out}}", "bn='moving' is unknown"),
    (f"extract {OWN} --batch-size 0 --out {{out}}", "batch_size=0"),
    (f"extract {OWN} --steps 0 --out {{out}}", "steps=0"),
    (f"extract {OWN} --upsilon -2 --out {{out}}", "upsilon=-2"),
    (f"extract {OWN} --seed 99999999999999999999 --out {{out}}", "seed=99999999999999999999"),
    (f"extract {OWN} --bottleneck zz --out {{out}}", "bottleneck='zz'"),
    (f"extract {OWN} --sites zz* --out {{out}}", "matches no"),
    (f"extract {OWN} --sites zz* --out {{out}}/below/it", "matches no"),
    (f"extract {OWN} --sites zz* --out {{w}}/nothing", "matches no"),
    (f"extract {OWN} --device gpu --out {{out}}", "--device 'gpu' is unknown"),
    (f"extract {OWN} --device cuda:7 --out {{out}}", "finds no GPU"),
    (f"extract {OWN} --out {{w}}/mine", "is no run of bise"),
    (f"extract {OWN} --out {{w}}/file.txt", "is no run of bise"),
    (f"extract {OWN} --out {{w}}/run", "holds a run of another configuration"),
    (f"extract {OWN} --out {{w}}/run_newer", f"newer than {SCHEMA}"),
    (f"extract {OWN} --from {{w}}/run --out {{out}}", "a run brings model"),
    # tables
    ("extract --model test_bad_input:five_features --data {w}/rows.csv --out {out}", "needs a target"),
    (f"extract {NET} {TABLE} --size 16 --out {{out}}", "--size is for a column that --image names"),
    (f"extract {NET} {TABLE} --length 5 --out {{out}}", "--length is for a column that --text names"),
    (f"extract {NET} --target hierd --out {{out}}", "has no column 'hierd'; it has 'hired'"),
    (f"extract {NET} --target hired --bias sx --out {{out}}", "has no column 'sx'"),
    (f"extract {NET} --target hired --split-column fold --out {{out}}", "bias"),
    (f"extract {NET} --target hired --bias hired --out {{out}}", "hired"),
    (f"extract {NET} {TABLE} --features age,colour --out {{out}}", "has no column 'colour'"),
    (f"extract {NET} {TABLE} --holdout 0.1,0.2 --out {{out}}", "holdout"),
    (f"extract {NET} --target hired --bias sex --holdout 0.6,0.6 --out {{out}}", "leaves no row to train on"),
    (f"extract {NET} --target hired --bias sex --holdout nan,0.1 --out {{out}}", "leaves no row to train on"),
    (f"extract {NET} --target hired --bias sex --holdout 0.1 --out {{out}}", "has 1 numbers"),
    (f"extract {NET} --target hired --bias sex --holdout a,b --out {{out}}", "no number"),
    (f"extract {NET} {TABLE} --image file --out {{out}}", "pictures need a size"),
    (f"extract {NET} {TABLE} --image file --size big --out {{out}}", "--size 'big' is no size"),
    (f"extract {NET} {TABLE} --image file --size 0 --out {{out}}", "--size '0' is no size"),
    (f"extract {NET} {TABLE} --image file --size 4x4x4 --out {{out}}", "is no size"),
    (f"extract {NET} {TABLE} --image file --size 99999x99999 --out {{out}}", "more than"),
    (f"extract {NET} {TABLE} --image file --size ² --out {{out}}", "is no size"),
    (f"extract {NET} {TABLE} --image file --size 4 --mean 1,2 --out {{out}}", "--mean has 2 numbers"),
    (f"extract {NET} {TABLE} --image file --size 4 --std 0 --out {{out}}", "--std 0 is not above 0"),
    (f"extract {NET} {TABLE} --image file --size 4 --mean nan --out {{out}}", "--mean nan is not finite"),
    (f"extract {NET} {TABLE} --image file --text words --out {{out}}", "text"),
    (f"extract {NET} {TABLE} --text words --out {{out}}", "text needs a tokenizer"),
    (f"extract {NET} {TABLE} --text words --tokenizer {{w}}/no.txt --out {{out}}", "does not exist"),
    (f"extract {NET} {TABLE} --text words --tokenizer {{w}}/tokenizer --out {{out}}", "can't be loaded"),
    (f"extract {NET} {TABLE} --text words --tokenizer {{w}}/nothing --out {{out}}", "can't be loaded"),
    (f"extract {NET} {TABLE} --text words --tokenizer {{w}}/vocab.txt --length 0 --out {{out}}", "length=0"),
    (f"extract {NET} {TABLE} --bias-csv {{w}}/biases.csv --out {{out}}", "--bias-csv has no meaning"),
    (f"extract {NET} {TABLE} --rho 0.9 --out {{out}}", "--rho has no meaning"),
    # files that data check reads
    ("data check nowhere.csv", "is no file or folder"),
    ("data check {w}/rows.csv", "needs a target"),
    ("data check {w}/empty.csv --target hired", "is empty"),
    ("data check {w}/header.csv --target hired", "a header and no rows"),
    ("data check {w}/ragged.csv --target hired", "2 fields where the header has 7"),
    ("data check {w}/quotes.csv --target hired", "quotes"),
    ("data check {w}/open.csv --target hired", "never close"),
    ("data check {w}/twice.csv --target hired", "two columns named 'age'"),
    ("data check {w}/nul.csv --target hired", "NUL byte"),
    ("data check {w}/latin.csv --target hired", "is not UTF-8 (byte 0xe9)"),
    ("data check {w}/packed.csv --target hired", "gzip-compressed"),
    ("data check {w}/junk.parquet --target hired", "is no readable parquet file"),
    ("data check {w}/one_class.csv --target hired", "one class only"),
    ("data check {w}/no_target.csv --target hired", "is empty in 1 of 49 rows"),
    ("data check {w}/odd_target.csv --target hired", "0.5, which is no whole number"),
    ("data check {w}/odd_split.csv --target hired --split-column fold", "'Tuesday'"),
    ("data check {w}/no_bias.csv --target hired --bias sex", "sex"),
    ("data check {w}/rows.csv --target hired --files", "--files opens pictures"),
    ("data check {w}/no_picture.csv --target hired --split-column fold --image file --files", "file"),
    ("data check {w}/nothing", "holds no picture"),
    ("data check {w}/one_kind", "one class only"),
    ("data check {w}/pics --target hired", "--target has no meaning"),
    ("data check {w}/pics --bias shade", "holds no biases"),
    ("data check {w}/pics --bias-csv {w}/none.csv", "does not exist"),
    ("data check {w}/pics --bias-csv {w}/biases.csv", "is no picture of the folder"),
    ("data check {w}/rows.csv --target hired --bias '\"sex'", "is no list of columns"),
    ("data check {w}/pics --bias-csv {w}/biases_twice.csv", "has a second row"),
    ("data check {w}/pics --bias-csv {w}/biases_alone.csv", "has no column beside 'file'"),
    ("data check {w}/pics --bias-csv {w}/biases_empty.csv", "is empty in every row"),
    ("data check {w}/hf --target y", "can't be read as a folder of datasets"),
    ("data check biased-mnist --protocol new --root {w}", "protocol='new' is unknown"),
    ("data check biased-mnist --root {w}", "does not exist"),
    ("data check celeba --rho 0.5 --root {w}", "can't be set for celeba"),
    ("data check biased-mnist --target y", "--target has no meaning"),
    (f"extract --model test_bad_input:five_features --data {{w}}/huge.csv {TABLE} --out {{out}}", "too large a number"),
    (f"extract --model test_bad_input:five_features --data {{w}}/commas.csv {TABLE} --out {{out}}", "with a comma"),
    (f"extract --model test_bad_input:five_features --data {{w}}/one_bias.csv {TABLE} --out {{out}}", "sex"),
    (f"extract {PICTURES} --mean 0.5 --data {{w}}/absent.csv --out {{out}}", "nowhere.png can't be read"),
    # sheets and downloads
    ("data sheet {w}/pics --out {out}.jpg", "should end in .png"),
    ("data sheet {w}/rows.csv --target hired --split-column fold --out {out}.png", "no picture [1 or 3, H, W]"),
    ("data sheet {w}/pics --split dev --out {out}.png", "split='dev' is unknown"),
    ("data sheet {w}/pics --split test --out {out}.png", "has no split 'test'"),
    ("data sheet {w}/pics --out {w}/file.txt/a.png", "can't be"),
    ("data sheet {w}/pics --scale 1000000 --out {out}.png", "scale"),
    ("data download cifar --data-root {w}", "nothing to download for 'cifar'"),
    ("data download mnist --data-root {w}/file.txt", "can't be a folder"),
    # runs
    ("finetune {w}/nothing", "does not exist"),
    ("finetune {w}/run_no_config", "does not exist"),
    ("finetune {w}/run_broken", "can't be read"),
    ("finetune {w}/run_newer", "has schema 99"),
    ("finetune {w}/run_bare", "carries no schema version"),
    ("finetune {w}/run_no_source", "doesn't say which model"),
    ("finetune {w}/run_odd_source", "what bise doesn't write"),
    ("finetune {w}/run_odd_own", "what bise doesn't write"),
    ("finetune {w}/run_arguments", "which only bise's own keys take"),
    ("finetune {w}/run_code", "helper.py is code"),
    ("finetune {w}/run_no_model", "can't be imported"),
    ("finetune {w}/run_no_weights", "does not exist"),
    ("finetune {w}/run_no_data", "is no file or folder"),
    ("finetune {w}/run_unfinished", "isn't finished"),
    ("finetune {w}/run_other_weights", "are not the ones"),
    ("finetune {w}/run_odd_sites", "holds no complete subnetwork"),
    ("finetune {w}/run_no_sites", "holds no complete subnetwork"),
    ("finetune {w}/run_foreign_site", "layer9"),
    ("finetune {w}/run_more_units", "for 99 units"),
    ("finetune {w}/run_odd_dim", "dim"),
    ("finetune {w}/run_junk", "is no readable safetensors"),
    ("finetune {w}/run --preset fast", "--preset 'fast' is unknown"),
    ("finetune {w}/run --epochs 0", "epochs=0"),
    ("finetune {w}/run --lr -1", "lr=-1.0"),
    ("finetune {w}/run --batch-size 0", "batch_size=0"),
    ("finetune {w}/run --device abacus", "--device 'abacus' is unknown"),
    ("shrink {w}/nothing", "does not exist"),
    ("shrink {w}/run --of best", "--of 'best' is unknown"),
    ("shrink {w}/run --of finetuned", "does not exist"),
    ("shrink {w}/run --out {out}.onnx", "should end in .pt2"),
    ("shrink {w}/run --onnx {out}.pt2", "should end in .onnx"),
    ("shrink {w}/run --out {w}/file.txt/a.pt2", "can't be"),
    ("shrink {w}/run_junk", "is no readable safetensors"),
    ("shrink {w}/run_odd_dim", "dim"),
    ("export {w}/run {out}.h5", "should end in .onnx or .pt2"),
    ("export {w}/nothing {out}.onnx", "does not exist"),
    ("export {w}/run {w}/file.txt/a.onnx", "can't be"),
    ("report {w}/run_unfinished", "isn't finished"),
    ("report {w}/nothing", "holds no config.json"),
    ("report {w}/nowhere", "does not exist"),
    ("report {w}/nowhere --card", "does not exist"),
    ("report {w}/run_broken", "was not written by bise"),
    ("report {w}/run_newer", f"newer than {SCHEMA}"),
    ("report {w}/run_junk", "is no readable safetensors"),
    ("report {w}/run --out {w}/mine", "is a folder"),
    ("report {w}/run --out {w}/file.txt", "is no report of bise and isn't overwritten"),
    ("report {w}/run --out {w}/rows.csv", "is no report of bise and isn't overwritten"),
    ("report {w}/run --out {w}/file.txt/a.html", "can't be a folder"),
    ("verify", "missing argument 'run'"),
    ("verify {w}/nothing", "holds no config.json"),
    ("verify {w}/file.txt", "holds no config.json"),
    ("verify {w}/run --weights {w}/net.safetensors", "name it with --model"),
    ("verify {w}/run --model no_such_module:make", "can't be imported"),
    ("verify {w}/run --model test_bad_input:make --weights {w}/other.safetensors", "doesn't fit"),
]  # fmt: skip


def snapshot(base):
    return {path: path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) for path in base.rglob("*")}


@pytest.mark.parametrize(("line", "expected"), BAD, ids=[line for line, _ in BAD])
def test_one_sentence_and_nothing_written(line, expected, world, tmp_path, monkeypatch):
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = snapshot(world)
    result = CliRunner().invoke(app, shlex.split(line.format(w=world, out=tmp_path / "out")))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (sentence,) = result.stderr.strip().splitlines()
    assert sentence.startswith("bise: ")
    assert expected in sentence
    assert snapshot(world) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def test_there_are_at_least_a_hundred():
    assert len({line for line, _ in BAD}) == len(BAD) >= 100
