"""The site builds without a warning, its notebooks run, and it reads in a real Chromium without a request to others."""

from __future__ import annotations

import functools
import http.server
import os
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONF = ROOT / "docs/site/conf.py"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOOKED_AT = """() => ({
  width: document.documentElement.scrollWidth,
  ids: [...document.querySelectorAll("[id]")].map((node) => node.id),
  links: [...document.querySelectorAll("a[href]")].map((node) => node.href),
  dead: [...document.images].filter((picture) => !picture.naturalWidth).map((picture) => picture.src),
})"""


def test_each_page_has_one_place_in_the_contents():
    """A page that README's table doesn't name comes last, so that none is lost."""
    conf = runpy.run_path(str(CONF))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page for _, part in conf["contents"](readme) for page in part]
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/notebooks/*.ipynb")]
    names = {str(path.relative_to(ROOT).with_suffix("")) for path in found}
    assert sorted(pages) == sorted({*names, "results/README", "docs/site/reference"} - {"README"})
    less = readme.replace("(docs/quickstart.md)", "(docs/report.md)")
    assert "docs/quickstart" in dict(conf["contents"](less))["more"]


def test_each_public_name_is_in_the_reference():
    conf = runpy.run_path(str(CONF))
    page = (CONF.parent / "reference.rst").read_text(encoding="utf-8")
    for module in (conf["bise"], conf["bise"].data):
        assert f"ALL OF {module.__name__}\n" in page
        text = conf["names_of"](module)
        missing = [name for name in module.__all__ if f":: {module.__name__}.{name}\n" not in text]
        assert missing in ([], ["data"]), missing


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make site` builds it."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    own = {name: str(folder / name) for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    flags = ["--quiet", "--fail-on-warning", "--fresh-env", "--conf-dir", str(CONF.parent)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            *flags,
            "--doctree-dir",
            str(folder / "trees"),
            str(ROOT),
            str(folder / "out"),
        ],
        env=os.environ | own | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def address(site):
    """The site on this machine alone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_site_in_a_browser(site, address):
    """Every page on a phone: no wider than it, no dead link or picture, no request to others; and search finds."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    troubles, seen = [], {}
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], headless=True)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda message: troubles.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"{page.url}: {error}"))
        page.on("request", lambda r: None if r.url.startswith((address, "data:")) else troubles.append(r.url))
        page.on("response", lambda r: None if r.status < 400 else troubles.append(f"{r.status} {r.url}"))
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            if name != "index.html" and path.parent.name != "_static":
                page.goto(f"{address}/{name}")
                page.wait_for_load_state("load")
                seen[name] = page.evaluate(LOOKED_AT)
        page.goto(f"{address}/index.html")
        page.wait_for_url(f"{address}/README.html")
        page.goto(f"{address}/search.html?q=bottleneck")
        page.wait_for_selector("#search-results li a")
        assert page.locator("#search-results li a").count() > 3
        browser.close()
    assert troubles == []
    assert len(seen) > 30
    assert {name: found["width"] for name, found in seen.items() if found["width"] > 390} == {}
    assert {name: found["dead"] for name, found in seen.items() if found["dead"]} == {}
    assert dead_links(seen, site, address) == []


def dead_links(seen: dict[str, dict], site: Path, address: str) -> list[str]:
    """Links into the site that lead to no file, or to no place on its page."""
    dead = []
    for name, found in seen.items():
        for link in found["links"]:
            target, _, place = link.removeprefix(f"{address}/").partition("#")
            if link.startswith(("http", "mailto:")) and not link.startswith(address):
                continue
            target = target or "index.html"
            known = seen.get(target, {"ids": []})["ids"]
            if not (site / target.partition("?")[0]).is_file() or (place and place not in known):
                dead.append(f"{name}: {link}")
    return dead
