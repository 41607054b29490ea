"""Callbacks in the real loops of transformers and Lightning: figures, untouched training, extraction, checkpoints."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import bise
from bise import BadInput
from conftest import Stream, toy, toy_model

pytest.importorskip("accelerate", reason="the extra loops is not installed")
pytest.importorskip("lightning", reason="the extra loops is not installed")
BRIEF = bise.ExtractConfig(upsilon=1, tau_min=0.6, head_epochs=1, steps=3, head_steps=3)
FIGURES = {"accuracy", "unbiased", "worst_group", "aligned", "conflicting"}


class Classifier(nn.Module):
    """A network as transformers' Trainer takes it."""

    def __init__(self):
        super().__init__()
        self.net = toy_model()
        self.dropout = nn.Dropout(0.2)  # draws random numbers, in training alone

    def forward(self, x, labels=None):
        logits = self.net(self.dropout(x))
        if labels is None:
            return (logits,)
        return nn.functional.cross_entropy(logits, labels), logits


def collate(samples):
    x, y, _ = torch.utils.data.default_collate(samples)
    return {"x": x, "labels": y}


def by_transformers(folder, *callbacks, epochs=2, **arguments):
    """(model, trainer) after training."""
    from transformers import Trainer, TrainingArguments

    model = Classifier()
    how = TrainingArguments(
        output_dir=str(folder), num_train_epochs=epochs, per_device_train_batch_size=100, use_cpu=True, report_to=[],
        disable_tqdm=True, seed=3,
        **{"learning_rate": 1e-2, "save_strategy": "no", "logging_strategy": "no"} | arguments,
    )  # fmt: skip
    trainer = Trainer(
        model, how, train_dataset=Stream(toy()), eval_dataset=Stream(toy(rho=1 / 3, seed=1)), data_collator=collate,
        callbacks=list(callbacks),
    )  # fmt: skip
    trainer.train()
    return model, trainer


def by_lightning(folder, *callbacks, package="lightning.pytorch", epochs=2):
    from importlib import import_module

    lightning = import_module(package)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = Classifier()

        def forward(self, x):
            return self.inner(x)[0]

        def training_step(self, batch, _):
            x, y, _ = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    lightning.seed_everything(3, verbose=False)
    module = Module()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*fewer than the logging interval.*|.*smaller than the logging.*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of Lightning's own
        warnings.filterwarnings("ignore", category=FutureWarning)
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            enable_checkpointing=any("Checkpoint" in type(c).__name__ for c in callbacks), callbacks=list(callbacks),
            default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(module, DataLoader(toy(), batch_size=100, shuffle=True))
    return module, trainer


LOOPS = {"transformers": (by_transformers, bise.trainer_callback), "lightning": (by_lightning, bise.lightning_callback)}


@pytest.fixture(params=LOOPS)
def loop(request):
    return LOOPS[request.param]


def test_audits_after_each_epoch_and_an_extraction_at_the_end(loop, tmp_path):
    """The last audit is that of the finished model, and training is the same, bit for bit, as without."""
    train, make = loop
    test, cells, rows = toy(rho=1 / 3, seed=2), bise.data.labels(toy()), []
    watch = make(
        DataLoader(test, batch_size=7), aligned=cells, log=rows.append, train=toy(), val=toy(rho=1 / 3, seed=1),
        config=BRIEF, save=tmp_path / "mine",
    )  # fmt: skip
    model, _ = train(tmp_path, watch)
    alone, _ = train(tmp_path)
    assert bise.fingerprint(model) == bise.fingerprint(alone)
    assert watch.audits[-1] == bise.audit(model, test, aligned=cells, probe=False)
    assert watch.audits[0] != watch.audits[1]
    audited = [row for row in rows if row["job"] == "audit"]
    assert [row["epoch"] for row in audited] == [1, 2]
    assert [row["worst_group"] for row in audited] == [found.worst_group for found in watch.audits]
    assert {row["job"] for row in rows} == {"audit", "extract"}
    again = bise.extract(model, toy(), val=toy(rho=1 / 3, seed=1), config=BRIEF)
    assert all(torch.equal(scores, watch.subnetwork.scores[name]) for name, scores in again.scores.items())
    example = toy().tensors[0][:4]
    loaded = bise.load(tmp_path / "mine", model)
    assert all(torch.equal(a, b) for a, b in zip(loaded(example), watch.subnetwork(example), strict=True))


