"""What a data set is known by: each number that a network sees changes it, and no other process or random draw does."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset
from typer.testing import CliRunner

import bise
from bise import BadInput, BiseWarning
from bise.cli.app import app
from bise.data import Labelled, PictureFiles, Transform
from bise.data.core.coders import coder_of
from bise.data.core.identity import identity_of, same_samples
from bise.data.core.tokens import Sentences
from bise.engine.checkpoints import Checkpoint
from bise.extraction.config import ExtractConfig
from bise.network.architectures.vision import torchvision
from conftest import toy, toy_model, trained

CHANGED = 1e-6
AT = 7
"""The sample that is changed."""


class Stop(Exception):
    """Stands in for a kill, right after a checkpoint."""


class Code(Dataset):
    """Says nothing of its samples but when it is asked for one."""

    def __init__(self, samples):
        self.__samples = lambda index: samples[index]
        self.count = len(samples)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.__samples(index)


class Faces(Dataset):
    """As torchvision's are: data, targets, and a transform for each sample."""

    def __init__(self, data, targets, transform=None):
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x = self.data[index]
        return (x if self.transform is None else self.transform(x)), int(self.targets[index]), 0


class Scaled:
    """A transform of one's own, with settings of many kinds."""

    def __init__(self, by):
        self.by = {"left": by, "right": 1.0}
        self.kinds = {"a", "b", "c", "d"}
        self.rounded = functools.partial(round, ndigits=3)
        self.source = torch.Generator()

    def __call__(self, x):
        return x * self.by["left"]


class Noisy(Dataset):
    """Draws from a generator that nobody can seed."""

    def __init__(self, y, transform=None, x=None):
        self.y, self.transform, self.x = y, transform, torch.zeros(len(y), 8) if x is None else x
        self._source = np.random.default_rng()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.from_numpy(self._source.normal(size=8)).float(), int(self.y[index]), 0


