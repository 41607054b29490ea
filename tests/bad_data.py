"""Data that no extraction can use: {case: (train, val or None, what the refusal says)}."""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

from bise.data import Labelled
from conftest import toy


def nan_inputs():
    data = toy()
    x = data.tensors[0].clone()
    x[17, 2] = float("nan")
    return Labelled(TensorDataset(x), y=data.y, b=data.b)


def huge_inputs():
    data = toy()
    return Labelled(TensorDataset(data.tensors[0] * 2e37), y=data.y, b=data.b)


def one_class():
    data = toy()
    return Labelled(data.dataset, y=torch.zeros_like(data.y), b=data.b)


def out_of_range():
    data = toy()
    return Labelled(data.dataset, y=data.y + 1, b=data.b)


BAD = {
    "no conflicting sample": (lambda: toy(rho=1.0), None, "no conflicting sample \\(ρ = 1"),
    "one class": (one_class, None, "one class only"),
    "labels out of range": (out_of_range, None, "label 3, out of range for a model with 3 classes"),
    "NaN inputs": (nan_inputs, None, "input of sample 17 holds NaN"),
    "an empty data set": (lambda: Labelled(torch.zeros(0, 8), y=[], b=[]), None, "empty"),
    "a non-finite loss": (huge_inputs, None, "loss became non-finite at epoch 1, step 1"),
    "val with a class that train lacks": (
        toy,
        lambda: toy(classes=4, biases=3),
        "val holds class 3, which train lacks",
    ),
}
