"""Puts a generated table between its markers on a page of the docs."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "shrinking.md"


def fill(name: str, text: str, page: Path = PAGE) -> None:
    """Replace what stands between the marker of benchmarks/`name` and the next end marker."""
    whole = page.read_text(encoding="utf-8")
    before, start, rest = whole.partition(f"<!-- table: benchmarks/{name} -->")
    if not start:
        raise SystemExit(f"{page.name} has no marker for benchmarks/{name}")
    end = rest.index("<!-- end")
    page.write_text(f"{before}{start}\n\n{text}\n\n{rest[end:]}", encoding="utf-8")
