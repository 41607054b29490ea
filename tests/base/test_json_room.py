"""What JSON would take in memory is told before it is parsed, and is never more than that."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from bise.base import files
from bise.base.errors import BadInput
from bise.base.files import read_json, read_tensors, unfolded, write_json
from bise.base.plain import NotPlain
from bise.reporting.facts import _rows
from bise.runs.log import rows_of_others

SIZE = 1 << 20
UNITS = {
    "lists": "[]",
    "objects": "{}",
    "nested lists": "[[[[]]]]",
    "nested objects": '{"a":{"a":{"a":{}}}}',
    "objects of one": '{"a":1}',
    "objects of six": '{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}',
    "short texts": '"ab"',
    "wide texts": '"\U0001f600aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"',
    "escapes": '"\\ud83d\\ude00aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"',
    "accents": '"\u00e9"',
    "numbers": "1.5",
    "whole numbers": "99999",
    "longer ones": "123456789012345678901234567890",
    "digits": "7",
    "truths": "true",
    "rows": '{"schema": 2, "job": "extract", "epoch": 1, "loss": 0.5, "open": 12}',
}


def many(unit):
    return ("[" + ",".join([unit] * (SIZE // len(unit))) + "]").encode()


def taken(content):
    """What Python takes beside the text, which is there before."""
    text = content.decode()
    tracemalloc.start()
    kept = json.loads(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept
    return peak


@pytest.mark.parametrize("unit", UNITS)
def test_no_json_takes_more_than_is_told(unit):
    content = many(UNITS[unit])
    assert taken(content) <= unfolded(content)


def a_value(draw, depth):
    kind = draw.random()
    if depth and kind < 0.35:
        return [a_value(draw, depth - 1) for _ in range(draw.randrange(5))]
    if depth and kind < 0.7:
        return {draw.choice("abcdefgh") * draw.randrange(9): a_value(draw, depth - 1) for _ in range(draw.randrange(7))}
    return draw.choice([None, True, 7, 12345.5, "", "ab", "\u00e9\u00e9", 10**25, draw.random()])


@pytest.mark.parametrize("seed", range(5))
def test_nor_does_any_other(seed):
    draw = random.Random(seed)
    content = json.dumps([a_value(draw, 6) for _ in range(3000)], ensure_ascii=False).encode()
    assert taken(content) <= unfolded(content)


@pytest.fixture
def little_room(monkeypatch):
    monkeypatch.setattr(files, "UNFOLDED", 10**6)


def test_everything_that_reads_json_of_a_run_asks(tmp_path, little_room):
    path = tmp_path / "summary.json"
    path.write_bytes(b'{"schema": 2, "a": ' + many("[]") + b"}")
    with pytest.raises(BadInput, match=r"can't be read \(it would take up to"):
        read_json(path)
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(b"{}\n" * 10**5)
    with pytest.raises(BadInput, match=r"metrics.jsonl can't be read \(it would take up to"):
        _rows(log)
    with pytest.raises(NotPlain):
        list(rows_of_others(log, "extract"))
    tensors = tmp_path / "x.safetensors"
    header = b'{"__metadata__": {"a": "' + b"[]," * 10**5 + b'"}}'
    tensors.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(BadInput, match="it would take up to"):
        read_tensors(tensors)
    write_json(path, {"a": [0.5] * 1000})
    assert len(read_json(path)["a"]) == 1000


def test_lines_of_a_log_that_are_no_rows_are_passed_over(tmp_path):
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(b'5\n[]\n{"job": "a"}\n' + b"[" * 5000 + b'\n{"job": "b"}\n{"job":')
    assert list(rows_of_others(log, "a")) == [b'{"job": "b"}\n']
    assert [row.get("job") for row in _rows(log)] == ["a", "b"]
