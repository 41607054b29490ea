"""The page as text: complete, well-formed, escaped, readable in both themes."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from inspect import signature
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from bise import ExtractConfig, TrainConfig
from bise.base.errors import BadInput, BiseWarning
from bise.base.markup import embedded, tag
from bise.base.options import commanded
from bise.cli import app as cli
from bise.cli.app import app
from bise.methods.refit.config import RefitConfig
from bise.reporting.colours import DARK, LIGHT, contrast, heat
from bise.reporting.words import commands
from bise.reporting.writing import add_report, write_report

VOID = {"meta", "img", "input", "br", "link"}
FIGURES = (
    "accuracy", "groups", "fairness", "threshold", "samples", "removed", "course", "verified", "record", "reproduce",
    "words",
)  # fmt: skip


class Parsed(HTMLParser):
    """Elements in order with their attributes, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, f"{self.open} never closed"

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, name):
        return [attributes for element, attributes in self.elements if element == name]


def parsed(folder) -> Parsed:
    return Parsed((folder / "report.html").read_text(encoding="utf-8"))


def test_every_job_leaves_a_page_with_every_section(picture_run):
    page = parsed(picture_run)
    assert [h["id"] for h in page.all("h2") if h["id"] != "mind"] == list(FIGURES)
    assert (picture_run / "report.html").stat().st_size < 500_000
    (heading,) = page.text["h1"]
    assert "shade" in heading
    assert "parameters" in heading, "sizes are known after bise shrink"
    assert "not one weight changed" in heading


def test_headings_are_in_order_and_tables_have_headers(picture_run, table_run, hostile_run, bert_run):
    for folder in (picture_run, table_run, hostile_run, bert_run):
        page = parsed(folder)
        levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        assert all(th.get("scope") for th in page.all("th"))
        for svg in page.all("svg"):
            assert svg.get("aria-hidden") or (svg["role"] == "img" and svg["aria-label"])
        assert all(image["alt"] for image in page.all("img"))
        for control in (*page.all("input"), *page.all("select")):
            assert control["id"] in {label.get("for") for label in page.all("label")}
        ids = [a["id"] for _, a in page.elements if a.get("id")]
        assert len(ids) == len(set(ids))
        assert page.all("html")[0]["lang"] == "en"


def test_nothing_on_the_page_comes_from_elsewhere(picture_run):
    page = parsed(picture_run)
    for _, attributes in page.elements:
        for key in ("src", "href", "action", "data"):
            assert not attributes.get(key) or attributes[key].startswith("data:image/png;base64,")
        assert not any(key.startswith("on") for key in attributes)
    assert "url(" not in "".join(page.text["style"])


def test_hostile_labels_are_text(hostile_run):
    page = parsed(hostile_run)
    assert len(page.all("script")) == 2
    assert not page.all("b") or all(not text.startswith("bold") for text in page.text["b"])
    assert not any(image.get("src") == "x" for image in page.all("img"))
    raw = (hostile_run / "report.html").read_text(encoding="utf-8")
    assert "<script>window.pwned" not in raw
    assert "</script><b>" not in raw
    assert "\u2028" not in raw.split('id="points">')[1].split("</script>")[0]


