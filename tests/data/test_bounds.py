"""Small files that would fill the memory or the disk: each is refused in a sentence, before it has."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bise import BadInput
from bise.data import hugging_face
from bise.data.own.columns import read_columns
from conftest import TESTS

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
LONG = "x" * 1_000_000

APART = """
import json, resource, sys
from pathlib import Path

import datasets, pyarrow.parquet, pyarrow.compute, torch
import bise
from bise.data import hugging_face, table

datasets.disable_progress_bars()


def peak():
    (line,) = (row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


read, path, how = sys.argv[1:]
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (3 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]))
before, said = peak(), "nothing"
try:
    {"table": table, "hugging_face": hugging_face}[read](path, **json.loads(how))
except bise.BadInput as error:
    said = str(error)
print(json.dumps({"grown": peak() - before, "said": said}))
"""


def apart(read, path, **how):
    """(MiB that reading it took in a process of its own, what was said against it)."""
    words = [sys.executable, "-W", "error", "-c", APART, read, str(path), json.dumps(how)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["grown"], found["said"]


def repeated(value, count, kind):
    """One value so many times, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], kind))


def written(path, columns, **how):
    parquet.write_table(pa.table(columns), path, compression="zstd", write_statistics=False, store_schema=False, **how)
    return path


def zeros(count):
    return pa.array(np.zeros(count, np.int8))


def texts(folder):
    columns = {"y": zeros(50_000), "words": repeated(LONG, 50_000, pa.string())}
    return written(folder / "a.parquet", columns), {"target": "y", "text": "words"}


def labels(folder):
    columns = {"y": repeated(LONG, 50_000, pa.string()), "f": zeros(50_000)}
    return written(folder / "a.parquet", columns), {"target": "y"}


def pictures(folder):
    columns = {"y": zeros(50_000), "img": repeated(LONG.encode(), 50_000, pa.binary())}
    return written(folder / "a.parquet", columns), {"target": "y", "image": "img", "size": 4}


def pictures_in_structs(folder):
    path = repeated("name", 50_000, pa.string())
    inner = pa.StructArray.from_arrays([repeated(LONG.encode(), 50_000, pa.binary()), path], ["bytes", "path"])
    return written(folder / "a.parquet", {"y": zeros(50_000), "img": inner}), {
        "target": "y",
        "image": "img",
        "size": 4,
    }


def rows(folder):
    columns = {"y": zeros(70_000_000)}
    how = {"row_group_size": 70_000_000, "write_batch_size": 70_000_000}
    return written(folder / "a.parquet", columns, **how), {"target": "y", "labels_only": True}


@linux
@pytest.mark.parametrize("made", [texts, labels, pictures, pictures_in_structs, rows])
def test_a_small_parquet_file_does_not_fill_the_memory(made, tmp_path):
    path, how = made(tmp_path)
    size = path.stat().st_size
    assert size < 200_000
    grown, said = apart("table", path, **how)
    assert said.startswith(f"{path} has {size:,} bytes, and what is read of it takes more than ")
    assert "name fewer columns, or, if you trust where it comes from, allow more bytes with BISE_TABLE_MEMORY" in said
    assert grown < 2000


def test_values_that_share_what_they_begin_with_are_counted_too(tmp_path, monkeypatch):
    monkeypatch.setenv("BISE_TABLE_MEMORY", str(64 << 20))
    columns = {"y": zeros(100), "words": pa.array([LONG] * 100)}
    how = {"use_dictionary": False, "column_encoding": {"words": "DELTA_BYTE_ARRAY", "y": "PLAIN"}}
    path = written(tmp_path / "a.parquet", columns, **how)
    assert path.stat().st_size < 10_000
    with pytest.raises(BadInput, match=r"a\.parquet has .* takes more than 67,108,864 in memory"):
        read_columns(path, None)
    monkeypatch.setenv("BISE_TABLE_MEMORY", str(128 << 20))
    found = read_columns(path, None).values["words"]
    assert len(found) == 100
    assert found[99] == LONG


def test_a_page_that_says_how_large_it_is_is_not_unpacked(tmp_path, monkeypatch):
    path = written(tmp_path / "a.parquet", {"y": pa.array(np.zeros(1_000_000))}, use_dictionary=False)
    monkeypatch.setenv("BISE_TABLE_MEMORY", "7000000")  # eight bytes a number
    with pytest.raises(BadInput, match="takes more than 7,000,000 in memory"):
        read_columns(path, None)
    monkeypatch.setenv("BISE_TABLE_MEMORY", "much")
    with pytest.raises(BadInput, match="BISE_TABLE_MEMORY='much' is no number of bytes"):
        read_columns(path, None)


