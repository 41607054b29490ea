"""The options that describe one's own data, for every command that takes --data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.names import FITS
from bise.base.options import either

PANEL = "Own data"


def _option(flags: str, text: str, words: tuple[str, ...] = ()) -> Any:
    completed: dict[str, Any] = {}
    if words:
        completed["autocompletion"] = lambda incomplete: [word for word in words if word.startswith(incomplete)]
    return typer.Option(*flags.split(), help=text, rich_help_panel=PANEL, **completed)


OWN: dict[str, Any] = {
    "target": Annotated[str | None, _option("--target", "Column of the target.")],
    "bias": Annotated[
        str | None, _option("--bias", "Column of the bias; several with commas, in quotes where one has a comma.")
    ],
    "bias_from": Annotated[
        str | None,
        _option("--bias-from", "Groups of bise find in place of a bias: RUN:NUMBER, as runs/found:2."),
    ],
    "split_column": Annotated[str | None, _option("--split-column", "Column that says train, val or test.")],
    "holdout": Annotated[str | None, _option("--holdout", "Without such a column: shares for val,test, as 0.1,0.2.")],
    "image": Annotated[str | None, _option("--image", "Column of picture files.")],
    "text": Annotated[str | None, _option("--text", "Column of sentences.")],
    "features": Annotated[
        str | None,
        _option("--features", "Columns of features, with commas; default, or *: all without another use, but for ids."),
    ],
    "ignore": Annotated[
        str | None, _option("--ignore", "Columns that nothing reads, with commas: neither features nor splits.")
    ],
    "root": Annotated[Path | None, _option("--root", "Folder of picture files with relative paths.")],
    "size": Annotated[str | None, _option("--size", "Pictures are resized to this: 224, or HEIGHTxWIDTH.")],
    "fit": Annotated[
        str | None,
        _option("--fit", f"Pictures of another shape than --size: {either(FITS)}; default squash, with a word.", FITS),
    ],
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
