"""The token store: numbers by hand, odd sentences, batches padded to few lengths, and results that stay the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bise
from bise import BadInput, ExtractConfig
from bise.data import Labelled
from bise.data.core.cache import cache_folder
from bise.data.core.coders import coder_of, word_pieces
from bise.data.core.subset import subset
from bise.data.core.tokens import Counts, Sentences, Tokens
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.steps import Steps
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.text import transformers
from conftest import Stream
from small_texts import WORDS, small

pytestmark = pytest.mark.usefixtures("own_cache")

CPU = torch.device("cpu")
PAD, UNKNOWN, START, END = range(4)
NICE, FOOL, THE = (WORDS.index(w) for w in ("nice", "fool", "the"))


def texts(vocabulary, *lines, length=12):
    return Sentences(lines, word_pieces(vocabulary, length))


def test_numbers_by_hand(vocabulary):
    data = texts(vocabulary, "Nice fool", "the", length=5)
    assert data.tokens.flat.tolist() == [START, NICE, FOOL, END, START, THE, END]
    assert data.tokens.host_lengths.tolist() == [4, 3]
    assert data[1]["input_ids"].tolist() == [START, THE, END, PAD, PAD]
    assert data[-1]["attention_mask"].tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(IndexError, match="text 2 of 2"):
        data[2]


def test_odd_sentences_are_handled_and_counted(vocabulary):
    odd = [
        "",
        "   \n",
        "😀🎉",
        "zebra xylophone",
        "nice " * 10_000,
        "nice 😀",
        "nice",
        "\x00\ufffd",
        "é" * 300,
        "\ud800",
    ]
    data = texts(vocabulary, *odd, length=6)
    # NUL and the replacement character are dropped by BERT's cleaning, and so leave nothing
    assert data.counts == Counts(texts=10, empty=3, cut=1, unknown=4, length=6)
    assert data.tokens.host_lengths.tolist()[:7] == [2, 2, 3, 4, 6, 4, 3]
    assert data[4]["input_ids"].tolist() == [START, NICE, NICE, NICE, NICE, END]
    labelled = Labelled(data, y=[0, 1] * 5, b=[0, 1, 1, 0, 0, 1, 1, 0, 0, 1])
    audit = bise.audit(small(), labelled, probe=False)
    assert audit.n == 10
    assert data.counts.lines() == [
        "3 texts without a word",
        "1 text cut off at 6 tokens",
        "4 texts without a word of the vocabulary",
    ]


def test_a_function_that_finds_nothing_leaves_one_empty_token():
    data = Sentences(["", "ab"], coder_of(lambda text: [ord(c) for c in text], 4))
    assert data.tokens.host_lengths.tolist() == [1, 2]
    assert (data.counts.empty, data.counts.cut) == (1, 0)


@pytest.mark.data
@pytest.mark.parametrize("length", [3, 4, 7, 64])
def test_cutting_equals_that_of_transformers(data_root, length):
    lines = ["", "one", "one two", "one two three four five six seven", "unbelievably " * 30, "😀 " * 9]
    tokenizer = transformers().BertTokenizer(str(data_root / "bert/vocab.txt"))
    expected = tokenizer(lines, truncation=True, max_length=length)["input_ids"]
    for coder in (coder_of(tokenizer, length), word_pieces(data_root / "bert", length)):
        data = Sentences(lines, coder)
        assert [row.tolist() for row in data.tokens.flat.split(data.tokens.host_lengths.tolist())] == expected
    uncut = [len(tokenizer(line)["input_ids"]) for line in lines]
    assert data.counts.cut == sum(n > length for n in uncut)
    # token_type_ids of single sentences are 0, which models take for granted, and which own ones needn't know
    assert set(Sentences(lines, coder_of(tokenizer, length))[0]) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("length", [3, 5, 8])
def test_a_tokenizer_with_another_frame_and_padding(side, length):
    """As RoBERTa's: <s> … </s>, padded with 1; cut where the tokenizer itself would."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefgh"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = transformers().PreTrainedTokenizerFast(tokenizer_object=made, truncation_side=side, **names)
    lines = ["", "a", "a b c", "a b c d e f", "z z", "a b c d e f g h"]
    data = Sentences(lines, coder_of(tokenizer, length))
    expected = tokenizer(lines, truncation=True, max_length=length)["input_ids"]
    assert [row.tolist() for row in data.tokens.flat.split(data.tokens.host_lengths.tolist())] == expected
    assert data.counts == Counts(
        texts=6, empty=1, cut=sum(len(line.split()) + 2 > length for line in lines), unknown=1, length=length
    )
    if length == 8:
        assert data[1]["input_ids"].tolist() == [0, 4, 2, 1, 1, 1, 1, 1]
        written = tokenizers.Tokenizer.from_str(data.coder.file())
        found = written.encode_batch(["a", "a b c d e f g h"])
        assert found[0].ids == [0, 4, 2, 1, 1, 1, 1, 1]
        assert found[1].ids == expected[-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 2**31 - 1))
