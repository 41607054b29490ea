"""One split of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.own.tables import TableData, read_table


def table(path: str | Path, *, split: str = "train", **columns: Any) -> TableData:
    """One split of a csv or parquet file as (x, y, b), one row a sample.

    Args:
        path: The file.
        split: "train", "val" or "test".
        **columns: target= and bias= (one or several) name columns. x comes from the column image= (paths, relative to
            root= or else to the file's folder, resized to size=), from text= (with tokenizer= and length=), or from
            features=; left out, or "*" among them, every column that has no other use is one, but for ids and those
            of ignore=. fit= crops or pads pictures. Rows belong to the split that split_column= says; without one,
            holdout=(val, test) takes these shares by seed=, and without both every row is train. With like=, a
            training set, labels and features are numbered and made as there. transform= normalises pictures.

    Returns:
        A data set whose `.names` say what its labels are called.

    Raises:
        BadInput: The file can't be read, a column isn't there, a label is missing, or the split is empty.

    Example:
        >>> from pathlib import Path
        >>> written = Path("t.csv").write_text("hair,sex,age\\nfair,f,30\\ndark,m,40\\nfair,m,50\\n")
        >>> bise.data.table("t.csv", target="hair", bias="sex").names.classes
        ('dark', 'fair')
    """
    data = read_table(path, **columns).split(split)
    if data is None:
        raise BadInput(f"{path} has no row of split {split!r}; name its column with split_column=, or set holdout=")
    return data
