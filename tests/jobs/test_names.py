"""Models and data by a library's name: no line of Python, no code of others, and a sentence where one isn't here."""

from __future__ import annotations

import json
import os
import re
import shutil

import datasets
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bise
from bise.base.errors import BadInput
from bise.base.files import finite
from bise.cli.app import app
from bise.data import Transform, table
from bise.jobs.data_sources import splits_of as hub_splits
from bise.jobs.named_models import agreeing, completed, named_model, telling_of_pixels
from bise.jobs.sources import described
from bise.network.architectures import hub
from bise.network.architectures.auto import transformers_model
from bise.network.architectures.intake import longest_text, pictures_of
from bise.network.architectures.named import classes_of, is_named, made
from bise.network.architectures.text import transformers
from bise.runs.trust import functions_of, shows_files
from small_names import COLUMNS, QUICK, SPOKEN, bert_folder, pictures, texts, timm_weights, vit_folder


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def sentence(result):
    (line,) = result.stderr.strip().splitlines()
    return line.removeprefix("bise: ")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Pictures, texts, and a model of each library with its weights."""
    folder = tmp_path_factory.mktemp("names")
    pictures(folder / "pictures")
    texts(folder / "texts")
    bert_folder(folder / "bert")
    vit_folder(folder / "vit")
    timm_weights(folder / "timm.safetensors")
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """Neither a hub nor what this machine has of one: a cache of the test's own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))


def test_what_is_a_name_and_what_a_function():
    assert all(map(is_named, ("timm:resnet18", "torchvision:resnet18", "hf:user/name", "hf:/a/folder")))
    assert not any(map(is_named, ("nets:make", "hf:", "timm", "hf.inner:make", "", None, "recipe:celeba")))


def test_timm_takes_its_classes_from_the_last_layer_of_the_weights(here):
    import timm

    model = named_model("timm:resnet10t", here / "timm.safetensors")
    mine = timm.create_model("resnet10t", num_classes=2)
    mine.load_state_dict(load_file(here / "timm.safetensors"))
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(model.eval()(x), mine.eval()(x))


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "vit_b_16"])
def test_the_classes_of_weights_by_the_only_layer_of_another_size(name):
    """A linear layer, a convolution, a head with a name of its own; on no memory."""
    with torch.device("meta"):
        usual, mine = made(f"torchvision:{name}"), made(f"torchvision:{name}", 7)
    assert classes_of(usual, mine.state_dict()) == 7
    assert classes_of(usual, usual.state_dict()) is None
    assert classes_of(usual, {name: tensor[:1] for name, tensor in mine.state_dict().items() if tensor.dim()}) is None


def test_weights_of_another_model_are_refused_in_a_sentence(here):
    with pytest.raises(BadInput, match="doesn't fit torchvision:resnet18"):
        named_model("torchvision:resnet18", here / "timm.safetensors")


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(BadInput, match=r"timm:resnet188 is no model of timm; did you mean resnet18\b"):
        named_model("timm:resnet188", None)
    with pytest.raises(BadInput, match="torchvision:resnet180 is no classifier of torchvision; did you mean resnet18"):
        named_model("torchvision:resnet180", None)
    with pytest.raises(BadInput, match="no model of timm"):
        named_model("timm:hf-hub:someone/thing", None)
    with pytest.raises(BadInput, match="no classifier of torchvision"):
        named_model("torchvision:fasterrcnn_resnet50_fpn", None)


def test_published_weights_that_are_not_here_say_what_to_download_and_where_to_put_it(tmp_path):
    with pytest.raises(BadInput) as caught:
        named_model("timm:resnet10t", None)
    said = str(caught.value)
    assert "model.safetensors of timm/resnet10t.c3_in1k is not in the hub's cache" in said
    assert "run hf download timm/resnet10t.c3_in1k --local-dir FOLDER, and give the file with --weights" in said
    with pytest.raises(BadInput) as caught:
        named_model("torchvision:squeezenet1_1", None, local=True)
    said = str(caught.value)
    assert f"needs {tmp_path}/torch/checkpoints/squeezenet1_1-b8a52dc0.pth, which isn't there" in said
    assert "download https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth" in said
    with pytest.raises(BadInput, match="hf download someone/thing --local-dir FOLDER, and give hf:FOLDER"):
        named_model("hf:someone/thing", None)
    with pytest.raises(BadInput, match="a run's own is looked for on this machine only"):
        named_model("hf:someone/thing", None, local=True)