def test_gathering_gives_every_text_back(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(1, 99, (n,), generator=generator) for n in lengths]
    tokens = Tokens.of(torch.cat(rows).int(), torch.tensor(lengths), pad=0)
    order = torch.randint(0, len(rows), (7,), generator=generator)
    (length,) = tokens.padded(order[None])
    longest = max(lengths[i] for i in order.tolist())
    assert length >= longest
    assert length in tokens.sizes
    assert not any(longest <= size < length for size in tokens.sizes)
    found = tokens.gather(order, length)
    for row, mask, i in zip(found["input_ids"], found["attention_mask"], order.tolist(), strict=True):
        assert row[: lengths[i]].tolist() == rows[i].tolist()
        assert not row[lengths[i] :].any()
        assert mask.tolist() == [1] * lengths[i] + [0] * (length - lengths[i])


def test_many_texts_are_cut_once(vocabulary, monkeypatch):
    monkeypatch.setattr("bise.data.core.tokens.KEPT", 3)
    lines = ["nice", "fool fool", "😀", ""]
    first = texts(vocabulary, *lines)
    expected = first.tokens.flat
    assert len(list(cache_folder().iterdir())) == 1
    again = texts(vocabulary, *lines)
    monkeypatch.setattr(again, "_packed", lambda: pytest.fail("they were kept"))
    assert torch.equal(again.tokens.flat, expected)
    assert again.counts == first.counts
    # the same letters with another border, and another length, are other texts
    assert texts(vocabulary, "nice", "foolfool", " 😀", "").tokens.flat.tolist() != expected.tolist()
    assert texts(vocabulary, *lines, length=3).tokens.host_lengths.max() == 3
    assert len(list(cache_folder().iterdir())) == 3


def labelled(vocabulary, n=90, length=40):
    generator = torch.Generator().manual_seed(0)
    y, b = torch.randint(0, 2, (2, n), generator=generator)
    lines = [
        " ".join([("nice", "fool")[int(y[i])], ("old", "young")[int(b[i])], *["the"] * (i * 7 % 33)]) for i in range(n)
    ]
    return Labelled(texts(vocabulary, *lines, length=length), y=y, b=b)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_padding_changes_nothing_but_rounding(vocabulary, kind):
    data = labelled(vocabulary)
    model = small(kind).double()
    sub = bise.subnetwork(model, {})
    resident, streamed = Inputs(data, CPU), Inputs(Stream(data), CPU)
    assert resident.on_device
    assert not streamed.on_device
    bottleneck = {"bert": "classifier", "distilbert": "classifier", "roberta": "classifier.out_proj"}[kind]
    for index in (None, torch.tensor([5, 3, 80, 3, 11])):
        few = [infer(sub, resident, index=index, features=bottleneck, batch_size=n) for n in (7, 500)]
        full = infer(sub, streamed, index=index, features=bottleneck, batch_size=13)
        for found in few:
            torch.testing.assert_close(found.logits, full.logits, rtol=1e-5, atol=1e-6)  # logits are kept in float32
            torch.testing.assert_close(found.z, full.z, rtol=1e-5, atol=1e-6)


