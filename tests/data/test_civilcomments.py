"""CivilComments in WILDS' layout: labels, texts as they are, word pieces against transformers' own tokenizer."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bise
from bise import BadInput, ExtractConfig
from bise.cli.app import app
from bise.data import labels, load
from bise.data.core.coders import word_pieces
from bise.data.core.sampling import sample_weights
from bise.data.core.tokens import Sentences
from bise.data.sets.civilcomments import IDENTITIES, civilcomments, read_comments
from bise.network.architectures.pretrained import bert
from bise.network.architectures.text import transformers

pytest.importorskip("tokenizers")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "you",
    "are",
    "a",
    "ni",
    "##ce",
    "fool",
    "null",
    ",",
    "é",
    "e",
    "!",
]
HEADER = ["", "id", "comment_text", "split", "created_date", "toxicity", "identity_any", *IDENTITIES]


def row(number, text, split, toxicity, **identities):
    values = [str(identities.get(name, 0.0)) for name in IDENTITIES]
    # identity_any is a column of its own, which may differ from the eight
    return [str(number), str(1000 + number), text, split, "2016", str(toxicity), "1.0", *values]


def write(root, rows, header=HEADER, words=WORDS):
    folder = root / "civilcomments"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "all_data_with_identities.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    (root / "bert").mkdir(exist_ok=True)
    (root / "bert/vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return root


ROWS = [
    row(0, "You are a fool!", "train", 0.5, male=0.5),
    row(1, 'a "quoted",\nbroken line', "train", 0.49, LGBTQ=0.49),
    row(2, "null", "train", 0.0, white=1.0),
    row(3, "", "train", 1.0),
    row(4, "nice é", "val", 0.2, muslim=0.7),
    row(5, "you", "test", 0.9),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp("civil"), ROWS)


def test_labels_by_hand(root):
    data = load("civilcomments", split="train", root=root)
    assert data.y.tolist() == [1, 0, 0, 1]
    assert data.b.tolist() == [1, 0, 1, 0]
    cells = labels(data)
    assert cells.aligned_bias.tolist() == [[0, 1]]
    assert cells.aligned[:, 0].tolist() == [True, True, False, False]
    assert sample_weights(cells, "paper").tolist() == [1, 1, 1, 1]
    assert [len(load("civilcomments", split=s, root=root)) for s in ("val", "test")] == [1, 1]


def test_the_authors_leave_out_comments_without_a_word(root, tmp_path):
    data = load("civilcomments", split="train", protocol="authors", root=root)
    assert list(data.dataset.texts) == [r[2] for r in ROWS[:3]]
    assert (data.y.tolist(), data.b.tolist()) == ([1, 0, 0], [1, 0, 1])
    blank = write(tmp_path, [row(0, "  ", "train", 1.0), row(1, "you", "val", 0.0)])
    with pytest.raises(BadInput, match="no comment with a word in the split 'train'"):
        load("civilcomments", split="train", protocol="authors", root=blank)


def test_texts_stay_as_they_are(root):
    comments = load("civilcomments", split="train", root=root).dataset
    assert list(comments.texts) == [r[2] for r in ROWS[:4]]


def test_tokens_by_hand(root):
    (x, y, b) = load("civilcomments", split="val", root=root)[0]
    assert (y, b) == (0, 1)
    assert x["input_ids"].shape == x["attention_mask"].shape == (220,)
    # accents are stripped where case is
    expected = [WORDS.index(w) for w in ("[CLS]", "ni", "##ce", "e", "[SEP]")]
    assert x["input_ids"][:6].tolist() == [*expected, 0]
    assert x["attention_mask"].sum() == 5
    short = civilcomments("train", length=4, root=root)[0][0]
    assert short["input_ids"].tolist() == [WORDS.index(w) for w in ("[CLS]", "you", "are", "[SEP]")]


@pytest.mark.data
def test_word_pieces_equal_those_of_transformers(data_root):
    path = data_root / "bert/vocab.txt"
    oracle = transformers().BertTokenizer(str(path), do_lower_case=True)
    texts = [
        "You're a nice person!",
        "Ünïcödé   straße 中文 …",
        "",
        "x" * 300,
        "null",
        "😀 ok @user #tag http://a.b/c?d=1",
    ]
    texts += ["word " * 60, "don't 'quote' \"this\"\tor\nthat"]
    ours = Sentences(texts, word_pieces(data_root / "bert", 32))
    for text, found in zip(texts, ours, strict=True):
        expected = oracle(text, truncation=True, max_length=32, padding="max_length")
        assert found["input_ids"].tolist() == expected["input_ids"], text
        assert found["attention_mask"].tolist() == expected["attention_mask"]


def commented(tmp_path):
    """120 comments whose toxicity shows in one word and whose mention of an identity shows in another."""
    rows = []
    for number in range(120):
        toxic = number % 2
        mentions = toxic if number % 7 else 1 - toxic
        text = ("fool " if toxic else "nice ") + ("you are" if mentions else "a")
        rows.append(row(number, text, ("train", "val", "test")[number % 3], toxic, female=mentions))
    return write(tmp_path, rows)


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_the_recipe_goes_from_a_bert_folder_to_a_subnetwork(tmp_path):
    root = commented(tmp_path)
    bert(2, None, vocab_size=len(WORDS), **SMALL)[0].save_pretrained(tmp_path / "small")
    own = ["--data-root", root, "--weights", tmp_path / "small", "--device", "cpu", "--epochs", "1"]

    def run(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    vanilla = run("train", "civilcomments", *own, "--out", tmp_path / "vanilla")
    assert vanilla["start"] == str(tmp_path / "small")
    config = json.loads((tmp_path / "vanilla/config.json").read_text())
    assert config["source"]["model_arguments"]["hidden_size"] == 16
    quick = ["--upsilon", "1", "--steps", "1", "--batch-size", "8"]
    found = run("extract", "--from", tmp_path / "vanilla", "--out", tmp_path / "found", "--preset", "paper", *quick)
    assert found["subnetwork"]["units"]["all"] == 32 + 16 + 16  # intermediate, output, pooler
    assert found["selection"]["on"] == "val, worst_group"
    assert found["vanilla"]["worst_group"] == pytest.approx(vanilla["vanilla"]["worst_group"])
    tuned = run("finetune", tmp_path / "found", "--preset", "paper", "--epochs", "1")
    assert (tuned["finetune"]["optimizer"], tuned["finetune"]["lr"]) == ("adamw", 1e-8)


def test_a_small_bert_is_audited_and_extracted_from(tmp_path):
    root = commented(tmp_path)
    train, test = (load("civilcomments", split=s, root=root) for s in ("train", "test"))
    torch.manual_seed(0)
    model, provenance = bert(2, None, vocab_size=len(WORDS), **SMALL)
    assert provenance == "scratch"
    model.eval()
    found = bise.audit(model, test, aligned=labels(train), probe=False)
    assert found.n == 40
    assert len(found.by_group) == 4
    sub = bise.extract(
        model, train, config=ExtractConfig(steps=1, upsilon=1, head_epochs=1, head_steps=1, batch_size=8, tau_min=0.5)
    )
    assert sub.units[1] == 2 + 32 + 16 + 16  # heads, intermediate, output, pooler


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows, header: rows[0].__setitem__(3, "eval"), "column 'split' holds 'eval'"),
        (lambda rows, header: rows[0].__setitem__(5, "high"), "toxicity holds 'high'"),
        (lambda rows, header: rows[0].__setitem__(5, ""), "toxicity holds ''"),
        (lambda rows, header: rows[0].__setitem__(5, "nan"), "toxicity holds 'nan'"),
        (lambda rows, header: rows[0].__setitem__(8, "7"), "female holds '7'"),
        (lambda rows, header: header.__setitem__(5, "toxic"), "has no column 'toxicity'"),
        (lambda rows, header: rows.__delitem__(slice(4)), "no comment in the split 'train'"),
    ],
)
def test_broken_tables_are_named(tmp_path, change, expected):
    rows, header = [list(r) for r in ROWS], list(HEADER)
    change(rows, header)
    with pytest.raises(BadInput, match=expected):
        load("civilcomments", split="train", root=write(tmp_path, rows, header))


def test_a_blank_identity_counts_as_not_mentioned(tmp_path):
    rows = [list(r) for r in ROWS]
    rows[0][7] = ""
    assert load("civilcomments", split="train", root=write(tmp_path, rows)).b.tolist() == [0, 0, 1, 0]


def test_missing_files_and_bad_arguments(root, tmp_path):
    with pytest.raises(BadInput, match="all_data_with_identities.csv does not exist"):
        load("civilcomments", split="train", root=tmp_path)
    with pytest.raises(BadInput, match="rho=0.9 can't be set for civilcomments"):
        load("civilcomments", split="train", rho=0.9, root=root)
    with pytest.raises(BadInput, match="length=1"):
        civilcomments("train", length=1, root=root)
    with pytest.raises(BadInput, match=r"vocab.txt can't be read"):
        civilcomments("train", vocabulary=tmp_path / "vocab.txt", root=root)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    with pytest.raises(BadInput, match=r"has no \[CLS\]"):
        civilcomments("train", vocabulary=tmp_path, root=root)
    with pytest.raises(BadInput, match="split='dev'"):
        civilcomments("dev", root=root)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
            st.floats(0, 1),
            st.floats(0, 1),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_text_comes_back(tmp_path, drawn):
    root = write(tmp_path, [row(i, text, "train", toxic, black=b) for i, (text, toxic, b) in enumerate(drawn)])
    texts, y, b = read_comments(root / "civilcomments/all_data_with_identities.csv", "train")
    assert list(texts) == [text for text, _, _ in drawn]
    assert y.tolist() == [int(toxic >= 0.5) for _, toxic, _ in drawn]
    assert b.tolist() == [int(value >= 0.5) for _, _, value in drawn]