def test_published_weights_that_are_here_are_taken_and_other_classes_refused(tmp_path, here):
    """What the libraries' caches hold, with as many classes as the library's own."""
    (tmp_path / "torch/checkpoints").mkdir(parents=True)
    torch.manual_seed(0)
    state = made("torchvision:squeezenet1_1").state_dict()
    torch.save(state, tmp_path / "torch/checkpoints/squeezenet1_1-b8a52dc0.pth")
    model = named_model("torchvision:squeezenet1_1", None, local=True)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    two = type("Data", (), {"class_names": ("cat", "dog")})
    with pytest.raises(BadInput, match="tell 1,000 classes, and the data have 2; name a file of weights"):
        agreeing("torchvision:squeezenet1_1", model, lambda split: two, own_weights=False)("test")
    assert agreeing("torchvision:squeezenet1_1", model, lambda split: two, own_weights=True)("test") is two
    kept = cached(tmp_path / "hub", "models--timm--resnet10t.c3_in1k")
    save_file(made("timm:resnet10t").state_dict(), kept / "model.safetensors")
    assert named_model("timm:resnet10t", None).num_classes == 1000


def cached(root, name):
    """The folder of a snapshot, as the hub's library keeps it."""
    kept = root / name
    (kept / "refs").mkdir(parents=True)
    (kept / "refs/main").write_text("0" * 40)
    (kept / "snapshots" / ("0" * 40)).mkdir(parents=True)
    return kept / "snapshots" / ("0" * 40)


def test_transformers_from_a_folder_and_from_the_cache(tmp_path, here):
    mine = transformers().BertForSequenceClassification.from_pretrained(here / "bert")
    folder = transformers_model(str(here / "bert"), local=False)
    assert type(folder).__name__ == "BertForSequenceClassification"
    assert bise.fingerprint(folder) == bise.fingerprint(mine)
    kept = cached(tmp_path / "hub", "models--someone--bert")
    for path in (here / "bert").iterdir():
        shutil.copy(path, kept)
    assert bise.fingerprint(transformers_model("someone/bert", local=True)) == bise.fingerprint(mine)
    with pytest.raises(BadInput, match="brings its own weights; leave --weights out"):
        named_model(f"hf:{here / 'bert'}", here / "timm.safetensors")


def changed(here, tmp_path, name="bert", **changes):
    folder = tmp_path / "changed"
    shutil.copytree(here / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attn_implementation": "someone/kernels"}, "asks for the code of 'someone/kernels'"),
        ({"_attn_implementation": {"": "flash_attention_2"}}, "asks for the code of 'flash_attention_2'"),
        ({"text_config": {"attn_implementation": "someone/kernels"}}, "asks for the code of 'someone/kernels'"),
        ({"quantization_config": {"quant_method": "awq"}}, "holds quantised weights"),
        ({"architectures": ["BertForMaskedLM"]}, "is BertForMaskedLM, and no classifier of texts or pictures"),
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}, "can't be loaded"),
        ({"model_type": "timm_wrapper", "architecture": "resnet18"}, "is a model of timm; give timm:ARCHITECTURE"),
        ({"num_hidden_layers": 3}, "is no trained classifier: it has no bert.encoder.layer.2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_configuration_that_asks_for_code_or_for_more_is_refused(here, tmp_path, changes, said):
    folder = changed(here, tmp_path, **changes)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(BadInput, match=re.escape(said)):
        transformers_model(str(folder), local=False)
    assert not (tmp_path / "ran").exists()


def test_an_auto_map_of_a_known_kind_is_passed_over(here, tmp_path):
    """Whoever trusts nobody gets transformers' own class."""
    folder = changed(here, tmp_path, auto_map={"AutoModelForSequenceClassification": "evil.Evil"})
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    assert type(transformers_model(str(folder), local=False)).__module__.startswith("transformers.")


def test_pickled_weights_are_left_alone(here, tmp_path):
    folder = changed(here, tmp_path)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match="its weights in model.safetensors"):
        transformers_model(str(folder), local=False)


def test_what_is_no_folder_says_so(here, tmp_path):
    for name, said in ((tmp_path / "none", "does not exist"), (here, "holds no config.json")):
        with pytest.raises(BadInput, match=said):
            transformers_model(str(name), local=False)
    os.mkfifo(changed(here, tmp_path) / "model-2.safetensors")
    with pytest.raises(BadInput, match="a pipe, a device or a broken link"):
        transformers_model(str(tmp_path / "changed"), local=False)


