"""The model card: metadata that the hub's own library reads, the figures of the audits, and no path of this machine."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard, ModelCardData, metadata_load
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from typer.testing import CliRunner

import bise
from bise.base.errors import BadInput
from bise.cli.app import app
from bise.reporting.card import MARK, card
from bise.reporting.facts import read_facts
from bise.reporting.writing import write_card
from small_names import QUICK, SPOKEN, bert_folder, texts


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of a named model, its subnetwork in a folder, and a card of the run."""
    base = tmp_path_factory.mktemp("card")
    texts(base)
    bert_folder(base / "bert")
    run("extract", f"hf:{base / 'bert'}", "--data", base / "texts.csv", *SPOKEN, *QUICK, "--out", base / "run")
    shown = run("shrink", base / "run", "--folder", base / "small").stdout
    assert "small: transformers (intermediate_size 24 →" in " ".join(shown.split())
    run("report", base / "run", "--card")
    return base


def results(path):
    """What the hub's library makes of a card's metadata: (name, evaluation results)."""
    return model_index_to_eval_results(metadata_load(path)["model-index"])


@pytest.mark.parametrize("place", ["run/README.md", "small/README.md"])
def test_the_hubs_own_library_reads_the_metadata_and_writes_the_same(made, place):
    """All of its checks that need no network: parsing, the fields of each result, and the way back."""
    path = made / place
    name, found = results(path)
    assert name == "run"
    assert len(found) == 3  # whose fields were checked as they were made
    assert eval_results_to_model_index(name, found) == metadata_load(path)["model-index"]
    data = ModelCard.load(path).data
    assert isinstance(data, ModelCardData)
    assert data.eval_results == found
    again = ModelCardData(**metadata_load(path))
    assert again.to_dict() == metadata_load(path)
    assert metadata_load(path)["pipeline_tag"] == "text-classification"
    assert (metadata_load(path).get("library_name") == "transformers") == (place == "small/README.md")


def test_its_figures_are_those_of_the_summary_with_their_intervals(made):
    audit = json.loads((made / "run/summary.json").read_text())["subnetwork"]
    _, found = results(made / "run/README.md")
    by_type = {one.metric_type: one for one in found}
    for kind, key in (("accuracy",) * 2, ("unbiased_accuracy", "unbiased"), ("worst_group_accuracy", "worst_group")):
        one = by_type.pop(kind)
        assert one.metric_value == round(audit[key], 4)
        assert one.metric_args == {"interval_95": [round(end, 4) for end in audit["interval"][key]], "n": audit["n"]}
        assert (one.task_type, one.dataset_name, one.dataset_split) == ("text-classification", "texts.csv", "test")
    assert by_type == {}
    text = (made / "run/README.md").read_text(encoding="utf-8")
    for name, n in audit["n_by_group"].items():
        low, high = audit["interval_by_group"][name]
        shown = f"{100 * audit['by_group'][name]:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        row = next(
            line
            for line in text.splitlines()
            if line.startswith(f"| {name.replace('=', ' ').replace(' age', ', age')} | {n} ")
        )
        assert row.endswith(f"| {shown} |")


def test_it_tells_limits_and_origin_and_no_path_of_this_machine(made):
    config = json.loads((made / "run/config.json").read_text())
    for place in ("run/README.md", "small/README.md"):
        text = (made / place).read_text(encoding="utf-8")
        assert str(made) not in text
        assert "so little could be learned from them" in text
        assert config["sha256"]["weights"] in text
        assert config["sha256"]["test"] in text
        assert f"bise {bise.__version__}, torch " in text
    assert "from_pretrained(FOLDER)" in text
    assert "24 → " in text


