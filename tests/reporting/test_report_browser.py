"""The page in a real headless Chromium, from disk and offline."""

from __future__ import annotations

import json
import shutil

import pytest

import bise
from reporting.conftest import HOSTILE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

CONTRAST = """() => {
  const light = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const bright = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const bad = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.tagName === "SCRIPT") continue;
    const style = getComputedStyle(node);
    const ink = parse(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [low, high] = [bright(ink), bright(ground(node))].sort((a, b) => a - b);
    seen += 1;
    if ((high + 0.05) / (low + 0.05) < 4.5) bad.push(walker.currentNode.data + " " + style.color);
  }
  return [seen, bad];
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], headless=True)
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Opens a page and hands it out; at the end, nothing may have gone wrong or out."""
    contexts, troubles = [], []

    def look(folder, *, width=1280, theme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True)
        contexts.append(context)
        page = context.new_page()
        address = (folder / "report.html").as_uri()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on(
            "request",
            lambda r: None if r.url == address or r.url.startswith("data:") else troubles.append(f"request {r.url}"),
        )
        page.goto(address)
        return page

    yield look
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("run", ["picture_run", "table_run", "hostile_run", "bert_run"])
def test_it_fits_and_everything_is_drawn(run, width, theme, opened, request):
    page = opened(request.getfixturevalue(run), width=width, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drawn = page.evaluate(
        "[...document.querySelectorAll('figure svg[role=img]')].map((s) => [s.getBoundingClientRect().height,"
        " s.querySelectorAll('polyline, rect, circle, line').length])"
    )
    assert len(drawn) >= 5
    assert all(height > 20 and marks > 1 for height, marks in drawn)
    assert page.evaluate("[...document.images].every((i) => i.complete && i.naturalWidth > 0)")
    seen, bad = page.evaluate(CONTRAST)
    assert seen > 100
    assert bad == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nor with every table unfolded"


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("run", ["demo_run", "madlibs_run"])
def test_real_runs(run, opened, request):
    """The demo, and a BERT on real sentences: everything drawn, and the figures follow the slider."""
    folder = request.getfixturevalue(run)
    assert (folder / "report.html").stat().st_size < 6_000_000
    curve = json.loads((folder / "thresholds.json").read_text())["points"]
    for theme in ("light", "dark"):
        for width in (1280, 390):
            page = opened(folder, width=width, theme=theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            marks = "(s) => s.querySelectorAll('polyline, rect, circle, line').length"
            drawn = page.evaluate(f"[...document.querySelectorAll('figure svg[role=img]')].map({marks})")
            assert len(drawn) >= 8
            assert min(drawn) > 1
            assert page.evaluate(CONTRAST)[1] == []
            for place in (0, len(curve) - 1):
                page.locator("#zeta").focus()
                page.keyboard.press("End" if place else "Home")
                assert float(page.locator("#r-zeta").inner_text()) == curve[place]["zeta"]
                assert page.locator("#r-count").inner_text() == f"{curve[place]['open']} of {curve[place]['all']}"
                shown = float(page.locator("#r-conflicting").inner_text().split("\u202f")[0])
                assert shown == pytest.approx(100 * curve[place]["within"]["conflicting"], abs=0.051)
    if run == "madlibs_run":
        assert " is " in page.locator("#sample-list").inner_text()
        assert "identity" in page.locator("h1 + p").inner_text()
    else:
        assert page.locator("#sample-list img").count() == 120


def test_sentences_of_a_bert_run_are_shown(bert_run, opened):
    page = opened(bert_run)
    assert page.locator("#sample-list blockquote").first.inner_text().startswith("word")
    assert "toxicity" in page.locator("h1 + p").inner_text()
    page.locator("#zeta").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#r-zeta").inner_text() != "0.5"


def test_the_slider_rounds_as_the_tables_do(picture_run, opened, tmp_path):
    """6.25 lies between two figures, and Python takes the even one; a page has one figure for it."""
    folder = shutil.copytree(picture_run, tmp_path / "run")
    content = json.loads((folder / "thresholds.json").read_text())
    for point in content["points"]:
        point |= {"worst_group": 0.0625, "unbiased": 0.1875}
    (folder / "thresholds.json").write_text(json.dumps(content))
    bise.report(folder)
    written = (folder / "report.html").read_text(encoding="utf-8")
    page = opened(folder)
    for key, value in (("worst_group", "6.2\u202f%"), ("unbiased", "18.8\u202f%")):
        assert f'id="r-{key}">{value}<' in written
        assert page.locator(f"#r-{key}").inner_text() == value


def test_the_slider_by_keyboard(picture_run, opened):
    page = opened(picture_run)
    slider = page.locator("#zeta")
    slider.focus()
    assert slider.is_visible()
    assert page.locator("#back").is_visible()
    start = page.locator("#r-zeta").inner_text(), slider.get_attribute("aria-valuetext")
    assert start[0] == "0.5"
    assert "the chosen one" in start[1]
    before = page.locator("#heat-live tbody").inner_text()
    page.keyboard.press("Home")
    assert page.locator("#r-zeta").inner_text() == "0"
    assert page.locator("#r-units").inner_text().startswith("100.0")
    # all units open is the model, so the live heat map shows what the first one does
    assert page.locator("#heat-live tbody").inner_text() == page.locator("#heat-vanilla tbody").inner_text()
    ringed = page.locator("#heat-live td.helps")
    assert ringed.count() == 4
    assert all(text.endswith(", shade helps") for text in ringed.all_inner_texts()), "said, where others see a ring"
    assert max(page.locator("#heat-live .said").evaluate_all("all => all.map((s) => s.offsetWidth)")) <= 1
    kept = float(page.locator("#r-units").inner_text().split("\u202f")[0])
    place = page.locator("#now").get_attribute("x1")
    page.keyboard.press("ArrowRight")
    assert float(page.locator("#r-units").inner_text().split("\u202f")[0]) < kept
    assert page.locator("#now").get_attribute("x1") != place
    assert "units kept" in slider.get_attribute("aria-valuetext")
    page.locator("#back").press("Enter")
    assert (page.locator("#r-zeta").inner_text(), slider.get_attribute("aria-valuetext")) == start
    assert page.locator("#heat-live tbody").inner_text() == before
    assert before == page.locator("#heat-subnetwork tbody").inner_text()


def test_the_theme_switch_and_the_filter(picture_run, opened):
    page = opened(picture_run)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").press("Enter")
    dark = page.evaluate(ground)
    assert light != dark
    page.locator("#theme").press("Enter")
    assert page.evaluate(ground) == light
    shown = page.locator("#sample-list > li:visible")
    assert shown.count() == 28
    page.locator("#more").click()
    assert shown.count() == page.locator("#sample-list > li").count()
    page.select_option("#filter", index=1)
    kinds = {shown.nth(i).get_attribute("data-kind") for i in range(shown.count())}
    assert len(kinds) == 1


def test_hostile_labels_are_shown_and_not_run(hostile_run, opened):
    page = opened(hostile_run)
    page.locator("#more").click()
    assert page.evaluate("window.pwned") is None
    body = page.evaluate("document.body.textContent")
    for text in HOSTILE:
        assert text in body
    page.locator("#zeta").focus()
    page.keyboard.press("Home")
    assert page.evaluate("window.pwned") is None


def test_without_its_script_the_page_still_tells_everything(picture_run, browser):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((picture_run / "report.html").as_uri())
    assert page.locator("#sample-list > li:visible").count() == page.locator("#sample-list > li").count()
    assert page.locator("#theme:visible").count() == 0
    assert page.locator("#r-zeta").inner_text() == "0.5"
    assert page.locator("#zeta:visible, #back:visible").count() == 0, "they would do nothing"
    context.close()