def test_pictures_are_scaled_as_the_models_own_library_scales_them(here, tmp_path):
    """By transformers' processor itself, on a picture of the model's own size, with another factor than 1/255 too."""
    x = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    for number, changes in enumerate(
        [{}, {"do_rescale": False}, {"rescale_factor": 1 / 100, "image_mean": [0.1, 0.2, 0.3]}, {"do_normalize": False}]
    ):
        folder = tmp_path / str(number)
        processor = transformers().ViTImageProcessor(size={"height": 16, "width": 16}, **changes)
        processor.save_pretrained(folder)
        found = pictures_of(f"hf:{folder}", torch.nn.Identity(), own_weights=False, local=True)
        theirs = processor(list(x), return_tensors="pt")["pixel_values"]
        mine = Transform(mean=found["mean"], std=found["std"])(x)
        assert found["size"] == (16, 16)
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    assert pictures_of(f"hf:{tmp_path}", torch.nn.Identity(), own_weights=False, local=True) == {}
    timm = pictures_of("timm:resnet10t", made("timm:resnet10t"), own_weights=True, local=True)
    assert (timm["size"], timm["mean"]) == ((176, 176), (0.485, 0.456, 0.406))
    vision = pictures_of("torchvision:resnet18", torch.nn.Identity(), own_weights=False, local=True)
    assert (vision["size"], vision["std"]) == ([224, 224], [0.229, 0.224, 0.225])


def test_what_is_given_stands_and_what_is_taken_is_said(here):
    lines = []
    model = torch.nn.Identity()
    how = {"own_weights": True, "say": lines.append}
    own = {"image": "file", "size": "20"}
    found = completed("timm:resnet10t", made("timm:resnet10t"), "t.csv", own, **how)
    assert found == own | {"mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225"}
    assert lines.pop().startswith("pictures: mean 0.485,0.456,0.406, std 0.229,0.224,0.225, by the configuration of ti")
    assert completed("timm:resnet10t", model, "t.csv", own | {"mean": "0"}, **how) == own | {"mean": "0"}
    assert completed("torchvision:resnet18", model, "t.csv", own, **how) == own
    assert lines.pop() == (
        "pictures: torchvision:resnet18 says nothing of mean, std, so --size has to, and pixels go from 0 to 1"
    )
    assert completed("nets:make", model, "t.csv", own, **how) == own
    for given in ({"std": "0.5"}, {"mean": "0"}):
        assert telling_of_pixels("nets:make", "t.csv", own | given, str.upper, lines.append)("val") == "VAL"
    assert lines == []
    told = telling_of_pixels("nets:make", "t.csv", own, str.upper, lines.append)
    assert [told("val"), told("test")] == ["VAL", "TEST"]
    assert lines.pop().startswith("pictures: pixels go from 0 to 1, since no --mean and --std are given")
    assert completed("timm:resnet10t", model, "t.csv", {"features": "a"}, **how) == {"features": "a"}
    assert lines == []


def test_texts_are_cut_to_the_positions_that_there_are(here):
    library = transformers()
    shape = {
        "vocab_size": 9,
        "hidden_size": 4,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
        "intermediate_size": 4,
    }
    bert = library.BertForSequenceClassification(library.BertConfig(max_position_embeddings=20, **shape))
    roberta = library.RobertaForSequenceClassification(library.RobertaConfig(max_position_embeddings=20, **shape))
    assert (longest_text(bert), longest_text(roberta), longest_text(torch.nn.Identity())) == (20, 18, None)
    for model, most in ((bert, 20), (roberta, 18)):  # the libraries' own word for it
        model(input_ids=torch.full((1, most), 5), attention_mask=torch.ones(1, most))
        with pytest.raises((IndexError, RuntimeError)):
            model(input_ids=torch.full((1, most + 1), 5), attention_mask=torch.ones(1, most + 1))
    lines = []
    own = completed("hf:x", roberta, "t.csv", {"text": "t"}, own_weights=False, say=lines.append)
    assert own == {"text": "t", "tokenizer": "x", "length": 18}
    assert lines == ["texts: tokenizer x, length 18, by the configuration of hf:x"]