def test_what_is_read_by_dictionaries_is_what_was_written(tmp_path):
    random = np.random.default_rng(0)
    words = [None if i % 13 == 0 else f"word {random.integers(40)}" for i in range(3000)]
    unique = [f"{i} {'y' * int(random.integers(200))}" for i in range(3000)]
    columns = {
        "words": pa.array(words),
        "large": pa.array(words, pa.large_string()),
        "unique": pa.array(unique),
        "stored": pa.array(words).dictionary_encode(),
        "number": pa.array(random.integers(0, 5, 3000), pa.int32()),
        "when": pa.array([0, 86_400_000] * 1500, pa.timestamp("ms")),
        "flag": pa.array([True, False, None] * 1000),
    }
    parquet.write_table(
        pa.table(columns), tmp_path / "a.parquet", row_group_size=700, data_page_size=512, dictionary_pagesize_limit=64
    )
    found = read_columns(tmp_path / "a.parquet", None)
    for name in ("words", "large", "stored"):
        assert list(found.values[name]) == [word or "" for word in words]
    assert list(found.values["unique"]) == unique
    assert list(found.values["number"]) == [str(value.as_py()) for value in columns["number"]]
    assert list(found.values["when"])[:2] == ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]
    assert list(found.values["flag"])[:3] == ["True", "False", ""]


def test_columns_of_lists_are_refused_before_they_are_made(tmp_path):
    path = written(tmp_path / "a.parquet", {"y": zeros(2), "f": pa.array([[1] * 10, [2]])})
    with pytest.raises(BadInput, match="column 'f' holds list values; it takes text, numbers or booleans"):
        read_columns(path, None)


# folders of datasets


def saved(folder, batches):
    """A folder as save_to_disk makes it, its columns in place of such a one's."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    first = batches[0]
    small = pa.Table.from_batches([first.slice(0, 2)])
    datasets.Dataset(small).save_to_disk(folder)
    (file,) = folder.glob("*.arrow")
    return file, pa.ipc.open_stream(file.read_bytes()).schema


@linux
def test_a_folder_whose_columns_are_packed_is_refused(tmp_path):
    batch = pa.record_batch({"y": pa.array(np.zeros(1_000_000, np.int64)), "f": pa.array(np.zeros(1_000_000))})
    file, schema = saved(tmp_path / "data", [batch])
    batch = batch.replace_schema_metadata(schema.metadata)
    with pa.ipc.new_stream(file, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        for _ in range(60):
            stream.write_batch(batch)
    assert file.stat().st_size < 200_000
    grown, said = apart("hugging_face", tmp_path / "data", target="y")
    assert said == f"{file} is compressed inside, as save_to_disk writes no file; save the data set anew"
    assert grown < 500


@linux
def test_a_folder_with_rows_that_take_no_room_is_refused(tmp_path):
    batch = pa.record_batch({"y": pa.nulls(1_000_000_000)})
    file, schema = saved(tmp_path / "data", [batch])
    with pa.ipc.new_stream(file, schema) as stream:
        stream.write_batch(batch.replace_schema_metadata(schema.metadata))
    size = file.stat().st_size
    grown, said = apart("hugging_face", tmp_path / "data", target="y")
    assert said.startswith(f"{tmp_path / 'data'} has {size:,} bytes, and what is read of it takes more than ")
    assert grown < 500


def test_a_folder_as_it_is_saved_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    content = {"y": [0, 1] * 500, "sex": ["f", "m", None, "f"] * 250, "age": [float(i) for i in range(1000)]}
    datasets.Dataset.from_dict(content).save_to_disk(tmp_path / "data", num_shards=3)
    data = hugging_face(tmp_path / "data", target="y", bias="sex")
    assert data.y.tolist() == content["y"]
    assert data.b.tolist() == [0, 1, -1, 0] * 250


# a header of many columns, a full disk, a server without end


def test_a_header_of_many_columns_is_read_at_once(tmp_path):
    names = [f"column {i}" for i in range(200_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    script = f"""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        from pathlib import Path
        from bise.data.own.columns import read_columns
        found = read_columns(Path({str(path)!r}), None)
        assert len(found.names) == 200_000 and found.values["column 199999"][0] == "1"
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path.write_text(",".join([*names, "column 77"]) + "\n")
    with pytest.raises(BadInput, match=r"wide\.csv has two columns named 'column 77'; rename one"):
        read_columns(path, None)


FULL = """
import resource, signal, sys
import torch
import bise
from bise.jobs.exporting import export
from conftest import toy_model

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
x = torch.randn(4, 8)
model = toy_model(width=256).eval()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    export(model, sys.argv[1], x)
except bise.BadInput as error:
    print(error)
"""


@pytest.mark.parametrize("ending", [".pt2", ".onnx"])
def test_a_file_to_deploy_that_does_not_fit_on_the_disk_is_told_of(ending, tmp_path):
    if ending == ".onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    out = tmp_path / "out" / f"small{ending}"
    words = [sys.executable, "-c", FULL, str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out} can't be written (File too large); choose another place\n"
    assert list(out.parent.iterdir()) == []
