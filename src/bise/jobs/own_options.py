"""The options that describe one's own data, for every command that takes --data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

PANEL = "Own data"


def _option(flags: str, text: str) -> Any:
    return typer.Option(*flags.split(), help=text, rich_help_panel=PANEL)


OWN: dict[str, Any] = {
    "target": Annotated[str | None, _option("--target", "Column of the target.")],
    "bias": Annotated[
        str | None, _option("--bias", "Column of the bias; several with commas, in quotes where one has a comma.")
    ],
    "split_column": Annotated[str | None, _option("--split-column", "Column that says train, val or test.")],
    "holdout": Annotated[str | None, _option("--holdout", "Without such a column: shares for val,test, as 0.1,0.2.")],
    "image": Annotated[str | None, _option("--image", "Column of picture files.")],
    "text": Annotated[str | None, _option("--text", "Column of sentences.")],
    "features": Annotated[
        str | None, _option("--features", "Columns of features, with commas; default: all that have no other use.")
    ],
    "root": Annotated[Path | None, _option("--root", "Folder of picture files with relative paths.")],
    "size": Annotated[str | None, _option("--size", "Pictures are resized to this: 224, or HEIGHTxWIDTH.")],
    "mean": Annotated[str | None, _option("--mean", "Mean of the pixels (0 to 1), taken off; one, or one a channel.")],
    "std": Annotated[str | None, _option("--std", "Standard deviation of the pixels, divided by.")],
    "tokenizer": Annotated[str | None, _option("--tokenizer", "vocab.txt, or a folder or name for AutoTokenizer.")],
    "length": Annotated[int | None, _option("--length", "Tokens that a sentence is cut or padded to; default 128.")],
    "bias_csv": Annotated[
        Path | None, _option("--bias-csv", "For a folder of pictures: csv with a column `file` and the biases.")
    ],
    "rho": Annotated[
        str | None, _option("--rho", "For a data set by name: its share of aligned samples; two with a comma.")
    ],
    "protocol": Annotated[str | None, _option("--protocol", "For a data set by name: how its splits are made.")],
}
"""The options that describe one's own data, for every command that takes --data."""


_SHORT_SPLIT = Annotated[str | None, _option("--split-column --split", "Column that says train, val or test.")]
"""For commands whose --split has no other meaning."""


def own_data(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options above; it receives those that were set as one dict, `own`."""
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (OWN if "split" in signature.parameters else OWN | {"split_column": _SHORT_SPLIT}).items()
    ]
    kept = [p for p in signature.parameters.values() if p.name != "own"]

    @wraps(command)
    def wrapper(**arguments: Any) -> Any:
        own = {name: arguments.pop(name) for name in OWN}
        return command(**arguments, own={name: value for name, value in own.items() if value is not None})

    first = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    wrapper.__signature__ = signature.replace(parameters=[*first, *options])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (*first, *options)} | {"return": None}
    return wrapper
