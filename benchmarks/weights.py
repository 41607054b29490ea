"""The table of the paper's weights beside N / (G · n_g) on BiasedMNIST's real counts.

`python benchmarks/tables.py` writes it into docs/departures.md.
"""

from __future__ import annotations

import bise
from bise.data.core.sampling import sample_weights


def page() -> str:
    lines = [
        "| ρ | non-empty cells | aligned, paper | aligned, groups | conflicting, paper | conflicting, groups |",
        "|---|---|---|---|---|---|",
    ]
    for rho in (0.99, 0.995, 0.997, 0.999):
        cells = bise.data.labels(bise.data.load("biased-mnist", split="train", rho=rho, protocol="paper"))
        own = cells.aligned[:, 0]
        paper, groups = sample_weights(cells, "paper"), sample_weights(cells, "groups")
        assert paper is not None
        assert groups is not None
        row = [f"{rho:g}", f"{int((cells.counts > 0).sum())} of 100"]
        for part, digits in ((own, 4), (~own, 1)):
            row += [
                f"{paper[part][0]:.{digits}f}",
                f"{groups[part].min():.{digits}f} – {groups[part].max():.{digits}f}",
            ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)
