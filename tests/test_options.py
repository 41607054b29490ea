"""Options: what a field says of itself holds in Python, on the command line and in the report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bise import ExtractConfig, TrainConfig
from bise.base.errors import BadInput
from bise.base.options import check_options, commanded, either, option, said
from bise.cli.flags import flagged
from bise.cli.settings import sets
from bise.methods.refit.config import RefitConfig


@dataclass(frozen=True, kw_only=True)
class Made:
    """A configuration with a field of every kind."""

    width: int = option(3, help="Width; usually {default}.", at_least=2)
    rate: float | None = option(None, help="Rate.", above=0, below=1)
    share: float = option(0.5, at_least=0, below=1, refusal="is no share")
    how: str = option("even", help="{choices}.", choices=("even", "odd", "all"), unsaid=True)
    some: tuple[float, ...] = option((1.0,), help="Several.", above=0)
    flag: bool = option(False, help="A flag.", fixed=True)
    either_way: bool = option(True, help="Yes or no.", by_recipe=True)
    seed: int = option(0, help="Seed.", fixed=True)
    silent: int | None = None

    def __post_init__(self) -> None:
        check_options(self)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"width": 2.0}, "width=2.0 must be a whole number"),
        ({"width": None}, "width=None must be a whole number"),
        ({"width": 1}, "width=1 must be a number, 2 or more"),
        ({"rate": 0}, "rate=0 is out of range; give a value above 0 and below 1"),
        ({"rate": 1.0}, "rate=1.0 is out of range; give a value above 0 and below 1"),
        ({"rate": "0.5"}, "rate='0.5' must be a number"),
        ({"share": -0.1}, "share=-0.1 is no share"),
        ({"share": math.nan}, "share=nan is no share"),
        ({"how": "both"}, "how='both' is unknown; use 'even' or 'odd' or 'all'"),
        ({"how": None}, "how=None is unknown; use 'even' or 'odd' or 'all'"),
        ({"some": (1.0, 0.0)}, "some=0.0 must be a number greater than 0"),
        ({"some": (math.inf,)}, "some=inf must be a number greater than 0"),
        ({"silent": 2**63}, "silent=9223372036854775808 must be a whole number"),
    ],
)
def test_what_a_field_does_not_allow_is_refused(change, sentence):
    with pytest.raises(BadInput) as caught:
        Made(**change)
    assert str(caught.value) == sentence


def test_what_a_field_allows():
    made = Made(width=2, rate=0.999, share=0, how="odd", some=(0.1, 7), silent=None)
    assert (made.width, made.rate, made.share, made.how, made.some, made.silent) == (2, 0.999, 0, "odd", (0.1, 7), None)
    assert Made(rate=None) == Made()


app = typer.Typer()
given: list[dict[str, Any]] = []


@app.command()
@sets(Made)
def act(place: str, settings: dict[str, Any], *, loud: bool = False) -> None:
    given.append(settings | {"place": place, "loud": loud})


def settings_of(*arguments):
    given.clear()
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return given.pop()


def test_a_command_is_given_what_was_set_and_what_holds_in_every_preset():
    assert settings_of("x") == {"place": "x", "loud": False, "flag": False, "seed": 0}
    words = ["x", "--loud", "--width", "4", "--rate", "0.25", "--how", "odd", "--some", "0.5", "--some", "2"]
    words += ["--flag", "--no-either-way", "--seed", "7"]
    assert settings_of(*words) == {
        "place": "x", "loud": True, "width": 4, "rate": 0.25, "how": "odd", "some": (0.5, 2.0), "flag": True,
        "either_way": False, "seed": 7,
    }  # fmt: skip


def test_a_command_has_no_other_options():
    help_ = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert "Width; usually 3." in help_
    assert "even, odd or all." in help_
    assert "--no-either-way" in help_
    assert "--no-flag" not in help_
    for name in ("share", "silent"):
        assert f"--{name}" not in help_
        assert CliRunner().invoke(app, ["x", f"--{name}", "1"]).exit_code == 2


def test_what_a_report_says_gives_the_same_again():
    values = {"width": 3, "rate": None, "share": 0.9, "how": "even", "some": [1.0], "flag": False, "either_way": True}
    assert said(Made(), values) == {"width": 3, "some": [1.0]}
    assert said(Made(), values, of_recipe=True) == {"width": 3, "some": [1.0], "either_way": True}
    assert said(Made(how="odd", either_way=False), values) == {
        "width": 3,
        "how": "even",
        "some": [1.0],
        "either_way": True,
    }


@pytest.mark.parametrize("config", [ExtractConfig, TrainConfig, RefitConfig])
def test_every_option_of_a_command_has_its_line(config):
    for one in commanded(config).values():
        assert one.help[-1] == "."
        assert not {"{", "}"} & set(one.help)
        one.check(one.default)


def test_words():
    assert [either(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("name it with bias=…, its csv with bias_csv=…", "name it with --bias, its csv with --bias-csv"),
        ("keep_worse=True takes it; baseline=False selects", "--keep-worse takes it; --no-baseline selects"),
        ("wrap it in Labelled(dataset, y=…, b=…)", "wrap it in Labelled(dataset, y=…, b=…)"),
        ("gamma=-1.0 must be a number; on='test' is unknown", "gamma=-1.0 must be a number; on='test' is unknown"),
        ("what these rows are for with like=…", "what these rows are for with RUN, as in bise audit RUN --data"),
        ("go on with resume=True, or out=…", "go on with --resume, or --out"),
        ("resume=Truely", "resume=Truely"),
        ("give fit='crop' or fit='pad'", "give --fit crop or --fit pad"),
    ],
)
def test_arguments_are_called_by_their_flags(sentence, expected):
    assert flagged(sentence) == expected
