"""The table of the recipes' settings, from the recipes; `python benchmarks/tables.py` writes docs/recipes.md."""

from __future__ import annotations

from bise.engine.config import TrainConfig
from bise.jobs.recipes import PAPER, Recipe, recipe


def page() -> str:
    lines = [
        "| recipe | ρ | architecture, start | vanilla | BISE (paper) | finetuning | selected | the paper's metric |",
        "|---|---|---|---|---|---|---|---|",
    ]
    chosen = [recipe(name) for name in PAPER]
    chosen.insert(1, recipe("biased-mnist", rho=0.997))
    return "\n".join([*lines, *map(_row, chosen)])


def _row(r: Recipe) -> str:
    e = r.extract
    rho = (
        "as found" if r.rho is None else ", ".join(f"{v:g}" for v in (r.rho if isinstance(r.rho, tuple) else (r.rho,)))
    )
    masks = f"SGD {e.lr:g} / {e.momentum:g} / {e.weight_decay:g}, batch {e.batch_size}, E = {e.head_epochs}"
    masks += ", augmented" if e.augment else ""
    selected = "last" if r.select == "last" else f"best on val, {e.selection}"
    cells = [r.name, rho, f"{r.architecture}, {r.start}", _training(r.train), masks, _training(r.finetune)]
    return f"| {' | '.join([*cells, selected, r.metric])} |"


def _training(c: TrainConfig) -> str:
    names = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
    rates = [c.lr, *([c.momentum] if c.optimizer == "sgd" else []), c.weight_decay]
    steps = {"steps": f"÷10 at {', '.join(map(str, c.milestones))}", "constant": "constant lr"}
    how = steps.get(c.schedule, f"{c.schedule} to 0")
    return f"{names[c.optimizer]} {' / '.join(f'{v:g}' for v in rates)}, batch {c.batch_size}, {c.epochs} epochs, {how}"