def test_markup_is_escaped_by_construction():
    assert tag("p", "<b>&", title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;&amp;</p>'
    assert tag("p", None, ["a", tag("i", 1)], hidden=True, cls=None) == "<p hidden>a<i>1</i></p>"
    assert "\x00" not in tag("p", "a\x00b\ud800")
    text = embedded({"a": "</script><!--\u2028&"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--\u2028&"}


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_by_computation(colours):
    for surface in ("bg", "card", "mind"):
        for ink in ("ink", "muted"):
            assert contrast(colours[ink], colours[surface]) >= 4.5
    for text in ("before", "after", "accent", "bad", "tuned", "dense"):
        assert contrast(colours[text], colours["card"]) >= 4.5
    theme = "light" if colours is LIGHT else "dark"
    for background, ink in heat(theme):
        assert contrast(background, ink) >= 4.5
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_warnings_in_plain_words(table_run):
    text = " ".join(part for parts in parsed(table_run).text.values() for part in parts)
    assert "training samples have no label for sex" in text
    assert "lack a bias label" not in text, "once is enough"
    assert "There is no test split" in text
    assert "without a test split" in text


def test_a_run_without_curve_samples_or_subnetwork(picture_run, tmp_path):
    """What bise train leaves: one audited model."""
    folder = tmp_path / "run"
    folder.mkdir()
    summary = json.loads((picture_run / "summary.json").read_text())
    kept = {key: summary[key] for key in ("schema", "vanilla", "rho", "seconds")} | {"weights": {"sha256": "ab" * 32}}
    (folder / "summary.json").write_text(json.dumps(kept))
    shutil.copy(picture_run / "config.json", folder)
    write_report(folder)
    page = parsed(folder)
    assert {"accuracy", "groups", "verified", "reproduce"} <= {h["id"] for h in page.all("h2")}
    assert "threshold" not in {h["id"] for h in page.all("h2")}
    assert "subnetwork" not in page.text["h1"][0]
    assert "before" not in [text.strip(": ") for parts in page.text.values() for text in parts], "there is no after"


def test_the_command(picture_run, tmp_path):
    out = tmp_path / "page.html"
    made = CliRunner().invoke(app, ["report", str(picture_run), "--out", str(out), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout) == {"report": str(out), "bytes": out.stat().st_size}
    assert out.read_text() == (picture_run / "report.html").read_text(), "made again from the folder, it is the same"
    again = CliRunner().invoke(app, ["report", str(picture_run), "--out", str(out)])
    assert again.exit_code == 0, "a page of ours may be written over"
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 2
    assert CliRunner().invoke(app, ["report", str(picture_run), "--out", str(tmp_path)]).exit_code == 2
    (tmp_path / "half").mkdir()
    shutil.copy(picture_run / "config.json", tmp_path / "half")
    with pytest.raises(BadInput, match="isn't finished"):
        write_report(tmp_path / "half")


def test_the_reproducing_command_is_one_that_exists(picture_run):
    code = parsed(picture_run).text["code"]
    command = next(text for text in code if text.startswith("bise extract"))
    assert "--model mine:net" in command
    assert "--gamma 0.3" in command
    assert any(f"bise finetune {picture_run} --epochs 2" in text for text in code)
    assert any(text.endswith(f"\nbise shrink {picture_run}") for text in code)


def test_commands_name_the_folder_as_seen_from_here(picture_run, tmp_path, monkeypatch):
    shutil.copytree(picture_run, tmp_path / "my runs/pictures")
    monkeypatch.chdir(tmp_path)
    write_report(tmp_path / "my runs/pictures")
    assert any(
        text.endswith("\nbise shrink 'my runs/pictures'") for text in parsed(Path("my runs/pictures")).text["code"]
    )


def test_the_reproducing_commands_name_the_device_and_whole_numbers(picture_run, tmp_path):
    shutil.copytree(picture_run, tmp_path / "pictures")
    for name, changed in (("config.json", {"device": "cuda:0"}), ("finetune.json", {"device": "cuda:0"})):
        content = json.loads((tmp_path / "pictures" / name).read_text())
        (tmp_path / "pictures" / name).write_text(json.dumps(content | changed))
    summary = json.loads((tmp_path / "pictures/summary.json").read_text())
    summary["finetune"]["lr"] = 0.012345678
    (tmp_path / "pictures/summary.json").write_text(json.dumps(summary))
    write_report(tmp_path / "pictures")
    (code,) = (text for text in parsed(tmp_path / "pictures").text["code"] if text.startswith("bise extract"))
    extract, finetune, _ = code.splitlines()
    assert " --device cuda:0 " in extract
    assert finetune.endswith(" --device cuda:0")
    assert " --lr 0.012345678 " in finetune
    assert " --device cpu " in "".join(parsed(picture_run).text["code"])


def values_for(config):
    """A value for every field that a command offers, of its kind and none that it has by default."""
    return {
        name: not one.default if one.kind is bool else [2, 3] if one.many else "text" if one.kind is str else 3
        for name, one in commanded(config).items()
    }


@pytest.mark.parametrize(
    ("command", "config"), [(cli.extract, ExtractConfig), (cli.finetune, TrainConfig), (cli.refit, RefitConfig)]
)
def test_a_command_has_the_options_of_its_configuration(command, config):
    assert commanded(config).keys() <= signature(command).parameters.keys()


def test_the_reproducing_commands_name_every_setting_that_has_an_option():
    found, tuned, fitted = (values_for(config) for config in (ExtractConfig, TrainConfig, RefitConfig))
    config = {"preset": "balanced", "extract": found}
    facts = SimpleNamespace(config=config, summary={"finetune": tuned}, finetune={}, refit={"refit": fitted}, place="x")
    extract, refit, finetune = commands(facts)
    assert " --l2 2 --l2 3" in refit
    for line, names in ((extract, found), (refit, fitted), (finetune, tuned)):
        options = {word.removeprefix("--no-").removeprefix("--").replace("-", "_") for word in line.split()}
        assert set(names) <= options
    assert "--no-baseline" in extract
    assert "--augment" in extract
    assert refit.endswith(" --keep-worse")
    assert "keep" not in commands(SimpleNamespace(**vars(facts) | {"refit": {"refit": {"keep_worse": False}}}))[1]
    assert "baseline" not in commands(facts_with(facts, baseline=True))[0]
    assert "jitter" not in commands(facts_with(facts, jitter=0.0))[0]
    assert "--augment" not in commands(facts_with(facts, augment=False))[0]


def test_the_run_of_a_recipe_says_whether_it_augments():
    source = {"data": "recipe:corrupted-cifar10", "data_arguments": {}, "weights": "runs/vanilla/model.safetensors"}
    fields = {"augment": False, "baseline": False, "precision": "fp32", "jitter": 0.0, "steps": None}
    config = {"preset": "paper", "extract": fields, "source": source}
    facts = SimpleNamespace(config=config, summary={}, finetune={}, refit={}, place="x")
    assert commands(facts) == ["bise extract runs/vanilla --preset paper --no-augment --out x"]
    (other,) = commands(facts_with(facts, baseline=True, precision="bf16", augment=True))
    assert other == ("bise extract runs/vanilla --preset paper --augment --baseline --precision bf16 --out x")


def facts_with(facts, **changes):
    config = facts.config | {"extract": facts.config["extract"] | changes}
    return SimpleNamespace(**{**vars(facts), "config": config})


def test_a_page_that_fails_does_not_fail_the_run(tmp_path):
    def gather():
        raise OSError("no space left")

    with pytest.warns(BiseWarning, match=r"the run is complete, but its report could not be written \(OSError"):
        add_report(tmp_path, gather)
