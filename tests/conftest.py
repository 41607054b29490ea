"""What the tests share: the data folder, small models and small biased data."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from bise.data import Labelled
from bise.jobs.sources import trust_run
from small_texts import WORDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent

torch.set_num_threads(1)  # the models are tiny: a second thread would only wait


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("BISE_DATA"):
        return
    skip = pytest.mark.skip(reason="BISE_DATA names no data folder")
    for item in items:
        if item.get_closest_marker("data"):  # not keywords, which have the folder's name too
            item.add_marker(skip)


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = Path(os.environ["BISE_DATA"])
    assert (root / "mnist").is_dir(), f"BISE_DATA={root} holds no mnist/"
    return root


@pytest.fixture(autouse=True, scope="session")
def own_trust(tmp_path_factory):
    """Which folders are trusted is remembered here, and never in the home of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BISE_HOME", str(tmp_path_factory.mktemp("bise-home")))
        yield


def copy_run(run: Path, to: Path) -> Path:
    """A copy of a run, trusted as that one is, of which this process is the maker."""
    shutil.copytree(run, to)
    trust_run(to)
    return to


@pytest.fixture
def ctrl_c():
    """Ctrl-C is heard, here and in what is started from here, also where the tests run under nohup."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A cache that this test has for itself."""
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def vocabulary(tmp_path) -> Path:
    """bert/vocab.txt, with a few words."""
    path = tmp_path / "bert" / "vocab.txt"
    path.parent.mkdir()
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return path


class Stream(Dataset[Any]):
    """The samples of a data set or tensor, one by one: only their number is known beforehand."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


def toy_inputs(y: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """[N, 8]: y in the first four features, faintly; b in the others, loudly."""
    x = torch.randn(len(y), 8, generator=generator)
    x[torch.arange(len(y)), y % 4] += 2
    x[torch.arange(len(y)), 4 + b % 4] += 3
    return x


def toy(n: int = 600, *, classes: int = 3, biases: int = 3, rho: float = 0.95, seed: int = 0) -> Labelled:
    """A biased tabular problem that takes milliseconds: b equals y with probability ρ, else it is another one."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=generator)
    other = (y + torch.randint(1, biases, (n,), generator=generator)) % biases
    b = torch.where(torch.rand(n, generator=generator) < rho, y % biases, other)
    return Labelled(TensorDataset(toy_inputs(y, b, generator)), y=y, b=b, classes=classes, bias_classes=biases)


def toy_model(classes: int = 3, seed: int = 0, width: int = 16) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(8, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )


class TwoHeads(nn.Module):
    """Two layers that could be the last one, so that nobody knows the bottleneck."""

    def __init__(self):
        super().__init__()
        self.body, self.act = nn.Linear(4, 6), nn.ReLU()
        self.left, self.right = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        h = self.act(self.body(x))
        return self.left(h) + self.right(h)


def trained(model: nn.Module, data: Labelled, *, epochs: int = 5, lr: float = 0.05) -> nn.Module:
    """A vanilla model on `data`: what a user would bring."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    assert data.tensors is not None
    x = data.tensors[0]
    generator = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=generator).split(50):
            loss = nn.functional.cross_entropy(model(x[index]), data.y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def learned_by_heart():
    """(net, train, val): labels that no input tells, a network that has learned them all the same, and other ones."""
    torch.manual_seed(0)
    y, b = torch.randint(2, (2, 400))
    b[:360] = y[:360]
    train = Labelled(TensorDataset(torch.randn(400, 20)), y=y, b=b)
    val = Labelled(TensorDataset(torch.randn(400, 20)), y=y.flip(0), b=b)
    net = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 20), nn.ReLU(), nn.Linear(20, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(train.dataset.tensors[0]), y).backward()
        optimizer.step()
    return net.eval(), train, val
