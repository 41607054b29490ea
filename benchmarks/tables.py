"""Writes every table of the docs that a script makes, from results/ and from the code; nothing is measured.

    python benchmarks/tables.py            # writes the pages
    python benchmarks/tables.py --check    # writes nothing, and names the tables that differ

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. `bise reproduce --page` makes docs/results.md
and the table in README.md, `python benchmarks/index.py` results/README.md. The table of weights counts MNIST's digits
in BISE_DATA; without them it stays.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import by_heart
import callbacks
import corruptions
import engines
import find
import growth
import last_layer
import latency
import madlibs
import peers
import processes
import pseudo_sources
import recipes
import shrink_table
import speed_page
import weights
import what_can_go

import demo
from bise.base.errors import BadInput

ROOT = Path(__file__).parent.parent
END = "<!-- end of table -->"
TABLES: dict[str, Callable[[], str]] = {
    "by_heart.py": by_heart.page,
    "callbacks.py": callbacks.page,
    "corruptions.py": corruptions.page,
    "demo.py": demo.page,
    "engines.py": engines.page,
    "extraction.py": lambda: speed_page.extraction("extraction_cuda.json"),
    "extraction.py agreement": lambda: speed_page.agreement("extraction_cuda.json"),
    "extraction.py small": lambda: speed_page.extraction("extraction_cpu.json"),
    "find.py": find.page,
    "growth.py": growth.page,
    "last_layer.py": last_layer.page,
    "latency.py": latency.page,
    "madlibs.py": madlibs.page,
    "memory.py": growth.memory_page,
    "peers.py": peers.page,
    "processes.py": processes.page,
    "pseudo_sources.py": pseudo_sources.page,
    "recipes.py": recipes.page,
    "shrink_table.py": shrink_table.page,
    "throughput.py": speed_page.throughput,
    "vanilla.py": speed_page.vanilla,
    "weights.py": weights.page,
    "what_can_go.py": what_can_go.page,
}
"""{what stands after `benchmarks/` in the mark: the table}."""


def pages() -> dict[Path, list[str]]:
    """{page: the names of its tables}."""
    found: dict[Path, list[str]] = {}
    for page in sorted(ROOT.glob("docs/*.md")):
        for part in page.read_text(encoding="utf-8").split("<!-- table: benchmarks/")[1:]:
            found.setdefault(page, []).append(part.partition(" -->")[0])
    return found


def filled(text: str, name: str, table: str) -> str:
    """A page's text with this table between its marks."""
    before, mark, rest = text.partition(f"<!-- table: benchmarks/{name} -->")
    if not mark or END not in rest:
        raise SystemExit(f"no page has the marks of benchmarks/{name}")
    return f"{before}{mark}\n\n{table}\n\n{rest[rest.index(END) :]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for page, names in pages().items():
        for name in names:
            before = page.read_text(encoding="utf-8")
            try:
                after = filled(before, name, TABLES[name]())
            except BadInput as error:
                print(f"{page.name}: the table of {name} is left as it is: {error}", file=sys.stderr)
                continue
            if after != before:
                stale.append(f"{page.name}: {name}")
                if not check:
                    page.write_text(after, encoding="utf-8")
    print("\n".join(stale) or "every table is up to date")
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
