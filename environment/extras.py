"""Installs the wheel with each extra in a new environment of its own, and runs there what the extra is for.

    python environment/extras.py                                             # none, and each extra
    python environment/extras.py data onnx -- --constraint constraints.txt   # these; pip is given what follows --

`make extras` does so. Each environment is removed before the next one is made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = {"dev", "docs", "release"}
"""Extras for work on BISE itself, which make installs."""
NONE = "none"
START = """
import torch, bise
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
y = torch.arange(80) % 2
b = torch.where(torch.arange(80) % 5 == 0, 1 - y, y)
x = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
data = bise.data.Labelled(torch.utils.data.TensorDataset(x), y=y, b=b)
audit = bise.audit(model, data)
config = bise.ExtractConfig(upsilon=1, steps=2, head_epochs=1, head_steps=1)
"""
PROGRAMS = {
    NONE: "sub = bise.extract(model, data, config=config); sub.shrink(x)",
    "demo": "from bise.data.sets.digits import digits_split; assert len(digits_split('train', seed=0, rho=0.9)) > 500",
    "data": """
from pathlib import Path
rows = [f"{i},{i % 3},{('a', 'b')[i % 2]},{('u', 'v')[i % 5 == 0]},{('train', 'test')[i % 4 == 0]}" for i in range(80)]
Path("t.csv").write_text("\\n".join(["one,two,y,b,fold", *rows]))
assert len(bise.data.table("t.csv", split="train", target="y", bias="b", split_column="fold")) == 60
""",
    "vision": "import torchvision, timm; assert bise.sites(timm.create_model('resnet18'), torch.zeros(1, 3, 64, 64))",
    "text": """
from transformers import BertConfig, BertForSequenceClassification
small = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
ids = torch.ones(2, 5, dtype=torch.long)
assert bise.sites(BertForSequenceClassification(small), {"input_ids": ids, "attention_mask": ids})
""",
    "onnx": "bise.export(bise.extract(model, data, config=config).shrink(x), 'm.onnx', x)",
    "log": "bise.to_tensorboard('events')({'epoch': 1, 'loss': 0.5})",
    "fairness": "assert abs(audit.to_metric_frame().group_min()['accuracy'] - audit.worst_group) < 1e-9",
    "loops": """
for make in (bise.trainer_callback, bise.lightning_callback):
    watch = make(data)
    watch.look(model, 1)
    assert watch.audits[0].by_group == audit.by_group
""",
    "mlflow": """
import os
from pathlib import Path
os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": Path("runs").resolve().as_uri()}
bise.to_mlflow()({"epoch": 1, "worst_group": audit.worst_group})
assert list(Path("runs").rglob("worst_group"))
""",
    "cluster": """
from bise.jobs.engines import results
from bise.jobs.tasks import Cluster, Task
tasks = [Task(key="a", given=[1, 2]), Task(key="b", given=[3], after=("a",))]
assert list(results(lambda: sum, tasks, Cluster())) == [("a", 3), ("b", 3)]
""",
    "studies": "import bise.studies.drawing, matplotlib.pyplot",
}
"""What each extra is for; an extra without a line here is an error, and a test says so."""


def extras() -> list[str]:
    """Those of pyproject.toml that a user may install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name not in OURS]


def works(extra: str, wheel: Path, pip: list[str]) -> bool:
    """Whether the wheel with this extra can be installed in a new environment, and does there what the extra is for."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(f"{folder}/venv", with_pip=True)
        python = f"{folder}/venv/bin/python"
        named = f"{wheel}[{extra}]" if extra != NONE else str(wheel)
        where = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        for command in (
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pip, named],
            [python, "-m", "pip", "check"],
            [python, str(ROOT / "environment" / "fit.py")],  # as make does: torch and torchvision may be of two builds
            [python, "-c", START + PROGRAMS[extra]],
        ):
            done = subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True)
            if done.returncode:
                print(f"{extra}: {' '.join(command[1:4])} failed\n{done.stdout}{done.stderr}", file=sys.stderr)
                return False
    print(f"{extra}: works", flush=True)
    return True


def main() -> None:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    chosen = words[:cut] or [NONE, *extras()]
    if unknown := set(chosen) - PROGRAMS.keys():
        raise SystemExit(f"{', '.join(sorted(unknown))}: no such extra; there are {', '.join(PROGRAMS)}")
    pip = [str(Path(word).resolve()) if Path(word).is_file() else word for word in words[cut + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        failed = [extra for extra in chosen if not works(extra, wheel, pip)]
    sys.exit(f"{', '.join(failed)}: don't work" if failed else 0)


if __name__ == "__main__":
    main()
