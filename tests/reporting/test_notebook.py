"""What a notebook and `print` show of an audit and of a subnetwork."""

from __future__ import annotations

from html.parser import HTMLParser

import torch

import bise
from conftest import toy, toy_model, trained


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_data(self, data):
        self.found.append(data)


def test_an_audit_as_a_table():
    found = bise.audit(trained(toy_model(), toy()), toy(rho=1 / 3, seed=2), probe=False)
    shown = Cells(found._repr_html_()).found
    assert f"{100 * found.unbiased:.1f} %" in shown
    assert found.groups.worst_group_name in shown
    assert f"{found.groups.worst_group_name}, by itself" in shown
    assert f"the lowest of {len(found.by_group)} is too low by chance" in str(found)


def test_a_subnetwork_as_a_table_and_as_text():
    model = toy_model()
    mask = torch.ones(16, dtype=torch.bool)
    mask[:4] = False
    sub = bise.subnetwork(model, {"2": mask}, example=torch.randn(3, 8))
    assert str(sub).splitlines() == [
        "Subnetwork of Sequential: 12 of 16 units open at 1 site",
        "  2  12 of 16",
        "  every weight is the model's own, unchanged",
    ]
    assert "75 %" in Cells(sub._repr_html_()).found
    assert "Linear" in repr(sub), "repr still shows every module"


def test_labels_as_a_table_and_as_text():
    """Counted by hand: y 0 0 0 1 1 1 1, b 0 0 1 1 1 1 –."""
    data = bise.data.Labelled(torch.zeros(7, 1), y=[0, 0, 0, 1, 1, 1, 1], b=[0, 0, 1, 1, 1, 1, -1])
    assert repr(data) == "Labelled(7 samples)"
    cells = bise.data.labels(data)
    assert str(cells).splitlines() == [
        "7 samples in 3 of 4 cells of y and b",
        "  b: ρ = 0.833, 1 conflicting",
        "  1 without a bias label",
    ]
    shown = Cells(cells._repr_html_()).found
    assert shown[shown.index("y \\ b") :] == ["y \\ b", "0", "1", "0", "2", "1", "1", "0", "3"]


def test_labels_of_two_biases_as_a_list():
    cells = bise.data.labels(bise.data.Labelled(torch.zeros(3, 1), y=[0, 1, 1], b=[(0, 1), (1, 0), (1, 0)]))
    shown = Cells(cells._repr_html_()).found
    assert shown[-4:] == ["y=1 b=(1, 0)", "2", "y=0 b=(0, 1)", "1"]


def test_a_shrink_report_as_a_table_and_as_text():
    mask = torch.ones(16, dtype=torch.bool)
    mask[:4] = False
    small = bise.subnetwork(toy_model(), {"4": mask}, example=torch.randn(3, 8)).shrink(torch.randn(4, 8))
    # 8·16 + 16, 2·16 of BatchNorm, 16·16 + 16, 16·3 + 3; then 12 rows and columns instead of 16 in the last two
    assert "parameters  499 → 419 (84 %)" in str(small.shrink_report)
    assert "419 (84 %)" in Cells(small.shrink_report._repr_html_()).found


def test_names_are_escaped():
    class Odd(torch.nn.Sequential):
        pass

    Odd.__name__ = "<script>x</script>"
    sub = bise.subnetwork(
        Odd(torch.nn.Linear(8, 4), torch.nn.ReLU()), {"1": torch.ones(4).bool()}, example=torch.randn(3, 8)
    )
    assert "<script>" not in sub._repr_html_()
