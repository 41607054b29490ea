"""From sentences to a file: three families of classifiers, and CivilComments' recipe by the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import bise
from bise import BadInput, ExtractConfig, TrainConfig
from bise.cli.app import app
from bise.data import Labelled
from bise.data.core.coders import coder_of, word_pieces
from bise.data.core.tokens import Sentences
from bise.engine.inputs import Inputs
from bise.network.architectures.pretrained import bert
from bise.network.outputs import call, logits_tensor
from small_texts import SHAPE, WORDS, small, wilds

pytestmark = pytest.mark.usefixtures("own_cache")
QUICK = ExtractConfig(steps=2, upsilon=2, head_epochs=1, head_steps=2, batch_size=8, tau_min=0.5, lr=0.1)


def labelled(vocabulary, n=48):
    generator = torch.Generator().manual_seed(0)
    y, b = torch.randint(0, 2, (2, n), generator=generator)
    words = [[("nice", "fool")[int(y[i])], ("old", "young")[int(b[i])], *["the"] * (i % 20)] for i in range(n)]
    return Labelled(Sentences([" ".join(w) for w in words], word_pieces(vocabulary, 24)), y=y, b=b)


# 2 layers of 24 + 16 units; the pooler or its like has 16 more
@pytest.mark.parametrize(
    ("kind", "units", "bottleneck"),
    [
        pytest.param("bert", 100, "classifier", marks=pytest.mark.long),  # by its recipe it goes this way below
        ("distilbert", 100, "classifier"),
        ("roberta", 100, "classifier.out_proj"),
    ],
)
@pytest.mark.filterwarnings("ignore:train and val are the very same data")
@pytest.mark.filterwarnings("ignore:no mask that tells classes apart")
def test_every_family_goes_all_the_way(vocabulary, tmp_path, kind, units, bottleneck):
    ort = pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    data = labelled(vocabulary)
    model = small(kind)
    before = bise.fingerprint(model)
    assert bise.audit(model, data).biases[0].probe is not None
    sub = bise.extract(model, data, val=data, config=QUICK)
    assert (sub.units[1], sub.bottleneck) == (units, bottleneck)
    masks = {name: torch.arange(len(mask)) % 3 > 0 for name, mask in sub.masks.items()}
    sub = bise.subnetwork(model, masks)
    tuned = bise.finetune(sub, data, val=data, config=TrainConfig.finetuning(epochs=1, optimizer="adamw"))
    assert bise.fingerprint(model) == before
    example = Inputs(data, torch.device("cpu")).example(8)
    for net in (sub, tuned):
        small_net = net.shrink(example)
        report = small_net.shrink_report
        assert "another length" in report.differences
        assert max(report.differences.values()) <= 1e-10
        assert report.parameters_after < report.parameters_before
    path = tmp_path / "model.onnx"
    assert bise.export(small_net, path, example, texts=data) <= 1e-4
    session = ort.InferenceSession(path)
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "model.tokenizer.json"))
    for lines in (["nice"], ["nice old", "fool", "the " * 50, "", "😀"], ["fool young the the the"] * 3):
        found = tokenizer.encode_batch(lines)
        feed = {"input_ids": [f.ids for f in found], "attention_mask": [f.attention_mask for f in found]}
        (logits,) = session.run(None, {name: np.array(value, dtype=np.int64) for name, value in feed.items()})
        inputs = Inputs(Sentences(lines, word_pieces(vocabulary, 24)), torch.device("cpu"))
        with torch.no_grad():
            expected = logits_tensor(call(tuned, next(inputs.batches(torch.arange(len(lines)), 9))[0]))
        np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_shrinking_on_a_gpu_is_exact(vocabulary, kind):
    """There attention lays its output out in another way in float64, where the check is done."""
    model = small(kind).cuda()
    example = Inputs(labelled(vocabulary), torch.device("cuda")).example(8)
    masks = {name: torch.arange(units) % 3 > 0 for name, units in bise.sites(model, example).items()}
    report = bise.subnetwork(model, masks).shrink(example).shrink_report
    assert max(report.differences.values()) <= 1e-10
    assert report.parameters_after < report.parameters_before


def test_a_tokenizer_needs_texts_and_a_form(vocabulary, tmp_path):
    data = labelled(vocabulary)
    sub = bise.subnetwork(small(), {})
    example = Inputs(data, torch.device("cpu")).example(4)
    made = sub.shrink(example)
    with pytest.raises(BadInput, match="holds no texts of a tokenizer"):
        bise.export(made, tmp_path / "a.pt2", example, texts=[1, 2])
    own = Sentences(["a", "b"], coder_of(lambda text: [5], 8))
    with pytest.raises(BadInput, match="has no form for a file"):
        bise.export(made, tmp_path / "a.pt2", example, texts=own)
    assert not list(tmp_path.glob("*.pt2"))


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.long
def test_civilcomments_by_its_recipe(vocabulary, tmp_path):
    pytest.importorskip("onnxruntime")
    root = wilds(tmp_path)
    bert(2, None, vocab_size=len(WORDS), **SHAPE)[0].save_pretrained(tmp_path / "small")
    vanilla, found = tmp_path / "vanilla", tmp_path / "found"
    own = ["--data-root", root, "--weights", tmp_path / "small", "--device", "cpu", "--epochs", "1"]
    trained = run("train", "civilcomments", *own, "--out", vanilla)
    assert trained["samples"] == {"train": 80, "test": 80}
    assert trained["texts"]["train"] == {"texts": 80, "empty": 0, "cut": 0, "unknown": 0, "length": 220}
    config = json.loads((vanilla / "config.json").read_text())["recipe"]
    train = {key: config["train"][key] for key in ("optimizer", "lr", "weight_decay", "batch_size", "schedule")}
    expected = {"optimizer": "adamw", "lr": 1e-5, "weight_decay": 1e-4, "batch_size": 16, "schedule": "linear"}
    assert train == expected
    assert len(trained["vanilla"]["by_group"]) == 4

    quick = ["--upsilon", "1", "--steps", "2"]
    sub = run("extract", "--from", vanilla, "--out", found, "--preset", "paper", *quick)
    assert sub["selection"]["on"] == "val, worst_group"
    assert sub["subnetwork"]["units"]["all"] == 2 * (24 + 16) + 16
    tuned = run("finetune", found, "--preset", "paper", "--epochs", "1")
    assert (tuned["finetune"]["lr"], tuned["finetune"]["selection"]) == (1e-8, "worst_group")
    assert {"finetuned", "dense_finetuned"} <= set(tuned)
    figures = run("shrink", found, "--of", "finetuned", "--onnx", tmp_path / "m.onnx")
    assert figures["difference_float64"] <= 1e-10
    assert figures["files"]["m.onnx"]["tokenizer"] == "m.tokenizer.json"
    assert (tmp_path / "m.tokenizer.json").is_file()

    ours = run("extract", "--from", vanilla, "--out", tmp_path / "ours", *quick)
    assert ours["selection"]["on"] == "val, worst_group"
    audited = run("audit", "--from", vanilla, "--run", found)
    assert audited["worst_group"] == pytest.approx(sub["subnetwork"]["worst_group"])
    checked = run("data", "check", "civilcomments", "--root", root)
    assert checked["splits"]["val"]["texts"]["texts"] == 80


def test_the_check_counts_odd_texts(vocabulary, tmp_path):
    rows = ["text,y,b,part"]
    for i in range(80):
        text = ("", "😀", "nice " * 40, "nice", "fool")[i % 5]
        rows.append(f"{text},{i % 2},{(i // 2 + i) % 2},{'train' if i < 60 else 'val'}")
    (tmp_path / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
    own = [tmp_path / "labels.csv", "--target", "y", "--bias", "b", "--split-column", "part", "--text", "text"]
    tokens = ["--tokenizer", vocabulary, "--length", "16"]
    found = run("data", "check", *own, *tokens)
    assert found["splits"]["train"]["texts"] == {"texts": 60, "empty": 12, "cut": 12, "unknown": 12, "length": 16}
    assert run("data", "check", *own)["splits"]["train"]["texts"] is None
    shown = CliRunner().invoke(app, ["data", "check", *map(str, (*own, *tokens))])
    assert "12 texts without a word" in shown.stdout
    assert "12 texts cut off at 16 tokens" in shown.stdout
    assert "4 texts without a word of the vocabulary" in shown.stdout
