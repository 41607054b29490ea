"""Downloading against a real server on this machine: ranges, cut transfers, wrong bytes, mirrors in turn."""

from __future__ import annotations

import hashlib
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

import bise.data.sets.fetching as module
from bise import BadInput
from bise.cli.app import app
from bise.data import download, load

FILES = {"a.gz": bytes(range(256)) * 1000, "b.gz": b"short"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        kind, name = self.path.strip("/").split("/")
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        server.asked.append((kind, name, start))
        content = FILES.get(name)
        if kind == "gone" or content is None:
            self.send_error(404)
            return
        if kind == "wrong":
            content = content[::-1] + b"!"
        if kind == "rangeless":
            start = 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if kind == "endless":
            self.end_headers()
            with suppress(OSError):  # until nobody listens any more
                while True:
                    self.wfile.write(content)
                    server.sent += len(content)
        self.send_header("Content-Length", str(10**12 if kind == "huge" else len(content) - start))
        self.end_headers()
        sent = content[start:]
        if kind == "cut" and len(sent) > 1000:
            sent = sent[: len(sent) // 2]
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def mirror(server, monkeypatch):
    server.asked, server.sent = [], 0
    sums = {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setitem(module.SOURCES, "mnist", module.Source(mirrors=("http://unused.invalid/",), files=sums))
    return lambda kind: f"http://127.0.0.1:{server.server_port}/{kind}/"


def whole(folder):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_the_files_come_with_progress_and_are_not_fetched_twice(tmp_path, mirror, server):
    told = []
    folder = download("mnist", tmp_path, mirrors=[mirror("good")], progress=lambda *row: told.append(row))
    assert folder == tmp_path / "mnist"
    whole(folder)
    assert told[-1][1] == told[-1][2] == len(FILES["b.gz"])
    assert [row[1] for row in told[:-1]] == sorted(row[1] for row in told[:-1])
    asked = len(server.asked)
    download("mnist", tmp_path, mirrors=[mirror("good")])
    assert len(server.asked) == asked


def test_a_cut_transfer_goes_on_where_it_stopped(tmp_path, mirror, server):
    with pytest.raises(BadInput, match=r"a\.gz can't be fetched .*cut short, 128000 bytes missing"):
        download("mnist", tmp_path, mirrors=[mirror("cut")])
    assert (tmp_path / "mnist/a.gz.part").stat().st_size == 128_000
    assert not (tmp_path / "mnist/a.gz").exists()
    whole(download("mnist", tmp_path, mirrors=[mirror("good")]))
    assert server.asked[1] == ("good", "a.gz", 128_000)


def test_the_next_mirror_goes_on_with_what_the_first_one_sent(tmp_path, mirror, server):
    whole(download("mnist", tmp_path, mirrors=[mirror("gone"), mirror("cut"), mirror("good")]))
    assert [row for row in server.asked if row[1] == "a.gz"] == [
        ("gone", "a.gz", 0),
        ("cut", "a.gz", 0),
        ("good", "a.gz", 128_000),
    ]


def test_wrong_bytes_never_become_the_file(tmp_path, mirror):
    with pytest.raises(BadInput, match=r"md5 \w{8}… instead of \w{8}…"):
        download("mnist", tmp_path, mirrors=[mirror("wrong")])
    assert not list((tmp_path / "mnist").iterdir())
    whole(download("mnist", tmp_path, mirrors=[mirror("wrong"), mirror("good")]))


@pytest.mark.parametrize("left", [b"stale bytes", FILES["a.gz"], FILES["a.gz"] + b"too long"])
def test_what_an_earlier_transfer_left_may_be_useless(tmp_path, mirror, left):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/a.gz.part").write_bytes(left)
    whole(download("mnist", tmp_path, mirrors=[mirror("good")]))


def test_a_server_without_ranges_begins_again(tmp_path, mirror):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/a.gz.part").write_bytes(FILES["a.gz"][:1000])
    whole(download("mnist", tmp_path, mirrors=[mirror("rangeless")]))


def test_a_damaged_file_is_fetched_again(tmp_path, mirror):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/a.gz").write_bytes(b"damaged")
    whole(download("mnist", tmp_path, mirrors=[mirror("good")]))


def test_without_a_network_one_sentence_says_so(tmp_path, mirror):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(BadInput, match=r"no connection .*; check the network and try again, or put the file into"):
        download("mnist", tmp_path, mirrors=[dead])


@pytest.mark.parametrize("kind", ["endless", "huge"])
def test_a_server_that_sends_too_much_is_left(kind, tmp_path, mirror, server, monkeypatch):
    sums = module.SOURCES["mnist"].files
    monkeypatch.setitem(module.SOURCES, "mnist", module.Source(mirrors=(), files=sums, largest=1 << 20))
    with pytest.raises(BadInput, match=r"a\.gz can't be fetched .*more than the 1,048,576 bytes that such a file may"):
        download("mnist", tmp_path, mirrors=[mirror(kind)])
    assert list((tmp_path / "mnist").iterdir()) == []
    assert server.sent < 16 << 20  # what waits in buffers is on top
    whole(download("mnist", tmp_path, mirrors=[mirror(kind), mirror("good")]))


def test_the_command(tmp_path, mirror, monkeypatch):
    sums = module.SOURCES["mnist"].files
    monkeypatch.setitem(module.SOURCES, "mnist", module.Source(mirrors=(mirror("good"),), files=sums))
    result = CliRunner().invoke(app, ["data", "download", "mnist", "--data-root", str(tmp_path)])
    assert result.exit_code == 0, result.output
    whole(tmp_path / "mnist")
    result = CliRunner().invoke(app, ["data", "download", "cifar", "--data-root", str(tmp_path)])
    assert result.exit_code == 2
    assert "nothing to download for 'cifar'; use mnist" in result.stderr


def test_load_tells_of_the_command(tmp_path):
    with pytest.raises(BadInput, match="does not exist; run `bise data download mnist`, or put the original"):
        load("biased-mnist", split="test", root=tmp_path)


def test_the_folder_may_be_in_the_way(tmp_path):
    (tmp_path / "mnist").write_text("a file")
    with pytest.raises(BadInput, match="can't be a folder"):
        download("mnist", tmp_path)


@pytest.mark.data
def test_the_checksums_are_those_of_the_original_files(data_root):
    for name, md5 in module.SOURCES["mnist"].files.items():
        assert hashlib.md5((data_root / "mnist" / name).read_bytes()).hexdigest() == md5
