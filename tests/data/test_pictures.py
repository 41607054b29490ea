"""Picture files of every kind: read right, or named with the reason."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bise import BadInput, BiseWarning
from bise.data import Labelled, PictureFiles, Transform, table
from bise.data.core.identity import data_sha256
from bise.data.core.pictures import check_pictures, read_picture
from bise.engine.inputs import Inputs

COLOUR = np.zeros((4, 6, 3), np.uint8)
COLOUR[:, :3] = (200, 30, 10)
COLOUR[:, 3:] = (10, 60, 220)
GREY = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10


def bomb(side):
    """A small PNG whose header claims side × side pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.fixture
def folder(tmp_path):
    """Good files of many kinds, and six that can't be read."""
    colour = Image.fromarray(COLOUR)
    colour.save(tmp_path / "rgb.png")
    Image.fromarray(GREY).save(tmp_path / "grey.png")
    colour.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "palette.png")
    colour.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "clear.png", transparency=b"\x00\x80")
    Image.merge("RGBA", (*colour.split(), Image.new("L", colour.size, 0))).save(tmp_path / "rgba.png")
    colour.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100, subsampling=0)
    Image.fromarray(GREY.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    Image.fromarray(GREY.astype(np.int32) * 257).save(tmp_path / "deep.tif")
    Image.fromarray(GREY > 100).save(tmp_path / "bits.png")
    frames = [Image.fromarray(np.full((4, 6), v, np.uint8)) for v in (10, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    colour.save(tmp_path / "turned.png", exif=exif)
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(whole, "JPEG")
    (tmp_path / "truncated.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "broken.png").write_bytes((tmp_path / "rgb.png").read_bytes()[:40] + b"\xff" * 40)
    (tmp_path / "bomb.png").write_bytes(bomb(60_000))
    (tmp_path / "large.png").write_bytes(bomb(12_000))
    Image.fromarray(GREY.astype(np.float32)).save(tmp_path / "float.tif")
    return tmp_path


BROKEN = {
    "truncated.jpg": "truncated",
    "empty.jpg": "it is empty",
    "text.png": "no picture of a known format",
    "broken.png": ".",
    "bomb.png": "claims more than",
    "large.png": "more than",
    "float.tif": "floating-point pixels have no known range",
    "nowhere.png": "does not exist",
}


@pytest.mark.parametrize("name", ["rgb.png", "palette.png", "clear.png", "rgba.png"])
def test_colours_are_kept_whatever_the_mode(folder, name):
    picture = read_picture(folder / name, size=(4, 6))
    assert picture.dtype == torch.uint8
    assert np.abs(picture.permute(1, 2, 0).numpy().astype(int) - COLOUR).max() <= 2


def test_cmyk_by_its_own_arithmetic(folder):
    # Pillow's CMYK of a colour without black is its complement, so that the way back gives the colour
    picture = read_picture(folder / "cmyk.jpg", size=(4, 6)).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(picture - COLOUR).max() <= 30  # JPEG mixes neighbouring columns


@pytest.mark.parametrize("name", ["grey.png", "deep.png", "deep.tif"])
def test_sixteen_bits_are_scaled_to_eight(folder, name):
    assert torch.equal(read_picture(folder / name, size=(4, 6), channels=1)[0], torch.from_numpy(GREY))
    colour = read_picture(folder / name, size=(4, 6))
    assert torch.equal(colour[0], colour[2])


def test_bits_are_black_and_white(folder):
    assert set(read_picture(folder / "bits.png", size=(4, 6), channels=1).flatten().tolist()) == {0, 255}


def test_an_animation_gives_its_first_frame_and_says_so(folder):
    with pytest.warns(BiseWarning, match="moving.gif is animated; its first frame"):
        picture = read_picture(folder / "moving.gif", size=(4, 6))
    assert picture.unique().tolist() == [10]


def test_orientation_of_the_camera_is_followed(folder):
    turned = read_picture(folder / "turned.png", size=(4, 6)).permute(1, 2, 0).numpy()
    assert np.array_equal(turned, COLOUR[::-1, ::-1])


def test_resizing_takes_height_then_width(folder):
    assert read_picture(folder / "rgb.png", size=(3, 9)).shape == (3, 3, 9)
    with pytest.raises(BadInput, match=r"size=\(0, 4\) is no size"):
        PictureFiles([], size=(0, 4))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_the_reason(folder, name):
    with pytest.raises(BadInput, match=rf"{name} can't be read as a picture \(.*{BROKEN[name]}.*\); replace it or"):
        read_picture(folder / name, size=(4, 6))


def test_the_limit_holds_where_pillows_own_was_lifted(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(BadInput, match="60000 × 60000 pixels are more than 89,478,485; scale it down"):
        read_picture(folder / "bomb.png", size=(4, 6))


def test_a_folder_is_no_picture(folder):
    with pytest.raises(BadInput, match="it is a folder"):
        read_picture(folder, size=(4, 6))


def test_checking_finds_all_broken_ones_and_no_other(folder):
    paths = [*sorted(folder.iterdir()), folder / "nowhere.png"]
    told = []
    with pytest.warns(BiseWarning, match="1 of 19 pictures are animated"):
        found = check_pictures(paths, progress=lambda *row: told.append(row))
    assert {path.rsplit("/", 1)[1] for path in found} == set(BROKEN)
    assert found[str(folder / "empty.jpg")] == "it is empty"
    assert told[-1] == ("opening pictures", 19, 19)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_stream_as_bytes_and_the_transform_is_done_in_batches(folder, workers):
    names = ["rgb.png", "grey.png", "rgba.png"]
    files = PictureFiles(names, size=(4, 6), root=folder)
    data = Labelled(files, y=[0, 1, 1], b=[0, 0, 1], transform=Transform(mean=(0.5,), std=(0.5,)))
    x, _ = next(Inputs(data, torch.device("cpu"), workers=workers).batches(torch.arange(3), 3))
    assert x.dtype == torch.float32
    assert torch.allclose(x[0], files[0].float() / 127.5 - 1, atol=1e-6)
    assert torch.equal(data[0][0], x[0])


def test_a_broken_file_in_a_worker_is_still_named(folder):
    data = Labelled(PictureFiles(["rgb.png", "empty.jpg"], size=4, root=folder), y=[0, 1], b=[0, 1])
    with pytest.raises(BadInput, match=r"^[^\n]*empty.jpg can't be read as a picture [^\n]*$"):
        next(Inputs(data, torch.device("cpu"), workers=1).batches(torch.arange(2), 1))


def test_without_pillow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadInput, match=r"Pillow is not installed; .*bise\[data\]"):
        read_picture(folder / "rgb.png", size=(4, 6))


def test_names_that_cant_be_printed_or_opened(tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.png")
    Path(odd).write_bytes(b"no picture")
    long = str(tmp_path / ("x" * 5000 + ".png"))
    found = check_pictures([odd, long])
    assert len(found) == 2
    for name in found:
        print(name)  # no surrogate that can't be encoded
        assert name.isprintable()
    with pytest.raises(BadInput, match=r"\\udcff\\n.png' can't be read as a picture"):
        read_picture(odd)
    assert "too long" in found[long]
    with pytest.raises(BadInput, match="more than 89,478,485 pixels"):
        PictureFiles([odd], size=100_000)


def test_a_picture_of_another_ratio_is_squashed_cropped_or_padded(tmp_path):
    """4 × 8 pixels, black, red, green and blue quarters from left to right, at a size of 4 × 4."""
    wide = np.zeros((4, 8, 3), np.uint8)
    for i in range(3):
        wide[:, 2 * i + 2 : 2 * i + 4, i] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")

    def at(fit, size=(4, 4)):
        return PictureFiles([tmp_path / "wide.png"], size=size, fit=fit)[0]

    whole = torch.from_numpy(wide).permute(2, 0, 1)
    assert torch.equal(at("crop"), whole[:, :, 2:6])
    assert torch.equal(
        at("squash"), torch.from_numpy(np.array(Image.fromarray(wide).resize((4, 4), 2))).permute(2, 0, 1)
    )
    padded = at("pad")
    half = torch.from_numpy(np.array(Image.fromarray(wide).resize((4, 2), 2))).permute(2, 0, 1)
    assert torch.equal(padded[:, 1:3], half)
    assert not padded[:, [0, 3]].any()
    for fit in ("squash", "crop", "pad"):  # nothing is to be done about a ratio that fits
        assert torch.equal(at(fit, (4, 8)), whole)
    with pytest.raises(BadInput, match="fit='stretch' is unknown"):
        at("stretch")


def test_squashing_is_said_by_who_reads_a_table(tmp_path):
    Image.fromarray(COLOUR).save(tmp_path / "wide.png")  # 6 × 4
    exif = Image.Exif()
    exif[0x0112] = 6  # on its side
    Image.fromarray(COLOUR).save(tmp_path / "turned.png", exif=exif)
    (tmp_path / "a.csv").write_text("f,y\nwide.png,0\nturned.png,1\n")
    how = {"target": "y", "image": "f"}
    with pytest.warns(
        BiseWarning, match=r"2 of 2 pictures .*wide.png is 6 × 4 pixels and becomes 8 × 8; give fit='crop'"
    ):
        table(tmp_path / "a.csv", **how, size=8)
    with pytest.warns(BiseWarning, match=r"1 of 2 pictures .*turned.png is 4 × 6 pixels and becomes 12 × 8"):
        table(tmp_path / "a.csv", **how, size=(8, 12))
    for fit in ("squash", "crop", "pad"):
        data = table(tmp_path / "a.csv", **how, size=8, fit=fit)
        assert data[0][0].shape == (3, 8, 8)
    hashes = {fit: data_sha256(table(tmp_path / "a.csv", **how, size=8, fit=fit)) for fit in ("squash", "crop", "pad")}
    assert len(set(hashes.values())) == 3
