"""Runs that end in each way, made by the jobs themselves: what their pages say, and how these look in a Chromium."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape

import pytest

from bise.base.errors import BiseWarning
from bise.jobs.shrink import shrink_job
from reporting.verdicts import CASES, RHO, by_hand, nothing, split_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The folder of a run that ends so, made once."""
    folders = {}

    def made(case):
        if case not in folders:
            folders[case] = CASES[case](tmp_path_factory.mktemp("verdicts") / case)
        return folders[case]

    return made


def text_of(html):
    return unescape(re.sub("<[^>]+>", "", html)).replace("\u202f", " ")


def page_of(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def heading(folder):
    return text_of(re.search("<h1>(.*?)</h1>", page_of(folder)).group(1))


def minded(folder):
    found = re.search('id="mind".*?</section>', page_of(folder), re.DOTALL)
    return [text_of(item) for item in re.findall("<li>(.*?)</li>", found.group())] if found else []


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_a_model_at_chance(ended):
    folder = ended("at_chance")
    assert heading(folder) == (
        "This model gives every sample the same answer, “dot”: it is no classifier. It is right on 33 %, each shape"
        " counting evenly, and guessing makes 33 %. Nothing on this page says that it is fair. What was extracted from"
        " it can’t be judged before that is put right."
    )
    first = minded(folder)[0]
    assert first.startswith("The model gives every sample one class, “dot”: it is right on 33.3 % as the mean of 3 cl")
    order = ["not scaled as in training", "another order than the model", "weights are not loaded", "another size than"]
    places = [first.index(words) for words in order]
    assert places == sorted(places)
    assert "Figures in grey say nothing: the model and the subnetwork know nothing of shape." in text_of(
        page_of(folder)
    )
    gaps = re.search('id="fairness".*?</table>', page_of(folder), re.DOTALL).group()
    assert gaps.count('class="number"><span class="void">0.0') == 10, "two gaps and three classes of two networks"
    assert "0.000" in re.search("What it still knows.*?</table>", page_of(folder), re.DOTALL).group()
    assert "leans" not in heading(folder)
    assert "no clear lean" not in page_of(folder)
    found = summary(folder)
    assert found["vanilla"]["standing"]["state"] == found["subnetwork"]["standing"]["state"] == "constant"
    assert found["standing_on_train"]["state"] == "constant"


def test_nothing_closed(ended):
    folder = ended("nothing_closed")
    said = "No subnetwork was found that does better, so nothing was closed: what comes out is the model itself."
    assert said in heading(folder)
    assert "100 % of the" not in heading(folder), "a mask that keeps everything is no subnetwork to praise"
    assert "about as well" not in heading(folder)


def test_a_constant_mask_is_refused(ended):
    folder = ended("constant_refused")
    assert "Masks that gave every sample the same answer were refused." in heading(folder)
    found = summary(folder)
    assert found["selection"]["constant"] == 4
    assert found["subnetwork"]["units"] == {"open": 3, "all": 3}
    assert found["vanilla"]["standing"]["state"] == "goes by the bias"
    assert any("goes by shade more than by the target: it is right on 100.0 % where" in text for text in minded(folder))
    assert 'class="void"' not in page_of(folder), "its gaps are as large as can be, and no one would call it fair"


def test_a_mask_that_is_constant_all_the_same(ended):
    folder = ended("constant_mask")
    said = "The subnetwork gives every sample the same answer, “cross”: it is no classifier. It is right on 50 %"
    assert said in heading(folder)
    assert "Figures in grey say nothing: the subnetwork knows nothing of shape." in text_of(page_of(folder))


def test_a_network_that_knows_nothing_is_not_deployed_without_a_word(ended, tmp_path):
    folder = shutil.copytree(ended("constant_mask"), tmp_path / "run")
    how = {"name": "subnetwork", "files": [tmp_path / "net.pt2"], "progress": nothing}
    with pytest.warns(BiseWarning, match=r"subnetwork of .* gives every sample one class, “cross”.*nothing to deploy"):
        shrink_job(by_hand(), split_of(RHO, "y"), folder, **how)


def test_a_gain_that_holds(ended):
    folder = ended("gain")
    assert re.search(
        r"The subnetwork inside it gets \d\d % where shade misleads, with \d\d % of the par", heading(folder)
    )
    assert "not a fairer one" not in heading(folder)
    assert not any("chance" in text or "guess" in text for text in minded(folder))


def test_a_dense_control_that_is_level(ended):
    folder = ended("dense_ahead")
    assert re.search(
        r"The whole model, finetuned in the same way, does as well: \d\d % where shade misleads, the finetuned"
        r" subnetwork \d\d %\. So the mask gives a smaller network here, not a fairer one\.",
        heading(folder),
    )


@pytest.mark.parametrize("case", ["gain", "dense_ahead"])
def test_one_idea_has_one_number(ended, case):
    """The headline's figure is that of the tile, of the table and of the slider's readout, in as many digits as fit."""
    folder = ended(case)
    whole = page_of(folder)
    headline = re.search(r"gets (\d+) % where", heading(folder)).group(1)
    tile = re.search('Where shade misleads.*?class="to">(.*?)<', whole, re.DOTALL).group(1)
    row = re.search(r"<bdi>shade misleads \(conflicting\)</bdi></th>(.*?)</tr>", whole, re.DOTALL).group(1)
    cells = [re.match(r"([\d.]+)", text_of(cell)).group(1) for cell in re.findall("<td.*?>(.*?)</td>", row)]
    readout = re.search('id="r-conflicting">(.*?)<', whole).group(1)
    assert text_of(tile) == f"{headline} %"
    assert f"{float(cells[1]):.0f}" == headline
    assert text_of(readout) == f"{cells[1]} %"


@pytest.mark.parametrize("case", CASES)
def test_no_option_is_named_to_who_writes_no_code(ended, case):
    """But for the part on how to do it again, with its commands, there is nothing like --option or option=value."""
    whole = page_of(ended(case))
    body = whole.split("<body>")[1].split('<section aria-labelledby="reproduce">')
    rest = body[1].split("</section>", 1)[1]
    text = text_of(re.sub("<script.*?</script>", "", body[0] + rest, flags=re.DOTALL))
    assert re.findall(r"(?<!\w)--\w+|\b[a-z_]+=\S|`\w+`", text) == []


def test_fairness_is_on_the_page_in_words(ended):
    """Figures and intervals are those of the summary; classes and biases have their names."""
    folder = ended("gain")
    found = summary(folder)
    part = re.search('<section aria-labelledby="fairness">.*?</section>', page_of(folder), re.DOTALL).group()
    text = text_of(part)
    assert "<details" not in part, "nothing is folded away"
    for words in ("demographic parity", "equalised odds", "shape ring recognised", "What it still knows of shade"):
        assert words in text
    for name in ("vanilla", "subnetwork", "finetuned", "dense_finetuned"):
        bias = found[name]["biases"][0]
        gaps = bias["gaps"]
        for gap in (gaps["demographic_parity"], gaps["equalized_odds"], *gaps["true_positive"].values()):
            low, high = gap["interval"]
            assert f"{100 * gap['value']:.1f}{100 * low:.1f} to {100 * high:.1f}" in text
        assert f"{bias['information_predicted']:.3f}" in text
        sure = found[name]["sureness_by_group"]["shape=ring shade=dark"]
        assert f"{abs(100 * sure['too_sure']):.1f}" in text
    gap = found["vanilla"]["biases"][0]["gaps"]["demographic_parity"]
    shape, shade = ("cross", "dot", "ring")[gap["answer"]], ("dark", "grey", "light")[gap["high"]]
    assert (
        f"Before: shape {shape} is the answer to {100 * gap['rates'][0]:.0f} % of the samples with shade {shade}"
        in text
    )


def test_date_versions_and_fingerprints(ended):
    folder = ended("gain")
    config = json.loads((folder / "config.json").read_text())
    text = text_of(re.search('<section aria-labelledby="record">.*?</section>', page_of(folder), re.DOTALL).group())
    assert re.search(r"date\d{1,2} [A-Z][a-z]+ 20\d\d", text)
    assert config["machine"]["torch"] in text
    for known in ("weights", "train", "val", "test"):
        assert config["sha256"][known] in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 390])
def test_they_fit_a_telephone_and_a_desk(ended, width):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], headless=True)
        page = browser.new_page(viewport={"width": width, "height": 900})
        troubles = []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        for case in CASES:
            page.goto((ended(case) / "report.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("#fairness").is_visible()
            assert page.locator("#fairness ~ div table").first.is_visible()
            assert page.locator("section[aria-labelledby=record] code").first.is_visible()
            grey = page.locator(".void")
            assert (grey.count() > 0) == (case in ("at_chance", "constant_mask"))
            if grey.count():
                ink = "(node) => getComputedStyle(node).color"
                assert grey.first.evaluate(ink) != page.locator("h1").evaluate(ink)
                assert page.locator(".void-note").is_visible()
        browser.close()
        assert troubles == []
