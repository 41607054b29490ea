"""Takes the gallery's pictures from a run's report: `python docs/figures/make.py runs/demo-0`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent


def shot(page: Page, name: str, first: str, last: str | None = None) -> None:
    """From the top of one element to the bottom of another."""
    start = page.locator(first).bounding_box()
    end = page.locator(last or first).bounding_box()
    assert start is not None
    assert end is not None
    width = page.viewport_size["width"]
    clip = {"x": 0, "y": max(0, start["y"] - 24), "width": width, "height": end["y"] + end["height"] - start["y"] + 48}
    page.screenshot(path=HERE / f"{name}.png", full_page=True, clip=clip)
    size = (HERE / f"{name}.png").stat().st_size
    print(f"{name}.png {size / 1000:.0f} kB")
    assert size <= 300_000


def main() -> None:
    address = (Path(sys.argv[1]) / "report.html").resolve().as_uri()
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light").new_page()
        page.goto(address)
        shot(page, "headline", "header")
        shot(page, "groups", "section:has(#groups)")
        shot(page, "threshold", "section:has(#threshold)")
        shot(page, "samples", "section:has(#samples)")
        page = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="dark").new_page()
        page.goto(address)
        shot(page, "removed-dark", "section:has(#removed)")
        page = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark").new_page()
        page.goto(address)
        shot(page, "phone-dark", "header", "section:has(#mind)")
        browser.close()


if __name__ == "__main__":
    main()
