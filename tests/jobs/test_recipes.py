"""Recipes: the supplement's figures written by hand, starting weights, and the path from bise train on."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bise
from bise import BadInput, ExtractConfig, TrainConfig
from bise.cli.app import app
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.jobs.data_sources import rho_of
from bise.jobs.python_sources import device_named
from bise.jobs.recipes import PAPER, architecture, recipe, splits, start
from bise.jobs.train import finetune_settings, recipe_of
from bise.methods.finetuning import owning
from bise.network.architectures.pretrained import bert, resnet18
from bise.network.architectures.small import MLP, SimpleConvNet
from conftest import toy, toy_model

# the supplement's "Architectures and training settings" and "Finetuning settings"
VANILLA = {
    ("biased-mnist", 0.99): ("sgd", 0.1, 1e-4, 100, 80, "steps", (40, 60)),
    ("biased-mnist", 0.995): ("sgd", 0.1, 1e-4, 100, 80, "steps", (40, 60)),
    ("biased-mnist", 0.997): ("sgd", 0.1, 1e-4, 100, 100, "steps", (80, 90)),
    ("biased-mnist", 0.999): ("sgd", 0.1, 1e-4, 100, 100, "steps", (80, 90)),
    ("corrupted-cifar10", None): ("adam", 1e-3, 1e-4, 256, 200, "cosine", ()),
    ("celeba", None): ("adam", 1e-4, 1e-4, 256, 50, "constant", ()),
    ("multi-color-mnist", None): ("adam", 1e-3, 1e-4, 256, 100, "constant", ()),
    ("civilcomments", None): ("adamw", 1e-5, 1e-4, 16, 10, "linear", ()),
}
FINETUNING = {
    "biased-mnist": ("sgd", 1e-3),
    "corrupted-cifar10": ("adam", 1e-3),
    "multi-color-mnist": ("adam", 1e-3),
    "celeba": ("adam", 1e-4),
    "civilcomments": ("adamw", 1e-8),
}
START = {
    "biased-mnist": "scratch",
    "multi-color-mnist": "scratch",
    "corrupted-cifar10": "imagenet",
    "celeba": "imagenet",
    "civilcomments": "bert-base-uncased",
}
SELECTED = {"biased-mnist": "best", "celeba": "best", "civilcomments": "best"}
WEIGHTS = {"biased-mnist": 531_210, "celeba": 11_177_538, "corrupted-cifar10": 11_181_642, "multi-color-mnist": 256_510}


@pytest.mark.parametrize(("name", "rho"), VANILLA)
def test_vanilla_settings(name, rho):
    c = recipe(name, rho=rho, seed=3).train
    found = (c.optimizer, c.lr, c.weight_decay, c.batch_size, c.epochs, c.schedule, c.milestones)
    assert found == VANILLA[name, rho]
    assert (c.sampler, c.weights, c.steps, c.seed) == ("natural", "none", None, 3)
    assert c.momentum == 0.9


@pytest.mark.parametrize("name", PAPER)
def test_debiasing_and_finetuning_settings(name):
    r = recipe(name, seed=3)
    e, f = r.extract, r.finetune
    assert (e.lr, e.momentum, e.weight_decay) == (1e-2, 0.9, 1e-4)
    assert (e.kappa, e.upsilon, e.tau_min, e.gamma) == (0.5, 10, 1e-3, 1.0)
    assert (e.head_epochs, e.head_lr, e.head_momentum, e.head_weight_decay) == (50, 0.1, 0.9, 1e-4)
    assert (e.sampler, e.weights, e.mi, e.bn, e.steps, e.head_steps) == (
        *("natural", "paper", "conflicting", "frozen"),
        *(None, None),
    )
    assert (f.optimizer, f.lr) == FINETUNING[name]
    assert (f.epochs, f.weight_decay, f.weights, f.sampler) == (50, 1e-4, "paper", "natural")
    assert e.batch_size == f.batch_size == r.train.batch_size
    assert e.seed == f.seed == 3
    assert r.start == START[name]
    assert r.select == SELECTED.get(name, "last")
    assert e.selection == f.selection
    assert ExtractConfig.paper(**r.extract_changes()) == e


def test_defaults_of_data():
    assert recipe("multi-color-mnist").rho == (0.99, 0.95)
    assert recipe("biased-mnist").rho == 0.99
    assert {recipe(name).protocol for name in PAPER} == {"paper"}
    assert recipe("biased-mnist", protocol="held-out").protocol == "held-out"


@pytest.mark.parametrize("name", WEIGHTS)
def test_architectures_have_the_supplements_weights(name):
    assert sum(p.numel() for p in architecture(recipe=name).parameters()) == WEIGHTS[name]


def test_bert_has_the_supplements_weight_matrices():
    with torch.device("meta"):
        model = architecture(recipe="civilcomments")
    # biases and layer normalisation left out, as the supplement counts
    assert sum(p.numel() for p in model.parameters() if p.dim() > 1) == 109_361_664


def test_bad_recipes_are_named():
    with pytest.raises(BadInput, match="recipe 'mnist' is unknown; use biased-mnist, "):
        recipe("mnist")
    for name in ("celeba", "civilcomments"):
        with pytest.raises(BadInput, match=f"rho=0.9 can't be set for {name}"):
            recipe(name, rho=0.9)
    with pytest.raises(BadInput, match="select='first'"):
        replace(recipe("celeba"), select="first")
    with pytest.raises(FrozenInstanceError):
        recipe("celeba").rho = 0.5


def test_rho_and_device_as_typed():
    assert rho_of(None) is None
    assert rho_of("0.99") == 0.99
    assert rho_of("0.99,0.95") == (0.99, 0.95)
    for text in ("a", "", "1,2,3"):
        with pytest.raises(BadInput, match="--rho"):
            rho_of(text)
    assert device_named("cpu") == torch.device("cpu")
    for name in ("tpu9", "meta", *([] if torch.cuda.is_available() else ["cuda"])):
        with pytest.raises(BadInput, match="--device"):
            device_named(name)


# schedules and augmentation in training


@pytest.mark.parametrize(
    ("schedule", "expected"), [("linear", [1, 0.75, 0.5, 0.25]), ("steps", [1, 1, 0.1, 0.01]), ("constant", [1] * 4)]
)
def test_the_rate_is_set_once_an_epoch(monkeypatch, schedule, expected):
    rates = []
    original = torch.optim.SGD.step

    def step(self, *arguments, **options):
        rates.append(self.param_groups[0]["lr"])
        return original(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    data = toy(60)
    config = TrainConfig(epochs=4, batch_size=60, lr=0.5, schedule=schedule, milestones=(2, 3))
    fit(owning(toy_model()), Inputs(data, torch.device("cpu")), bise.data.labels(data), config)
    assert rates == pytest.approx([0.5 * factor for factor in expected])


# where weights come from


def test_resnet_from_a_file_and_from_scratch(tmp_path):
    torch.manual_seed(0)
    source, provenance = resnet18(1000)
    assert provenance == "scratch"
    torch.save(source.state_dict(), tmp_path / "a.pth")
    save_file(source.state_dict(), tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        model, provenance = resnet18(2, tmp_path / name)
        assert provenance == f"{tmp_path / name}, fc drawn anew"
        assert torch.equal(model.layer4[1].conv2.weight, source.layer4[1].conv2.weight)
        assert model.fc.weight.shape == (2, 512)
    same, provenance = resnet18(1000, tmp_path / "a.safetensors")
    assert provenance == str(tmp_path / "a.safetensors")
    assert torch.equal(same.fc.weight, source.fc.weight)
    save_file(MLP().state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="don't fit ResNet"):
        resnet18(2, tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="can't be read"):
        resnet18(2, tmp_path / "missing.pt")
    torch.save(source, tmp_path / "pickled.pt")
    with pytest.raises(BadInput, match="can't be read"):
        resnet18(2, tmp_path / "pickled.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(BadInput, match="hold no state dict"):
        resnet18(2, tmp_path / "list.pt")


def test_resnet_from_imagenet_in_torchs_cache_or_not_at_all(tmp_path, monkeypatch):
    torch.manual_seed(1)
    source, _ = resnet18(1000)
    (tmp_path / "checkpoints").mkdir()
    torch.save(source.state_dict(), tmp_path / "checkpoints/resnet18-f37072fd.pth")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    model, provenance = resnet18(2, "imagenet")
    assert provenance == "ImageNet-1K, torchvision IMAGENET1K_V1, fc drawn anew"
    assert torch.equal(model.conv1.weight, source.conv1.weight)
    (tmp_path / "checkpoints/resnet18-f37072fd.pth").unlink()

    def offline(*_, **__):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(BadInput, match="can't be fetched .*give weights=FILE, or weights=None to start from scratch"):
        resnet18(2, "imagenet")


def test_bert_from_a_folder_a_configuration_or_not_at_all(tmp_path):
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    source, provenance = bert(2, None, vocab_size=20, **small)
    assert provenance == "scratch"
    source.save_pretrained(tmp_path / "two")
    model, provenance = bert(2, tmp_path / "two")
    assert provenance == str(tmp_path / "two")
    assert bise.fingerprint(model) == bise.fingerprint(source)
    source.bert.save_pretrained(tmp_path / "bare")
    model, provenance = bert(3, tmp_path / "bare")
    assert provenance == f"{tmp_path / 'bare'}, classifier drawn anew"
    assert model.classifier.out_features == 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="neither a folder with config.json"):
        bert(2, tmp_path / "empty")
    with pytest.raises(BadInput, match="hidden_size can't be changed beside"):
        bert(2, tmp_path / "two", hidden_size=8)
    made, provenance, shape = start(recipe("civilcomments"), tmp_path / "two")
    assert provenance == str(tmp_path / "two")
    again = architecture(recipe="civilcomments", **json.loads(json.dumps(shape)))
    again.load_state_dict(made.state_dict())


def test_small_models_start_by_the_seed_or_from_a_file(tmp_path):
    r = recipe("multi-color-mnist")
    state = torch.get_rng_state()
    first, second, other = (start(r, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    assert bise.fingerprint(first) == bise.fingerprint(second) != bise.fingerprint(other)
    save_file(first.state_dict(), tmp_path / "w.safetensors")
    model, provenance, _ = start(r, str(tmp_path / "w.safetensors"), seed=5)
    assert bise.fingerprint(model) == bise.fingerprint(first)
    assert provenance == str(tmp_path / "w.safetensors")
    with pytest.raises(BadInput, match="no ImageNet weights for MLP"):
        start(r, "imagenet")
    save_file(SimpleConvNet().state_dict(), tmp_path / "c.safetensors")
    with pytest.raises(BadInput, match="don't fit MLP"):
        start(r, str(tmp_path / "c.safetensors"))


# the command


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.data
def test_train_extract_finetune_shrink_audit(tmp_path, data_root):
    vanilla, found = tmp_path / "vanilla", tmp_path / "found"
    own = ["--data-root", data_root, "--device", "cpu", "--limit", "300", "--rho", "0.9,0.8", "--epochs", "2"]
    result = run("train", "multi-color-mnist", *own, "--protocol", "held-out", "--out", vanilla)
    assert result.exit_code == 0, result.output
    assert "started from: scratch" in result.stdout
    made = {"config.json", "metrics.jsonl", "model.safetensors", "report.html", "summary.json"}
    assert {p.name for p in vanilla.iterdir()} == made
    config = json.loads((vanilla / "config.json").read_text())
    assert config["recipe"]["rho"] == [0.9, 0.8]
    assert (config["recipe"]["train"]["epochs"], config["recipe"]["protocol"], config["limit"]) == (2, "held-out", 300)
    assert config["start"] == "scratch"
    assert {"torch", "bise"} <= set(config["machine"])
    model = architecture(recipe="multi-color-mnist")
    model.load_state_dict(load_file(vanilla / "model.safetensors"))
    summary = summary_of(vanilla)
    assert summary["weights"]["sha256"] == bise.fingerprint(model)
    assert len(summary["vanilla"]["by_group"]) == 4
    assert len((vanilla / "metrics.jsonl").read_text().splitlines()) == 2

    audited = run("audit", "--from", vanilla, "--json")
    assert json.loads(audited.stdout)["unbiased"] == pytest.approx(summary["vanilla"]["unbiased"])
    quick = ["--upsilon", "1", "--steps", "5"]
    result = run("extract", "--from", vanilla, "--out", found, "--preset", "paper", *quick)
    assert result.exit_code == 0, result.output
    assert "last mask" in result.stdout
    chosen = json.loads((found / "config.json").read_text())
    assert chosen["extract"]["batch_size"] == 256
    assert chosen["extract"]["weights"] == "paper"
    assert recipe_of(chosen["source"]).rho == (0.9, 0.8)
    assert chosen["source"]["model"] == chosen["source"]["data"] == "recipe:multi-color-mnist"
    assert summary_of(found)["weights"]["before"] == summary["weights"]["sha256"]
    assert summary_of(found)["vanilla"]["unbiased"] == pytest.approx(summary["vanilla"]["unbiased"])
    result = run("finetune", found, "--preset", "paper", "--epochs", "1")
    assert result.exit_code == 0, result.output
    tuned = summary_of(found)["finetune"]
    assert (tuned["optimizer"], tuned["batch_size"], tuned["weights"], tuned["epochs"]) == ("adam", 256, "paper", 1)
    assert run("shrink", found).exit_code == 0
    result = run("audit", "--from", found, "--run", found, "--json")
    assert json.loads(result.stdout)["unbiased"] == pytest.approx(summary_of(found)["subnetwork"]["unbiased"])


@pytest.mark.parametrize(("rho", "even"), [(0.99, False), (0.997, False), (0.998, False), (0.999, True)])
def test_few_conflicting_digits_are_finetuned_by_even_draws(rho, even):
    settings = TrainConfig.finetuning(**recipe("biased-mnist", rho=rho).finetune_balanced)
    assert (settings.sampler, settings.margin) == (("balanced", 0.0) if even else ("natural", 0.8))


@pytest.mark.long
@pytest.mark.data
def test_biased_mnist_trains_by_its_recipe_and_selects_on_val(tmp_path, data_root):
    vanilla, found = tmp_path / "vanilla", tmp_path / "found"
    own = ["--data-root", data_root, "--device", "cpu", "--limit", "24", "--rho", "0.5", "--epochs", "1"]
    result = run("train", "biased-mnist", *own, "--out", vanilla, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["samples"] == {"train": 24, "test": 24}
    quick = ["--upsilon", "1", "--steps", "1", "--batch-size", "12", "--no-baseline"]
    quick += ["--margin", "0", "--smoothing", "0"]  # choosing them would take a thousand passes through a wide network
    result = run("extract", "--from", vanilla, "--out", found, *quick)
    assert result.exit_code == 0, result.output
    assert "best mask on val" in result.stdout


@pytest.mark.data
def test_too_small_a_trial_is_refused_before_training(tmp_path, data_root):
    result = run("train", "multi-color-mnist", "--data-root", data_root, "--limit", "4", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "test holds class" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "mnist"], "recipe 'mnist' is unknown"),
        (["train", "celeba", "--rho", "0.9"], "rho=0.9 can't be set for celeba"),
        (["train", "biased-mnist", "--rho", "much"], "--rho 'much' is no number"),
        (["train", "biased-mnist", "--data-root", "nowhere"], "bise data download mnist"),
        (["train", "biased-mnist", "--device", "abacus"], "--device 'abacus' is unknown"),
        (["train", "biased-mnist", "--epochs", "0"], "epochs=0"),
        (["train", "biased-mnist", "--select", "first"], "select='first'"),
        (["extract"], "--model is missing"),
        (["extract", "--model", "a:b"], "--data is missing"),
        (["extract", "--from", "nowhere"], "does not exist"),
        (["extract", "--from", "nowhere", "--model", "a:b"], "a run brings model, weights and data"),
    ],
)
def test_bad_commands_end_in_one_sentence(tmp_path, arguments, expected):
    result = run(*arguments, "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert expected in line
    assert not (tmp_path / "run").exists()


def test_audit_needs_a_model_or_a_run():
    result = run("audit")
    assert result.exit_code == 2
    assert "--model is missing" in result.stderr


def test_finetuning_presets():
    assert finetune_settings("balanced", {}) == {}
    assert finetune_settings("paper", {"model": "a:b", "data": "c:d"}) == asdict(TrainConfig.paper())
    with pytest.raises(BadInput, match="--preset 'mine'"):
        finetune_settings("mine", {})


def test_the_last_mask_needs_no_val(tmp_path):
    assert splits("val", recipe="multi-color-mnist", select="last", root=tmp_path) is None


def test_help_has_an_example():
    for command in (["train"], ["data", "download"]):
        assert f"Example: bise {' '.join(command)}" in run(*command, "--help").stdout.replace("\n", " ")