def test_classes_in_another_order_than_the_models_are_refused(here, tmp_path):
    names = {"id2label": {"0": "dog", "1": "cat"}, "label2id": {"dog": 0, "cat": 1}}
    folder = changed(here, tmp_path, "vit", **names)
    line = run("audit", f"hf:{folder}", "--data", here / "pictures/labels.csv", *COLUMNS, code=2).stderr
    assert "the model numbers its classes dog, cat, and the data cat, dog; write numbers instead of names" in line


def test_an_audit_without_a_line_of_python_is_that_of_python(here):
    found = run("audit", f"hf:{here / 'vit'}", "--data", here / "pictures/labels.csv", *COLUMNS, "--json")
    assert found.stderr.startswith("pictures: size 16x16, mean 0.5,0.5,0.5, std 0.5,0.5,0.5, by the configuration of")
    half = Transform(mean=(0.5,) * 3, std=(0.5,) * 3)
    columns = {"target": "kind", "bias": "paper", "split_column": "fold", "image": "file", "size": 16}
    train, test = (
        table(here / "pictures/labels.csv", split=split, transform=half, **columns) for split in ("train", "test")
    )
    model = transformers().ViTForImageClassification.from_pretrained(here / "vit")
    mine = bise.audit(model, test, aligned=bise.data.labels(train)).as_dict()
    assert json.loads(found.stdout) == json.loads(json.dumps(finite(mine)))


def test_a_run_of_a_named_model_needs_no_trust_and_goes_on_by_itself(here, tmp_path):
    made = tmp_path / "made"
    arguments = ["--data", here / "texts/texts.csv", *SPOKEN, *QUICK]
    result = run("extract", f"hf:{here / 'bert'}", *arguments, "--out", made)
    assert "texts: tokenizer" in result.stderr
    moved = made.rename(tmp_path / "moved")
    source = json.loads((moved / "config.json").read_text())["source"]
    assert (source["model"], source["weights"]) == (f"hf:{here / 'bert'}", None)
    assert source["own"]["tokenizer"] == str(here / "bert")
    assert functions_of(source) == {}
    found = json.loads(run("verify", moved, "--json").stdout)
    assert {promise["state"] for promise in found["promises"]} == {"holds"}
    other = run("audit", "--run", moved, "--data", here / "texts/texts.csv", *SPOKEN, "--json")
    assert "texts: tokenizer" in other.stderr
    page = (moved / "report.html").read_text(encoding="utf-8")
    assert f"bise extract --model hf:{here / 'bert'}" in page


def test_the_model_is_named_once():
    line = sentence(run("audit", "timm:resnet10t", "--model", "timm:resnet18", "--data", "x", code=2))
    assert line == "the model is named twice, as timm:resnet10t and as --model timm:resnet18; leave one of them out"


def spoken(count=60):
    rows = [(i % 2, i % 2 if i % 5 else 1 - i % 2) for i in range(count)]
    kinds = datasets.Features(
        {
            "tone": datasets.ClassLabel(names=["kind", "harsh"]),
            "age": datasets.Value("string"),
            "x": datasets.Value("float32"),
        }
    )
    columns = {
        "tone": [y for y, _ in rows],
        "age": [("old", "young")[b] for _, b in rows],
        "x": [float(y) for y, _ in rows],
    }
    return datasets.Dataset.from_dict(columns, features=kinds)


@pytest.fixture(scope="module")
def hub_data(tmp_path_factory):
    """A data set of the hub in its folder: two parts of train, a validation split, one that is none of ours."""
    folder = tmp_path_factory.mktemp("hub-data")
    (folder / "data").mkdir()
    for name, count in (
        ("train-00000-of-00002", 40),
        ("train-00001-of-00002", 20),
        ("validation-00000-of-00001", 30),
        ("unsupervised-00000-of-00001", 10),
    ):
        spoken(count).to_parquet(folder / "data" / f"{name}.parquet")
    return folder


def split_counts(found):
    return {name: part["samples"] for name, part in json.loads(found.stdout)["splits"].items() if part}


def test_data_of_the_hub_from_a_folder_and_from_its_cache(hub_data, tmp_path):
    shutil.copytree(hub_data, cached(tmp_path / "hub", "datasets--someone--tone"), dirs_exist_ok=True)
    for name in (hub_data, "someone/tone", "someone/tone:data"):
        with pytest.warns(bise.BiseWarning, match="neither train, val nor test is left out .unsupervised."):
            splits = splits_of(f"hf:{name}")
        train = splits("train")
        assert len(splits("val")) == 30
        assert train.class_names == ("kind", "harsh")  # a ClassLabel's own order
        assert len(train) == 60
        assert torch.equal(train.y, torch.cat([torch.arange(40) % 2, torch.arange(20) % 2]))