def test_its_code_loads_the_model(made, monkeypatch):
    text = (made / "small/README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names = {"FOLDER": made / "small"}
    exec(code, names)
    assert type(names["model"]).__name__ == "BertForSequenceClassification"


@pytest.mark.long
def test_the_run_keeps_its_promises_and_tells_the_folder(made):
    assert json.loads(run("verify", made / "run", "--json").stdout)["holds"]
    noted = json.loads((made / "run/summary.json").read_text())["subnetwork"]["shrunk"]["folder"]
    assert noted["path"] == str(made / "small")
    assert noted["difference"] < 1e-6
    assert "bise shrink" in (text := (made / "run/report.html").read_text(encoding="utf-8"))
    assert "--folder " in text


@pytest.mark.parametrize(
    "evil",
    [
        "| a | b |\n# heading",
        "<script>x</script>",
        '"]: ---\nlicense: mit',
        "](javascript:x)",
        "\x1b[31m",
        "\x7f \ufffe \uffff",
        "next\x85line",
        "\u2028---\u2028license: mit",
        "\U0001f600 \u202e",
    ],
)
def test_names_of_others_are_text(made, evil, tmp_path):
    """Labels and a folder's name may hold Markdown, HTML or YAML."""
    facts = read_facts(made / "run")
    data = facts.data | {"target": evil, "biases": [evil], "class_names": [evil, "b"]}
    strange = replace(facts, folder=evil, summary=facts.summary | {"data": data})
    (tmp_path / "README.md").write_text(card(strange), encoding="utf-8")
    found = metadata_load(tmp_path / "README.md")
    assert set(found) == {"tags", "model-index", "pipeline_tag"}
    assert found["model-index"][0]["name"] == evil
    body = card(strange).split(MARK)[1]
    assert "<script" not in body.replace("\\<", "")
    assert "\x1b" not in body
    assert [line for line in body.splitlines() if line.startswith("# ")] == [body.splitlines()[2]]
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in body.splitlines() if line.startswith("|")}
    assert columns <= {3, 4, 5}


def test_a_folder_whose_name_is_no_text_has_a_card_all_the_same(made, tmp_path):
    """On Linux a name may be any bytes; Python makes halves of surrogate pairs of them."""
    strange = replace(read_facts(made / "run"), folder="run-\udcff")
    (tmp_path / "README.md").write_text(card(strange), encoding="utf-8")
    assert metadata_load(tmp_path / "README.md")["model-index"][0]["name"] == "run-\ufffd"


@pytest.mark.parametrize(
    ("data", "kind", "name"),
    [
        ("my faces (2).csv", "my-faces-2-.csv", "my faces (2).csv"),
        ("/home/ann/größe.csv", "gr-e.csv", "größe.csv"),
        ("hf:nyu-mll/glue:sst2", "nyu-mll/glue", "nyu-mll/glue:sst2"),
    ],
)
def test_the_data_have_an_identifier_that_the_hub_takes(made, data, kind, name):
    """Its server refuses a type with a space or a colon in it."""
    facts = read_facts(made / "run")
    source = facts.config["source"] | {"data": data}
    text = card(replace(facts, config=facts.config | {"source": source}))
    (result,) = ModelCard(text).data.to_dict()["model-index"][0]["results"]
    assert (result["dataset"]["type"], result["dataset"]["name"]) == (kind, name)
    assert re.fullmatch(r"(?:[\w-]+/)?[\w.-]+", kind, re.ASCII)


def test_a_card_of_somebody_else_is_not_overwritten(made, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    line = run("report", made / "run", "--card", "--out", tmp_path / "README.md", code=2).stderr
    assert "is no model card of bise and isn't overwritten" in line
    assert (tmp_path / "README.md").read_text() == "mine"
    write_card(made / "run", tmp_path / "other.md")
    before = (tmp_path / "other.md").read_bytes()
    write_card(made / "run", tmp_path / "other.md")
    assert (tmp_path / "other.md").read_bytes() == before


def test_a_network_without_figures_has_no_card(made):
    facts = read_facts(made / "run")
    with pytest.raises(BadInput, match="has no figures on a test split"):
        card(replace(facts, summary={}))
    with pytest.raises(BadInput, match="has no figures of 'finetuned'; it has those of vanilla, subnetwork"):
        card(facts, "finetuned")
    assert "the model before any extraction" in card(facts, "vanilla")
