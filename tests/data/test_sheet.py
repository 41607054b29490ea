"""Contact sheets: each cell's stored bytes in its place, for pictures of any size, streamed or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from bise import BadInput
from bise.cli.app import app
from bise.data import Labelled, LabelNames, PictureFiles
from bise.data.own.sheet import GAP, LABEL, contact_sheet

TOP = LABEL + 2


def opened(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.array(image.convert("RGB"))


def row(sheet, number, height):
    start = TOP + number * (height + GAP)
    return sheet[start : start + height]


def places(band, picture):
    """Where a picture stands in a row of the sheet."""
    width = picture.shape[1]
    return [x for x in range(band.shape[1] - width + 1) if np.array_equal(band[:, x : x + width], picture)]


def noise(count, channels, height, width):
    return torch.randint(0, 256, (count, channels, height, width), generator=torch.Generator().manual_seed(0)).byte()


def test_every_cell_shows_its_own_stored_bytes(tmp_path):
    x = noise(12, 3, 20, 18)
    y, b = torch.arange(12) % 2, torch.arange(12) // 2 % 3
    y[(y == 1) & (b == 2)] = 0  # an empty cell
    names = LabelNames(
        target="animal", biases=("place",), classes=("cat", "dog"), bias_classes=(("lawn", "a very long sofa", "sea"),)
    )
    contact_sheet(Labelled(TensorDataset(x), y=y, b=b, names=names), tmp_path / "sheet.png", per_group=2, scale=1)
    sheet = opened(tmp_path / "sheet.png")
    assert len(sheet) == TOP + 2 * (20 + GAP)
    columns = []
    for b_number in range(3):
        found = [int(i) for i in ((y == 0) & (b == b_number)).nonzero()]
        at = [places(row(sheet, 0, 20), x[i].permute(1, 2, 0).numpy()) for i in (found[0], found[-1])]
        assert at[1][0] - at[0][0] == 18
        columns.append(at[0][0])
    assert columns[2] - columns[1] == columns[1] - columns[0] > 2 * 18 + GAP  # as wide as the longest name
    assert (row(sheet, 1, 20)[:, columns[2] :] == 255).all()


def test_small_pictures_are_enlarged_and_grey_ones_stretched(tmp_path):
    x = torch.linspace(-1, 1, 40 * 64).view(40, 1, 8, 8)
    y, b = torch.arange(40) % 2, torch.stack([torch.arange(40) % 7, torch.arange(40) % 5], 1)
    contact_sheet(Labelled(TensorDataset(x), y=y, b=b), tmp_path / "groups.png")  # 35 pairs: alignment groups
    assert len(opened(tmp_path / "groups.png")) == TOP + 2 * (56 + GAP)
    contact_sheet(Labelled(TensorDataset(x), y=y), tmp_path / "plain.png", per_group=3, scale=2)
    sheet = opened(tmp_path / "plain.png")
    assert len(sheet) == TOP + 2 * (16 + GAP)
    assert {0, 255} <= set(sheet[TOP : TOP + 16].flatten().tolist())
    with pytest.raises(BadInput, match="no picture"):
        contact_sheet(Labelled(TensorDataset(x[:, 0, 0]), y=y), tmp_path / "no.png")
    with pytest.raises(BadInput, match="101 classes don't fit"):
        contact_sheet(Labelled(TensorDataset(x), y=y, classes=101), tmp_path / "no.png")


def test_rows_without_a_bias_label_have_a_column(tmp_path):
    x = noise(8, 3, 16, 16)
    b = torch.tensor([0, 1, 0, 1, -1, -1, 0, 1])
    contact_sheet(Labelled(TensorDataset(x), y=torch.arange(8) // 4, b=b), tmp_path / "s.png", per_group=1, scale=1)
    sheet = opened(tmp_path / "s.png")
    x = x.permute(0, 2, 3, 1).numpy()
    assert places(row(sheet, 1, 16), x[4])[0] > places(row(sheet, 1, 16), x[7])[0]
    assert (row(sheet, 0, 16)[:, -16:] == 255).all()


def run(*arguments):
    return CliRunner().invoke(app, ["data", "sheet", *map(str, arguments)])


def test_the_command_on_a_csv_file(tmp_path):
    lines = ["file,kind,place,part"]
    for i, pixels in enumerate(noise(8, 3, 30, 40)):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / f"{i}.png")
        lines.append(
            f"{i}.png,{'cat' if i % 2 else 'dog'},{'sofa' if i < 4 else 'lawn'},{'test' if i > 5 else 'train'}"
        )
    (tmp_path / "a.csv").write_text("\n".join(lines))
    own = [tmp_path / "a.csv", "--target", "kind", "--bias", "place", "--split-column", "part", "--image", "file"]
    out = tmp_path / "sheet.png"
    assert run(*own, "--out", out).exit_code == 0
    first = PictureFiles([tmp_path / "0.png"], size=96)[0].permute(1, 2, 0).numpy()
    assert places(row(opened(out), 1, 96), first)  # a dog on a sofa
    assert run(*own, "--out", out, "--split", "test", "--size", "30x40").exit_code == 0
    assert len(opened(out)) == TOP + 2 * (60 + GAP)
    assert "no split 'val'" in run(*own, "--out", out, "--split", "val").output
    assert run(*own, "--out", tmp_path / "sheet.jpg").exit_code == 2
    assert "contact sheets need pictures" in run(*own[:-2], "--out", out).output


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "how", "rows", "side"),
    [("biased-mnist", ["--rho", "0.9"], 10, 56), ("multi-color-mnist", ["--rho", "0.9,0.8"], 10, 56)],
)
def test_the_command_on_digits(tmp_path, name, how, rows, side, data_root):
    result = run(name, *how, "--out", tmp_path / "sheet.png", "--root", data_root, "--split", "test")
    assert result.exit_code == 0, result.output
    assert len(opened(tmp_path / "sheet.png")) == TOP + rows * (side + GAP)