def splits_of(data, **own):
    return hub_splits(data, {"target": "tone", "bias": "age"} | own)


def test_one_split_alone_may_be_held_out_of(tmp_path):
    spoken(100).to_parquet(tmp_path / "train.parquet")
    splits = splits_of(f"hf:{tmp_path}", holdout="0.1,0.2")
    assert [len(splits(name)) for name in ("train", "val", "test")] == [70, 10, 20]


def test_data_of_the_hub_that_cannot_be_had_or_mean_several_tables(tmp_path):
    with pytest.raises(BadInput, match="run hf download someone/none --local-dir FOLDER, with --repo-type dataset"):
        splits_of("hf:someone/none")
    for name in ("sst2", "cola"):
        (tmp_path / "glue" / name).mkdir(parents=True)
        spoken(10).to_parquet(tmp_path / "glue" / name / "train-00000-of-00001.parquet")
    with pytest.raises(BadInput, match="holds several tables; name one of them as hf:…:cola .cola, sst2."):
        splits_of(f"hf:{tmp_path / 'glue'}")
    assert len(splits_of(f"hf:{tmp_path / 'glue'}:sst2")("train")) == 10
    with pytest.raises(BadInput, match="has no configuration 'mnli'; it has cola, sst2"):
        splits_of(f"hf:{tmp_path / 'glue'}:mnli")
    with pytest.raises(BadInput, match="has no column 'mood'"):
        splits_of(f"hf:{tmp_path / 'glue'}:sst2", target="mood")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/train.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(BadInput, match="can't be read as a folder"):
        splits_of(f"hf:{tmp_path / 'broken'}")
    with pytest.raises(BadInput, match="does not exist"):
        splits_of("hf:./nothing/here")


def test_parquet_that_unfolds_to_more_than_there_is_room_for(tmp_path, monkeypatch):
    """One long text that every row shares is a few bytes in the file."""
    rows = {"tone": [0, 1] * 500, "age": ["old"] * 1000, "text": ["word " * 2000] * 1000}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "train.parquet")
    assert (tmp_path / "train.parquet").stat().st_size < 100_000
    monkeypatch.setenv("BISE_TABLE_MEMORY", str(5_000_000))
    with pytest.raises(BadInput, match="in memory"):
        splits_of(f"hf:{tmp_path}", text="text", tokenizer="x")


def test_a_run_folder_that_names_hub_data_shows_nothing_of_them_unasked(hub_data):
    source = described("timm:resnet10t", None, f"hf:{hub_data}", {"target": "tone"})
    assert source["data"] == f"hf:{hub_data}"
    assert functions_of(source) == {}
    assert shows_files(source)
    assert shows_files(source | {"data": "hf:someone/tone"})


def test_what_a_run_names_asks_nobody(monkeypatch, tmp_path):
    """Neither for a model nor for data, on a machine that has a network."""
    from huggingface_hub import constants

    def contacted(*arguments, **_):
        raise AssertionError(f"a hub was asked: {arguments}")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", contacted)
    monkeypatch.setattr("socket.socket.connect", contacted)
    for name in ("hf:someone/thing", "timm:resnet10t", "torchvision:squeezenet1_1"):
        with pytest.raises(BadInput, match="on this machine only"):
            named_model(name, None, local=True)
    with pytest.raises(BadInput, match="on this machine only"):
        hub_splits("hf:someone/thing", {"target": "y"}, local=True)
    with pytest.raises(AssertionError, match="a hub was asked"):  # it would be seen
        named_model("hf:someone/thing", None)


def test_a_network_is_only_tried_where_there_is_one(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "getproxies", dict)

    def unknown(*_):
        raise OSError("no such host")

    monkeypatch.setattr(hub.socket, "getaddrinfo", unknown)
    with hub.reach(local=False):
        assert constants.HF_HUB_OFFLINE is True
    monkeypatch.setattr(hub.socket, "getaddrinfo", lambda *_: [])
    with hub.reach(local=False):
        assert constants.HF_HUB_OFFLINE is False
    with hub.reach(local=True):
        assert constants.HF_HUB_OFFLINE is True
