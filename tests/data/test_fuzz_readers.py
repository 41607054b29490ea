"""Thousands of odd files: each is read as Python's own csv and struct would read it, or refused in one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import math
import struct
import tracemalloc
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from bise import BadInput, BiseWarning
from bise.data.core.pictures import read_picture
from bise.data.own.columns import read_columns
from bise.data.own.tables import read_table
from bise.data.sets.idx import read_idx

many = settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def attempt(read, *arguments, **named):
    """What `read` gives, or None where it refuses in one sentence that names the file; any other error is a failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BiseWarning)
            return read(*arguments, **named)
    except BadInput as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert "fuzz" in sentence
    return None


def oracle(content):
    """(header, rows) by the csv module, or None where it refuses, or where rows have different lengths."""
    text = content.decode("utf-8-sig")
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="\n"), strict=True) if row]
    except csv.Error:
        return None
    header = [name.strip() for name in rows[0]] if rows else []
    if len(rows) < 2 or len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        return None
    return header, rows[1:]


CELLS = st.text(alphabet='abAB01. ,;"\n\té€', max_size=6)
VALUES = st.sampled_from(["0", "1", "", "2.0", "-3.5", "nan", "x", '"a,b"', "1e9"])
LINES = st.lists(st.builds(",".join, st.lists(VALUES, min_size=3, max_size=3)), max_size=6).map(
    lambda lines: "\n".join(lines).encode()
)
PIECES = st.lists(
    st.sampled_from(["a", "b", "1", ",", '"', '""', "\n", "\r\n", "\r", ";", "\t", " ", "é"]), max_size=30
)


@st.composite
def tables(draw):
    """A header and rows, as long as it but for one in ten."""
    width = draw(st.integers(1, 4))
    header = draw(st.lists(CELLS, min_size=width, max_size=width, unique_by=str.strip))
    even = st.lists(CELLS, min_size=width, max_size=width)
    odd = st.lists(CELLS, min_size=1, max_size=5)
    rows = [draw(odd if draw(st.integers(0, 9)) == 7 else even) for _ in range(draw(st.integers(0, 5)))]
    return [header, *rows]


@many
@given(rows=tables())
def test_what_a_csv_writer_wrote_is_read_back(tmp_path, rows):
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    path = tmp_path / "fuzz.csv"
    path.write_bytes(out.getvalue().encode())
    expected = oracle(path.read_bytes())
    found = attempt(read_columns, path, None, separator=",")
    assert (found is None) == (expected is None)
    if found is not None:
        assert list(found.names) == expected[0]
        assert [list(column) for column in found.values.values()] == [list(c) for c in zip(*expected[1], strict=True)]


@many
@given(pieces=st.one_of(PIECES, PIECES.map(lambda pieces: ["a,b\n", *pieces])), mark=st.booleans())
def test_csv_of_random_pieces(tmp_path, pieces, mark):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(b"\xef\xbb\xbf" * mark + "".join(pieces).encode())
    expected = oracle(path.read_bytes())
    found = attempt(read_columns, path, None, separator=",")
    assert (found is None) == (expected is None)
    if found is not None:
        assert list(found.names) == expected[0]
        assert [list(column) for column in found.values.values()] == [list(c) for c in zip(*expected[1], strict=True)]


@many
@given(content=st.one_of(st.binary(max_size=200), LINES))
def test_a_table_of_random_bytes(tmp_path, content):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(b"y,b,x\n0,0,0\n1,1,1\n" + content)
    found = attempt(read_table, path, target="y", bias="b")
    if found is not None:
        assert len(found.y) == len(found.b) == len(found.part) >= 2
        assert found.split("train").tensors[0].isfinite().all()


@many
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    kind=st.sampled_from([8, 8, 8, 9, 13]),
    extra=st.sampled_from([0, 0, 0, -1, 2]),
    packed=st.booleans(),
    cut=st.sampled_from([0, 0, 0, 1, 5]),
)
def test_idx_files_of_small_shapes(tmp_path, shape, kind, extra, packed, cut):
    count = math.prod(shape)
    body = bytes(i % 256 for i in range(max(0, count + extra)))
    content = struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + body
    written = gzip.compress(content, mtime=0) if packed else content
    path = tmp_path / ("fuzz.gz" if packed else "fuzz.idx")
    path.write_bytes(written[: len(written) - cut])
    found = attempt(read_idx, path)
    whole = content if packed and not cut else content[: len(content) - cut] if not packed else None
    right = whole is not None and kind == 8 and len(whole) == 4 + 4 * len(shape) + count
    assert (found is not None) == right
    if found is not None:
        assert found.shape == tuple(shape)
        assert found.flatten().tolist() == list(whole[4 + 4 * len(shape) :])


@many
@given(content=st.binary(max_size=60), start=st.sampled_from([b"", b"\0\0\x08", b"\0\0\x08\x01", b"\x1f\x8b\x08\0"]))
def test_idx_files_of_random_bytes(tmp_path, content, start):
    for name in ("fuzz.idx", "fuzz.gz"):
        path = tmp_path / name
        path.write_bytes(start + content)
        found = attempt(read_idx, path)
        assert found is None or found.dtype == torch.uint8
        path.unlink()  # or the other name would be found beside it


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(2**32 - 1,), (2**31, 2**31), (60_000, 28, 28), (2**32 - 1,) * 8])
def test_a_header_that_claims_a_huge_shape_costs_nothing(tmp_path, shape, packed):
    content = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + b"abc"
    path = tmp_path / ("fuzz.gz" if packed else "fuzz.idx")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert peak(path) < 4 << 20


def test_a_gzip_bomb_is_unpacked_no_further_than_its_header_says(tmp_path):
    path = tmp_path / "fuzz.gz"
    path.write_bytes(gzip.compress(struct.pack(">HBBI", 0, 8, 1, 1000) + b"\0" * (200 << 20), compresslevel=9))
    assert path.stat().st_size < 1 << 20
    assert peak(path) < 8 << 20


def peak(path):
    """Bytes that reading takes at most, after it was refused."""
    tracemalloc.start()
    try:
        assert attempt(read_idx, path) is None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_csv_without_line_ends_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("bise.data.own.columns.LONGEST_LINE", 1 << 16)
    path = tmp_path / "fuzz.csv"
    path.write_bytes(b"y,b\n" + b"1" * (8 << 20))
    tracemalloc.start()
    try:
        assert attempt(read_columns, path, None) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def pictures():
    """Small good files of several formats."""
    noise = Image.effect_noise((24, 17), 80)
    for kind, image in (
        ("PNG", noise), ("JPEG", noise), ("GIF", noise), ("BMP", noise), ("TIFF", noise), ("WEBP", noise),
        ("PNG", noise.convert("P")), ("JPEG", noise.convert("CMYK")), ("PPM", noise),
    ):  # fmt: skip
        out = io.BytesIO()
        image.save(out, kind)
        yield out.getvalue()


@many
@given(
    which=st.sampled_from(list(pictures())),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_damaged_pictures(which, changes, keep):
    content = bytearray(which)
    for place, value in changes:
        content[int(place * (len(content) - 1))] = value
    found = attempt(read_picture, bytes(content[: int(keep * len(content))]), size=(5, 4), name="fuzz")
    if found is not None:
        assert (found.shape, found.dtype) == ((3, 5, 4), torch.uint8)
    if not changes and keep == 1:
        assert found is not None
