"""Pictures held in memory and pictures read ahead by processes: the same batches, and no process left behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset

import bise
from bise import BadInput, ExtractConfig
from bise.data import Labelled, PictureFiles, Transform
from bise.engine import inputs as module
from bise.engine.inputs import Inputs, automatic_workers

CPU = torch.device("cpu")
AUGMENTED = Transform(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), crop=2, flip=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    paths = [folder / f"{i:02}.png" for i in range(23)]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    return PictureFiles(paths, size=8)


def labelled(dataset):
    y = torch.arange(len(dataset)) % 2
    return Labelled(dataset, y=y, b=1 - y, transform=AUGMENTED)


def drawn(data, **how):
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(3))
    made = Inputs(data, CPU, **how)
    generator = torch.Generator().manual_seed(5)
    return [(x, index) for _ in range(2) for x, index in made.batches(order, 5, generator)]


def test_the_same_batches_from_memory_and_from_files_by_any_number_of_workers(files):
    resident = labelled(TensorDataset(torch.stack([files[i] for i in range(len(files))])))
    expected = drawn(resident)
    assert len(expected) == 10
    assert not torch.equal(expected[0][0], expected[5][0])  # each epoch augments anew
    others = [drawn(resident, budget=0), *(drawn(labelled(files), workers=workers) for workers in (0, 1, 2))]
    for other in others:
        for (x, index), (found, same) in zip(expected, other, strict=True):
            assert torch.equal(index, same)
            assert torch.equal(x, found)
    assert multiprocessing.active_children() == []


def test_workers_end_with_the_batches_that_nobody_takes(files):
    batches = Inputs(labelled(files), CPU, workers=2).batches(torch.arange(20), 4)
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert multiprocessing.active_children() == []


def test_bad_input_in_a_worker_is_one_sentence_and_ends_it(files, tmp_path):
    odd = tmp_path / "two\nlines: here.png"
    odd.write_bytes(b"no picture")
    data = PictureFiles([*files.paths, odd], size=8)
    with pytest.raises(
        BadInput, match=r"^'[^\n]*two\\nlines: here.png' can't be read as a picture [^\n]*leave it out$"
    ):
        list(Inputs(labelled(data), CPU, workers=2).batches(torch.arange(len(data)), 5))
    assert multiprocessing.active_children() == []


class Deadly(torch.utils.data.Dataset):
    how = None

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and index == 30:
            if self.how is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.how("my own")
        return torch.zeros(3, 8, 8, dtype=torch.uint8)


def said(how):
    """The sentence, without what holds on to the processes: a traceback has their loader in its frames."""
    data = Deadly()
    data.how = how
    try:
        list(Inputs(labelled(data), CPU, workers=1).batches(torch.arange(40), 5))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch tells of the death twice
def test_a_worker_that_is_killed_ends_in_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)  # seconds that torch waits for it
    for own in (RuntimeError, ConnectionError):  # is the data set's own, and stays so
        assert said(own)[0] is own
    # last: torch tells of a death by a signal, which may come late, into the ending of another loader
    kind, sentence = said(None)
    assert kind is BadInput
    assert sentence.startswith("a process that reads ahead was killed, perhaps for memory (")
    gc.collect()
    for child in multiprocessing.active_children():  # told to end, which may take a moment
        child.join(60)
    assert multiprocessing.active_children() == []


class Growing(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.zeros(index + 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_inputs_of_different_shapes_are_refused(workers):
    data = Labelled(Growing(), y=[0, 1] * 3, b=[0, 1] * 3)
    with pytest.raises(BadInput, match="the inputs of a batch don't stack .*give tensors of one shape"):
        list(Inputs(data, CPU, workers=workers).batches(torch.arange(6), 3))


def test_animations_are_told_of_once(tmp_path, capfd):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    paths = [tmp_path / f"{i}.gif" for i in range(8)]
    for path in paths:
        frames[0].save(path, save_all=True, append_images=frames[1:])
    made = Inputs(labelled(PictureFiles(paths, size=4)), CPU, workers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: os.write(2, str(message).encode())
        for _ in range(3):
            list(made.batches(torch.arange(8), 2))
    assert capfd.readouterr().err.count("is animated") == 1


def test_how_many_workers_there_are_by_themselves(files, monkeypatch):
    for cores, expected in ((1, 0), (2, 1), (3, 2), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert automatic_workers(files, 5) == automatic_workers(Subset(files, [0]), 5) == expected
        assert automatic_workers(Growing(), 5) == 0  # one's own data set may not bear it
    chunks = list(torch.arange(23).split(5))
    assert Inputs(labelled(files), CPU)._workers(chunks) == 0  # too few to be worth it
    monkeypatch.setattr(module, "FEW", 20)
    assert Inputs(labelled(files), CPU)._workers(chunks) == 4
    assert Inputs(labelled(files), CPU, workers=7)._workers(chunks) == 7
    assert Inputs(labelled(files), CPU, workers=7)._workers(chunks[:1]) == 0
    each = 3 * 5 * 3 * 8 * 8  # three batches of five pictures
    monkeypatch.setattr(module, "_shared_memory", lambda: 2 * each + 1)
    assert automatic_workers(files, 5) == 2
    monkeypatch.setattr(module, "_shared_memory", lambda: each - 1)
    assert automatic_workers(files, 5) == 0
    monkeypatch.undo()
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert automatic_workers(files, 5) == 0  # a script without a main guard would start itself
    with pytest.raises(BadInput, match="workers=-1 is no number of processes"):
        Inputs(labelled(files), CPU, workers=-1)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv2d(3, 6, 3)
        self.fc = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.body(x).relu().mean((2, 3)))  # one site


@pytest.mark.filterwarnings("ignore:train and val are the very same data")
@pytest.mark.filterwarnings("ignore:no mask that tells classes apart")
def test_extraction_learns_the_same_from_memory_and_from_files(files):
    torch.manual_seed(0)
    model = Small()
    y = torch.arange(len(files)) % 2
    b = torch.where(torch.arange(len(files)) % 5 == 0, 1 - y, y)
    quick = {"steps": 6, "batch_size": 8, "upsilon": 1, "tau_min": 0.4, "head_epochs": 1, "head_steps": 2}

    def scores(dataset, workers=0, augment=True):
        data = Labelled(dataset, y=y, b=b, transform=AUGMENTED)
        config = ExtractConfig(**quick, augment=augment)
        return bise.extract(model, data, val=data, config=config, workers=workers).last.scores.popitem()[1]

    expected = scores(files)
    resident = TensorDataset(torch.stack([files[i] for i in range(len(files))]))
    assert torch.equal(scores(resident), expected)
    assert torch.equal(scores(files, workers=2), expected)
    plain = scores(files, augment=False)
    assert not torch.equal(plain, expected)
    assert torch.equal(scores(resident, augment=False), plain)
    assert multiprocessing.active_children() == []
