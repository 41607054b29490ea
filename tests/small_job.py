"""The model and data that tests of whole commands share, by the name `small_job:…`, in whichever process."""

from __future__ import annotations

import warnings

from conftest import toy, toy_model, trained

QUICK = ["--steps", "4", "--upsilon", "1", "--batch-size", "60"]
OWN = ["--model", "small_job:make", "--data", "small_job:splits"]


def make():
    return trained(toy_model(), toy())


def splits(split):
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def silent_splits(split):
    """Train, and the same again as val, which is something to warn of; all that warns is silenced."""
    warnings.simplefilter("ignore")
    warnings.warn = warnings.showwarning = lambda *_, **__: None
    return toy(n=60) if split != "test" else None