def test_inference_pads_little(vocabulary):
    data = labelled(vocabulary)
    inputs = Inputs(data, CPU)
    seen = []
    model = small()
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["input_ids"].shape), with_kwargs=True)
    infer(owning(model), inputs, batch_size=10)
    padded = sum(n * length for n, length in seen)
    real = int(data.dataset.tokens.host_lengths.sum())
    assert {length for _, length in seen} <= set(data.dataset.tokens.sizes)
    assert padded < 1.6 * real
    assert padded < 0.8 * len(data) * int(data.dataset.tokens.host_lengths.max())


def test_order_and_seed_are_those_of_streamed_data(vocabulary):
    data = labelled(vocabulary, 40)
    streamed = Labelled(Stream(data.dataset), y=data.y, b=data.b)
    config = bise.TrainConfig(epochs=2, batch_size=8, lr=0.05, seed=3)
    model = small()
    for module in model.modules():  # dropout draws by shape, which padding changes
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config._attn_implementation = "sdpa"
    for layer in model.bert.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    found = []
    for version in (data, streamed):
        net = owning(model)
        history = fit(net, Inputs(version, CPU), bise.data.labels(version), config)
        found.append((history, net.bare().state_dict()))
    assert [r["loss"] for r in found[0][0]] == pytest.approx([r["loss"] for r in found[1][0]], rel=1e-4)
    for name, tensor in found[0][1].items():
        torch.testing.assert_close(tensor, found[1][1][name], rtol=1e-3, atol=1e-4)
    quick = ExtractConfig(steps=2, upsilon=2, head_epochs=1, head_steps=2, batch_size=8, tau_min=0.5, seed=1)
    one, two = (bise.extract(model, version, config=quick) for version in (data, streamed))
    for name, scores in one.scores.items():
        torch.testing.assert_close(scores, two.scores[name], rtol=1e-3, atol=1e-4)


def test_a_length_has_one_recording(vocabulary):
    """What a GPU does, with eager steps in place of graphs: the right length for every row, in the order of rows."""
    data = labelled(vocabulary)
    inputs = Inputs(data, CPU)
    order = torch.arange(80)
    calls = []
    steps = Steps(lambda x, index: torch.tensor([float(x["input_ids"].shape[1])]), inputs, 8, state=lambda: ())
    steps.recordable = True

    class Graph:
        def __init__(self, length):
            self.length = length

        def replay(self):
            x, index = steps._batch(self.length, False)
            steps.figures[steps.position] = steps.update(x, index)
            calls.append((self.length, index.tolist()))
            steps.position += 1

    def record(length, augmented):
        if steps.figures is None:
            steps.figures = torch.zeros(len(steps.rows), 1)
        assert length not in steps.graphs
        steps.graphs[length] = Graph(length)

    steps._record = record
    figures = steps.run(order)
    assert [index for _, index in calls] == order.view(-1, 8).tolist()
    assert figures[:, 0].tolist() == [length for length, _ in calls] == inputs.padded(order.view(-1, 8))
    before = dict(steps.graphs)
    steps.run(order[:70])
    assert steps.graphs == before
    assert len(steps.run(order[:71])) == 9


def test_a_subset_keeps_its_sentences(vocabulary):
    data = labelled(vocabulary)
    part = subset(data, 20, seed=1)
    assert len(part.dataset.tokens) == 20
    index = torch.randperm(90, generator=torch.Generator().manual_seed(1))[:20].sort().values
    assert torch.equal(data.dataset.tokens.take(index).flat, part.dataset.tokens.flat)
    assert torch.equal(part.y, data.y[index])


def test_bad_lengths_and_tokenizers_are_named(vocabulary, tmp_path):
    for length in (2, True, 4.0):
        with pytest.raises(BadInput, match="leaves no room for a word"):
            word_pieces(vocabulary, length)
    with pytest.raises(BadInput, match="length=0 is no number of tokens"):
        coder_of(str, 0)
    with pytest.raises(BadInput, match="text needs a tokenizer"):
        coder_of(None, 8)
    with pytest.raises(BadInput, match=r"nowhere.txt' does not exist"):
        coder_of("nowhere.txt", 8)