def rows(by=0.0, count=600):
    """[count, 8], and one number is `by` larger."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(0))
    x[AT, 3] += by
    return x


def labels(count=600):
    generator = torch.Generator().manual_seed(1)
    y, b = (torch.randint(2, (count,), generator=generator) for _ in range(2))
    return {"y": y, "b": b}


def labelled(inputs, **more):
    return Labelled(inputs, **labels(len(inputs)), **more)


def samples(by):
    both = labels()
    return [(x, int(y), int(b)) for x, y, b in zip(rows(by), both["y"], both["b"], strict=True)]


def mapped(by, folder):
    path = folder / f"{by}.npy"
    np.save(path, rows(by).numpy())
    return labelled(np.load(path, mmap_mode="r"))


def pictures(by):
    shades = np.full((20, 4, 4, 3), 9, np.uint8)
    shades[AT, 0, 0, 0] += by > 0
    return [Image.fromarray(shade) for shade in shades]


def transformed(by):
    x = (rows()[:, :, None, None] * 40 + 128).clamp(0, 255).to(torch.uint8)
    return labelled(TensorDataset(x), transform=Transform(mean=(0.5 + by,), std=(0.2,)))


def composed(by):
    torchvision()
    from torchvision import transforms

    steps = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.Normalize((0.5 + by,), (0.2,))])
    return Faces(rows()[:, :, None].unsqueeze(1), labels()["y"], steps)


def frame(by):
    return pandas.DataFrame({"x": rows(by)[:, 3].numpy()})


FORMS = {
    "tensor": lambda by: labelled(rows(by)),
    "labels beside a tensor": lambda by: TensorDataset(rows(), labels()["y"] + (by > 0), labels()["b"]),
    "half": lambda by: labelled(rows(by * 1e4).half()),
    "a view of a tensor": lambda by: labelled(rows(by).t().contiguous().t()),
    "numpy": lambda by: labelled(rows(by).numpy()),
    "numpy, backwards": lambda by: labelled(rows(by).numpy()[::-1, ::-1]),
    "numpy of objects": lambda by: labelled(np.array([*rows(by)[:, 3].tolist(), None], dtype=object)[:-1]),
    "list of tensors": lambda by: labelled(list(rows(by))),
    "list of arrays": lambda by: labelled(list(rows(by).numpy())),
    "list of lists": lambda by: labelled(rows(by).tolist()),
    "list of numbers": lambda by: labelled(rows(by)[:, 3].tolist()),
    "list of whole numbers": lambda by: labelled([*range(AT), AT + 1000 * (by > 0), *range(AT, 599)]),
    "list of texts": lambda by: labelled([f"{value}" for value in rows(by)[:, 3].double().tolist()]),
    "list of dicts": lambda by: labelled([{"a": x, "b": x[:2]} for x in rows(by)]),
    "list of samples": samples,
    "list of numpy's numbers": lambda by: labelled(list(rows(by)[:, 3].numpy())),
    "column": lambda by: labelled(frame(by)["x"]),
    "rows of pandas": lambda by: labelled(frame(by).to_numpy()),
    "pictures": lambda by: labelled(pictures(by)),
    "subset": lambda by: Subset(labelled(rows(by)), range(0, 600, AT)),
    "labelled subset": lambda by: labelled(Subset(rows(by), range(600))),
    "other subset": lambda by: Subset(labelled(rows()), [0, 1, 2 + (by > 0)]),
    "concatenation": lambda by: ConcatDataset([labelled(rows()), labelled(rows(by))]),
    "labelled concatenation": lambda by: labelled(ConcatDataset([list(rows(by)), list(rows())])),
    "stack": lambda by: StackDataset(rows(by), labels()["y"]),
    "transform": transformed,
    "transform in a subset": lambda by: Subset(transformed(by), range(100)),
    "torchvision's transforms": composed,
    "own transform": lambda by: Faces(rows(), labels()["y"], Scaled(1 + by)),
    "labelled, own transform": lambda by: labelled(rows(), transform=Scaled(1 + by)),
    "function as a transform": lambda by: Faces(rows(), labels()["y"], lambda x: x * (1 + by)),
    "code": lambda by: Code(samples(by)),
    "labelled code": lambda by: labelled(Code(rows(by))),
    "code in a subset": lambda by: Subset(Code(samples(by)), range(100)),
    "as torchvision's": lambda by: Faces(rows(by), labels()["y"]),
    "held by code, never drawn": lambda by: Faces(rows(by, 5000), labels(5000)["y"]),
    "in a list held by code": lambda by: Faces([*rows(by, 5000)], labels(5000)["y"]),
    "random, held": lambda by: Noisy(labels()["y"], x=rows(by)),
    "random, transform": lambda by: Noisy(labels()["y"], transform=Scaled(1 + by)),
    "random, label": lambda by: Noisy(labels()["y"] + (by > 0)),
    "random, label that is drawn": lambda by: Code(Noisy(labels()["y"] + (by > 0))),
    "what is aligned": lambda by: labelled(rows(), aligned={0: 0, 1: int(by > 0)}),
}
"""A data set of each form, of which one number is larger by what is given."""


def known(data):
    return identity_of(data).sha256


@pytest.mark.parametrize("form", FORMS)
def test_one_number_makes_another_data_set(form):
    make = FORMS[form]
    assert known(make(0.0)) == known(make(0.0))
    assert known(make(CHANGED)) != known(make(0.0))


def test_mapped_files_count_by_their_content(tmp_path):
    assert known(mapped(0.0, tmp_path)) == known(labelled(rows().numpy()))
    assert known(mapped(CHANGED, tmp_path)) != known(mapped(0.0, tmp_path))


def word(text):
    return [len(part) for part in text.split()]


def letter(text):
    return [ord(part[0]) for part in text.split()]


def test_texts_count_with_what_cuts_them():
    texts = ["a bb", "ccc d"]

    def made(coder, of=texts):
        return known(Labelled(Sentences(of, coder), y=[0, 1]))

    assert made(coder_of(word, 8)) == made(coder_of(word, 8))
    others = [made(coder_of(word, 9)), made(coder_of(letter, 8)), made(coder_of(word, 8), ["a bb", "ccc de"])]
    assert len({made(coder_of(word, 8)), *others}) == 4


def test_a_tokenizer_is_the_same_after_it_was_used():
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "[PAD]": 2}, unk_token="[UNK]"))
    given = transformers.PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="[UNK]", pad_token="[PAD]")
    first = coder_of(given, 4)
    first.encode(["a a a a a a"])  # which sets how it cuts
    assert coder_of(given, 4).key == first.key is not None


def test_picture_files_count_by_names_sizes_and_how_they_are_read(tmp_path):
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file, picture in zip(files, pictures(0.0), strict=False):
        picture.save(file)
    y = [0, 1, 1]

    def made(names=files, size=4, mean=0.5, **more):
        return known(Labelled(PictureFiles(names, size=size, **more), y=y, transform=Transform(mean=(mean,))))

    first = made()
    assert made() == first
    others = [made(files[::-1]), made(size=5), made(mean=0.6), made(channels=1), made(crop=2)]
    files[1].write_bytes(files[1].read_bytes() + b"\0")
    others.append(made())
    assert len({first, *others}) == 7
    found = identity_of(Labelled(PictureFiles(files, size=4), y=y))
    assert found.of == "names and sizes"


def test_what_it_is_a_hash_of_is_said():
    assert identity_of(None) is None
    assert identity_of(labelled(rows())).of == "content"
    assert identity_of(Code(samples(0.0))).of == "fingerprint of 600 of 600 samples"
    assert identity_of(Faces(rows(0.0, 5000), labels(5000)["y"])).of == "fingerprint of 1000 of 5000 samples"
    large = labelled(Code(torch.zeros(100, 1 << 18)))  # 1 MiB each
    assert identity_of(large).of == "fingerprint of 64 of 100 samples"
    found = identity_of(Noisy(labels()["y"]))
    assert found.random
    assert found.of == "labels, and the arrays and transforms that it holds: inputs are random"


def test_neither_order_nor_place_in_memory_counts():
    x = rows()
    one = [{"a": row, "b": 1} for row in x]
    other = [{"b": 1, "a": row.clone()} for row in x]
    assert known(labelled(one)) == known(labelled(other))
    assert known(labelled(x.t().contiguous().t())) == known(labelled(x))
    assert known(labelled(np.asfortranarray(x.numpy()))) == known(labelled(x.numpy()))
    assert known(labelled(tuple(x))) == known(labelled(list(x)))


def test_kinds_of_numbers_and_bits_count():
    zeros = torch.zeros(4, 2)
    y = [0, 1, 0, 1]
    kinds = [zeros, zeros.double(), zeros.int(), zeros.view(2, 4)[:, :2].repeat(2, 1).bool(), -zeros, zeros[:, :1]]
    assert len({known(Labelled(x, y=y)) for x in kinds}) == len(kinds)  # −0.0 has a bit that 0.0 hasn't


def test_what_holds_itself_ends():
    held = [torch.zeros(1)]
    held.append(held)
    assert known(Labelled(held, y=[0, 1])) == known(Labelled(held, y=[0, 1]))


SCRIPT = """
import json, sys
import test_identity
print(json.dumps({name: test_identity.known(make(0.0)) for name, make in test_identity.FORMS.items()}))
"""


@pytest.mark.long
def test_another_process_finds_the_same():
    here = {name: known(make(0.0)) for name, make in FORMS.items()}
    for seed in ("1", "2"):
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        told = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        result = subprocess.run([sys.executable, "-c", SCRIPT], env=told, capture_output=True, text=True, check=True)
        assert json.loads(result.stdout) == here


class Augmented(Faces):
    """Draws from every source that there is, one of its own included."""

    def __init__(self):
        super().__init__(rows(), labels()["y"])
        self.generator = torch.Generator().manual_seed(3)

    def __getitem__(self, index):
        x, y, b = super().__getitem__(index)
        return x + torch.randn(8) + np.random.normal() + random.random(), y, b  # noqa: NPY002


def test_nobody_s_random_numbers_move():
    data = Augmented()
    wild = Noisy(labels()["y"])
    wild._source = np.random.default_rng(5)

    def states():
        own = data.generator.get_state().tolist(), wild._source.bit_generator.state
        return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate(), *own  # noqa: NPY002

    before = states()
    found = identity_of(data)
    assert identity_of(wild).random
    assert states() == before
    assert found.of == "fingerprint of 600 of 600 samples", "what can be seeded has a fingerprint"
    torch.manual_seed(77)
    np.random.seed(77)  # noqa: NPY002
    random.seed(77)
    assert identity_of(data) == found


def test_what_fills_itself_on_access_stays_the_same():
    class Late(Faces):
        def __init__(self):
            super().__init__(None, labels()["y"])
            self.asked, self.kept = 0, {}

        def __len__(self):
            return 600

        def __getitem__(self, index):
            self.data = rows() if self.data is None else self.data
            self.asked += 1
            self.kept[index] = super().__getitem__(index)
            return self.kept[index]

    data = Late()
    first = known(data)
    for index in range(600):
        data[index]
    assert known(data) == first == known(Late())


def test_a_sample_that_cannot_be_read_is_left_to_whoever_needs_it():
    class Broken(Faces):
        def __getitem__(self, index):
            if index == AT:
                raise OSError(f"no file at {id(self)}")
            return super().__getitem__(index)

    data = Broken(rows(), labels()["y"])
    assert known(data) == known(Broken(rows(), labels()["y"])) != known(Faces(rows(), labels()["y"]))


def test_large_files_are_read_piece_by_piece(tmp_path):
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(1 << 12, 1 << 12)).flush()  # 64 MiB
    whole = np.load(path, mmap_mode="r")
    tracemalloc.start()
    for x in (whole, whole[:, ::2]):
        known(Labelled(x, y=torch.zeros(len(x))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20, "blocks of 8 MiB"


def test_the_same_samples_under_another_transform_are_the_same():
    assert same_samples(transformed(0.0), transformed(0.1))
    assert not same_samples(labelled(rows()), labelled(rows(CHANGED)))
    assert not same_samples(labelled(rows()), None)


# what a run notices

NOTICED = ("tensor", "numpy", "list of tensors", "subset", "concatenation", "transform", "code")
SETTING = {"form": "tensor", "by": 0.0, "of": "train", "tested": False}
QUICK = ["--steps", "4", "--upsilon", "1", "--batch-size", "60"]


def net():
    return nn.Sequential(nn.Flatten(), *toy_model(classes=2))


@functools.cache
def model():
    return trained(net(), toy(classes=2, biases=2))


def splits(split):
    if split == "test" and not SETTING["tested"]:
        return None
    here = {"train": 0.0, "val": 0.5, "test": 0.25}[split]
    return FORMS[SETTING["form"]](here + SETTING["by"] * (split == SETTING["of"]))


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.safetensors"
    save_file(model().state_dict(), path)
    return path


@pytest.fixture
def command(weights):
    return ["extract", "--model", "test_identity:net", "--weights", weights, "--data", "test_identity:splits", *QUICK]


@pytest.mark.parametrize("form", NOTICED)
def test_a_checkpoint_notices_one_number(tmp_path, form):
    config = ExtractConfig(upsilon=1, steps=2, head_epochs=1, batch_size=60)
    path = tmp_path / "extract.safetensors"
    make = FORMS[form]
    first = bise.extract(model(), make(0.0), config=config, checkpoint=path)
    again = bise.extract(model(), make(0.0), config=config, checkpoint=path)
    assert all(torch.equal(again.scores[site], first.scores[site]) for site in first.scores)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model(), make(CHANGED), config=config, checkpoint=path)
    tuned = tmp_path / "finetune.safetensors"
    brief = bise.TrainConfig.finetuning(epochs=1)
    bise.finetune(first, make(0.0), config=brief, checkpoint=tuned)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.finetune(first, make(CHANGED), config=brief, checkpoint=tuned)


@pytest.mark.parametrize("form", NOTICED)
def test_a_run_notices_one_number(tmp_path, monkeypatch, command, form):
    monkeypatch.setitem(SETTING, "form", form)
    save = Checkpoint.save

    def stopping(self, tensors, state):
        save(self, tensors, state)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stopping)
        assert run(*command, "--out", tmp_path / "run", "--checkpoint-every", "0").exit_code == 1
    monkeypatch.setitem(SETTING, "by", CHANGED)
    result = run(*command, "--out", tmp_path / "run", "--resume")
    assert result.exit_code == 2
    assert "another configuration (sha256.train is 2:" in result.stderr
    monkeypatch.setitem(SETTING, "by", 0.0)
    result = run(*command, "--out", tmp_path / "run", "--resume")
    assert result.exit_code == 0, result.output
    of = {"code": "fingerprint of 600 of 600 samples"}.get(form, "content")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["data"]["identity"] == {"train": of, "val": of}
    assert _data(tmp_path / "run") == ("holds", f"the samples and labels of then: train ({of}), val ({of})")
    monkeypatch.setitem(SETTING, "by", CHANGED)
    assert _data(tmp_path / "run")[0] == "broken"
    result = run("finetune", tmp_path / "run", "--epochs", "1")
    assert result.exit_code == 2
    assert "train changed since" in result.stderr


STEPS = {"refit": "bise.jobs.refit.refitting", "front": "bise.jobs.front._point", "bench": "bise.jobs.bench_work.row"}
"""{a command that came later: what it is stopped in}"""


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "finished"])
@pytest.mark.parametrize("of", ["train", "val", "test"])
@pytest.mark.parametrize("job", STEPS)
def test_steps_and_comparisons_notice_one_number(tmp_path, monkeypatch, command, job, of, stopped):
    """Of any split, where they go on, and where they are there already."""
    monkeypatch.setitem(SETTING, "of", of)
    monkeypatch.setitem(SETTING, "tested", True)
    words = [job, tmp_path / "run"]
    if job == "bench":
        brief = ["--methods", "erm,dfr", "--seeds", "1", "--epochs", "1", "--select", "unbiased-val"]
        words = [*words[:1], *command[1:7], *brief, "--out", *words[1:]]
    else:
        assert run(*command, "--out", tmp_path / "run").exit_code == 0
    words += ["--budget", "0.5", "--no-refit"] if job == "front" else []
    with monkeypatch.context() as patch:
        if stopped:
            patch.setattr(STEPS[job], stop)
        assert run(*words).exit_code == (1 if stopped else 0)
    resume = ["--resume"] if stopped else []
    monkeypatch.setitem(SETTING, "by", CHANGED)
    result = run(*words, *resume)
    assert result.exit_code == 2, result.output
    noted = f"another configuration (datasets.test_identity:splits.sha256.{of} is 2:"
    assert (noted if job == "bench" else f"{of} changed since") in result.stderr
    monkeypatch.setitem(SETTING, "by", 0.0)
    result = run(*words, *resume)
    assert result.exit_code == 0, result.output


def stop(*_, **__):
    raise Stop


def _data(folder):
    """What `bise verify` says of the data."""
    promises = json.loads(run("verify", folder, "--json").stdout)["promises"]
    return next((one["state"], one["detail"]) for one in promises if one["name"] == "data")


def test_a_run_by_an_earlier_version_is_not_called_broken(tmp_path, command):
    out = tmp_path / "run"
    assert run(*command, "--out", out).exit_code == 0
    path = out / "config.json"
    config = json.loads(path.read_text())
    config["sha256"] |= {"train": "ab" * 32, "val": "cd" * 32}
    path.write_text(json.dumps(config))
    state, why = _data(out)
    assert state == "unchecked"
    assert "an earlier version noted" in why
    result = run("finetune", out, "--epochs", "1")
    assert result.exit_code == 0, result.output
    assert "whether they changed isn't known" in " ".join(result.stderr.split())
    assert _data(out)[0] == "unchecked"


def test_random_inputs_can_be_gone_on_with_and_are_told_of(tmp_path):
    config = ExtractConfig(upsilon=1, steps=2, head_epochs=1, batch_size=60)
    path = tmp_path / "extract.safetensors"
    made = functools.partial(labelled, Noisy(labels()["y"], x=rows()))
    for _ in range(2):
        with pytest.warns(BiseWarning, match="samples of train are other ones each time"):
            bise.extract(model(), made(), config=config, checkpoint=path)
