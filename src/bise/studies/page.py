"""docs/results.md: every study's tables and figures, made from the files of results and from nothing else; and one
table of them in the README."""

from __future__ import annotations

from pathlib import Path

from bise.base.files import write_bytes
from bise.studies.biased_mnist import headline
from bise.studies.catalogue import STUDIES
from bise.studies.job import config_hash, configuration
from bise.studies.results import Row, read_rows
from bise.studies.scale import SCALES, Scale
from bise.studies.study import Study

PICTURES = "pictures/results"
MARK, END = "<!-- table: bise reproduce --page -->", "<!-- end of table -->"
HEAD = """# Results

What the paper measures on BISE, table by table, and two studies of our own, by [`bise reproduce`](reproducing.md). This
page is made from the files in [results/](../results/README.md) by `bise reproduce --page`: nothing on it is typed.
*Italics* are the paper's own figures. The preset `paper` is Algorithm 1 to the letter, `balanced` our default; what
the two do differently, and how we read what the paper leaves open, is in [departures](departures.md). Masks and
epochs are selected on validation data, where there are any; the test set is looked at once for each network, and had
a part in settings where it is said.
"""


def write_page(results: Path, scale: Scale, docs: Path = Path("docs")) -> str:
    """Write the page and its figures; says in a line what is on it."""
    rows = {name: read(results, name, scale) for name in STUDIES}
    for name, study in STUDIES.items():
        if study.draw is not None and rows[name]:
            study.draw(rows[name], docs / PICTURES / f"{name}.svg")
    write_bytes(docs / "results.md", render(rows, scale).encode())
    readme = docs.parent / "README.md"
    if not scale.short and readme.exists() and MARK in (text := readme.read_text(encoding="utf-8")):
        write_bytes(readme, with_headline(text, rows["biased-mnist"]).encode())
    return f"{docs / 'results.md'}: {sum(bool(found) for found in rows.values())} of {len(rows)} studies have been run"


def with_headline(readme: str, rows: list[Row]) -> str:
    """The README with the table of the default between its marks."""
    before, mark, rest = readme.partition(MARK)
    return f"{before}{mark}\n\n{headline(rows)}\n\n{rest[rest.index(END) :]}"


def read(results: Path, name: str, scale: Scale = SCALES["paper"]) -> list[Row]:
    """A study's rows; those of a configuration that it no longer has are left out."""
    found = read_rows(results / f"{name}.json", scale.name)
    starts = {row["config"].get("start", "") for row in found.values()}
    now = {line for start in starts for line in lines_of(STUDIES[name], scale, start)}
    there = {_loose(row) for line, row in found.items() if line in now}
    like = {line for start in starts for line in lines_of(STUDIES[name], scale, start, rounding=False)} - there
    # where a row differs by its precision alone, it stands in until there is one of the right precision
    stand_ins = {line: row | {"stands_in": True} for line, row in found.items() if line not in now}
    return [stand_ins.get(line, row) for line, row in found.items() if line in now or _loose(row) in like]


def _loose(row: Row) -> tuple[str, str]:
    return row["label"], config_hash(row["config"], rounding=False)


def lines_of(study: Study, scale: Scale, start: str, *, rounding: bool = True) -> set[tuple[str, str]]:
    """(label, key) of every row that the study should have."""
    return {(job.label, config_hash(configuration(job, scale, start), rounding=rounding)) for job in study.jobs(scale)}


def render(rows: dict[str, list[Row]], scale: Scale = SCALES["paper"]) -> str:
    """The page for these rows by study."""
    missing = [name for name, found in rows.items() if not found]
    parts = [HEAD]
    if missing:
        parts.append("Not yet run: " + ", ".join(f"`{name}`" for name in missing) + ".\n")
    parts += [_section(STUDIES[name], found, scale) for name, found in rows.items() if found]
    return "\n".join(parts)


def _section(study: Study, rows: list[Row], scale: Scale) -> str:
    wanted = len(lines_of(study, scale, ""))
    so_far = f" So far {len(rows)} of {wanted} jobs." if len(rows) < wanted else ""
    lines = [f"## {study.title}", "", f"`bise reproduce {study.name}`: {study.place}.{so_far}", ""]
    lines.append(study.show(rows))
    if study.draw is not None:
        lines += ["", f"![{study.title}]({PICTURES}/{study.name}.svg)"]
    return "\n".join([*lines, ""])
