"""What an audit after each epoch costs, on the example of docs/loops.md: its seconds over those of an epoch.

    python benchmarks/callbacks.py --epochs 11

Writes results/callbacks_cpu.json. The code is the page's own, with more epochs. An epoch's audit is held against the
training of that very epoch. The first epoch is left out, since both libraries load what they need then.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bise.base.files import read_json, write_json
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
OUT = ROOT / "results/callbacks_cpu.json"
PAGES = ("quickstart.md", "loops.md")


class Clock:
    """Notes when epochs end; a callback of either library, beside the audit's own."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())

    on_train_epoch_end = on_epoch_end

    @property
    def seconds(self) -> list[float]:
        """Of each epoch but the first."""
        return [later - earlier for earlier, later in zip(self.ends, self.ends[1:], strict=False)]


def example() -> dict[str, Any]:
    """What the two pages leave behind, with shorter trainings."""
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in PAGES:
            text = (ROOT / "docs" / name).read_text(encoding="utf-8")
            code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
            exec(compile(code, name, "exec"), names)
    return names


def by_transformers(names: dict[str, Any], epochs: int, callbacks: list[Any]) -> Clock:
    from transformers import TrainerCallback

    clock = type("TrainerClock", (Clock, TrainerCallback), {})()
    names["arguments"].num_train_epochs = epochs
    trainer = names["Trainer"](
        names["Classifier"](), names["arguments"], train_dataset=names["many"], data_collator=names["collate"],
        callbacks=[*callbacks, clock],
    )  # fmt: skip
    trainer.train()
    return clock


def by_lightning(names: dict[str, Any], epochs: int, callbacks: list[Any]) -> Clock:
    lightning = names["lightning"]
    clock = type("LightningClock", (Clock, lightning.Callback), {})()
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[*callbacks, clock], **names["quiet"])
    trainer.fit(names["Module"](), names["loader"])
    return clock


def measured(names: dict[str, Any], epochs: int) -> list[dict[str, Any]]:
    """For each library: seconds of an epoch's training and of its audit, and their ratio; medians over epochs."""
    bise, found = names["bise"], []
    makers = {
        "transformers": (by_transformers, lambda: bise.trainer_callback(names["val"])),
        "Lightning": (by_lightning, lambda: bise.lightning_callback(names["val"], network="net")),
    }
    for library, (loop, make) in makers.items():
        watch = make()
        whole = loop(names, epochs, [watch]).seconds
        audits = [row["seconds"] for row in watch.rows[1:]]
        training = [total - audit for total, audit in zip(whole, audits, strict=True)]
        shares = [audit / rest for audit, rest in zip(audits, training, strict=True)]
        row = {"loop": library, "epochs": len(shares), "training": statistics.median(training)}
        found.append(
            row | {"audit": statistics.median(audits), "share": statistics.median(shares), "most": max(shares)}
        )
    return found


def page() -> str:
    found = read_json(OUT)
    lines = [
        f"{found['train']:,} training samples, {found['samples']:,} audited ones, {found['machine']['threads']} CPU"
        f" thread, torch {found['machine']['torch']}; medians of n epochs.",
        "",
        "| loop | n | training (ms) | audit (ms) | audit, share of the training | the largest share |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        times = " | ".join(f"{1000 * row[key]:,.0f}" for key in ("training", "audit"))
        shares = " | ".join(f"{100 * row[key]:.1f} %" for key in ("share", "most"))
        lines.append(f"| {row['loop']} | {row['epochs']} | {times} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=11)
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = example()
    rows = measured(names, given.epochs)
    about = {"train": len(names["many"]), "samples": len(names["val"])}
    write_json(OUT, {"machine": machine(), **about, "rows": rows})
    print(page())


if __name__ == "__main__":
    main()