def test_the_trainers_own_log_has_the_figures(tmp_path):
    watch = bise.trainer_callback(toy(rho=1 / 3, seed=2))
    _, trainer = by_transformers(tmp_path, watch)
    told = [row for row in trainer.state.log_history if "audit/worst_group" in row]
    assert [row["audit/worst_group"] for row in told] == [found.worst_group for found in watch.audits]
    assert [row["epoch"] for row in told] == [1.0, 2.0]
    assert {f"audit/{name}" for name in FIGURES} < set(told[0])
    difference = watch.audits[0].biases[0].demographic_parity_difference
    assert told[0]["audit/bias/b/demographic_parity_difference"] == difference
    assert told[0]["audit/group/y=0 b=0"] == watch.audits[0].by_group["y=0 b=0"]
    trainer.save_state()
    assert json.loads((tmp_path / "trainer_state.json").read_text())["log_history"] == trainer.state.log_history


def test_an_epoch_that_is_cut_short(tmp_path):
    """Six steps make an epoch, and the training ends after eight."""
    watch = bise.trainer_callback(toy(rho=1 / 3, seed=2), every=2)
    by_transformers(tmp_path, watch, max_steps=8)
    assert [row["epoch"] for row in watch.rows] == [2]


@pytest.mark.filterwarnings("ignore:no mask was as good on val")  # in so few steps
def test_the_extraction_is_of_the_model_that_training_leaves(tmp_path):
    """Here that of the epoch that the trainer is told to think best, which isn't the last."""
    watch = bise.trainer_callback(toy(rho=1 / 3, seed=2), train=toy(), val=toy(rho=1 / 3, seed=1), config=BRIEF)
    model, trainer = by_transformers(
        tmp_path, watch, epochs=3, gradient_accumulation_steps=2, learning_rate=0.5, eval_strategy="epoch",
        save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=True,
    )  # fmt: skip
    losses = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    best = losses.index(max(losses))
    assert best < 2
    assert watch.audits[best] == bise.audit(model, toy(rho=1 / 3, seed=2), probe=False) != watch.audits[2]
    again = bise.extract(model, toy(), val=toy(rho=1 / 3, seed=1), config=BRIEF)
    assert all(torch.equal(scores, watch.subnetwork.scores[name]) for name, scores in again.scores.items())


def test_a_checkpoint_goes_by_the_worst_group(tmp_path):
    from lightning.pytorch.callbacks import ModelCheckpoint

    watch = bise.lightning_callback(toy(rho=1 / 3, seed=2))
    kept = ModelCheckpoint(tmp_path, monitor="audit/worst_group", mode="max", save_on_train_epoch_end=True)
    by_lightning(tmp_path, kept, watch, epochs=3)
    assert float(kept.best_model_score) == pytest.approx(max(found.worst_group for found in watch.audits))


def test_either_package_of_lightning(tmp_path):
    """Both are imported here, and share no class: a callback belongs to each."""
    import lightning.pytorch
    import pytorch_lightning

    watch = bise.lightning_callback(toy(rho=1 / 3, seed=2), every=2, network="inner.net", probe=True)
    assert isinstance(watch, lightning.pytorch.Callback)
    assert isinstance(watch, pytorch_lightning.Callback)
    module, _ = by_lightning(tmp_path, watch, package="pytorch_lightning")
    assert len(watch.audits) == 1
    assert watch.audits[0] == bise.audit(module.inner.net, toy(rho=1 / 3, seed=2))
    assert watch.audits[0].biases[0].probe is not None


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"every": 0}, "every=0 is no number of epochs; give 1 or more"),
        ({"save": "mine"}, "are for the extraction at the end; give its data with train=…"),
        ({"network": "nets"}, "network='nets' is no part of Sequential; its parts are 0, 1, 2, 3, 4, 5"),
    ],
)
@pytest.mark.parametrize("make", [bise.trainer_callback, bise.lightning_callback])
def test_what_it_refuses(make, how, sentence):
    with pytest.raises(BadInput, match=sentence):
        make(toy(), **how).look(toy_model(), 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_a_compiled_model_is_audited_as_it_was_before():
    watch, model = bise.trainer_callback(toy()), toy_model()
    watch.look(torch.compile(model), 1)
    assert watch.audits[0] == bise.audit(model, toy(), probe=False)


def test_labels_are_read_once():
    """A data set without known labels is not read again for them in each epoch."""

    class Counting(Stream):
        reads = 0

        def __getitem__(self, index):
            Counting.reads += 1
            return super().__getitem__(index)

    watch = bise.trainer_callback(Counting(toy(60)))
    first = Counting.reads
    watch.look(toy_model(), 1)
    each = Counting.reads - first
    watch.look(toy_model(), 2)
    assert (first, Counting.reads) == (60, 60 + 2 * each)
    assert each < 60 + 60
