"""An option: a field of a configuration that brings its default, its range and its words for the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bise.base.checking import check_choice, check_number
from bise.base.errors import BadInput

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a field says of itself, beside its type and its default."""

    help: str | None = None
    """The option's line in the command's help, where {default} and {choices} stand for those of the field. A field
    without such a line is set in Python alone."""
    choices: tuple[str, ...] = ()
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    refusal: str | None = None
    """What the error says of a number out of range, where the usual words wouldn't say why."""
    fixed: bool = False
    """No preset and no recipe has another default, so that the help shows it and every run is given it."""
    unsaid: bool = False
    """The report's command leaves out a value that the preset has anyway; so it does for every yes or no."""
    by_recipe: bool = False
    """A recipe may set it in a preset, so that the report's command names it for every run of a recipe."""


def option(default: T, **rules: Any) -> T:
    """A field with its default and its `Rules`."""
    made: Any = field(default=default, metadata={"rules": Rules(**rules)})
    return made


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field as its class describes it."""

    name: str
    default: Any
    kind: Any
    """Of one value: bool, int, float or str; None where several kinds are allowed."""
    optional: bool
    """Whether None is a value too."""
    many: bool
    """Whether it takes several values, as a tuple."""
    rules: Rules

    @property
    def help(self) -> str:
        """The line for the command line."""
        default = f"{self.default:g}" if isinstance(self.default, (int, float)) else str(self.default)
        return (self.rules.help or "").replace("{default}", default).replace("{choices}", either(self.rules.choices))

    def check(self, value: Any) -> None:
        """Refuse what isn't of the field's kind, one of its choices or in its range."""
        if value is None and self.optional:
            return
        for one in value if self.many else (value,):
            self._check_one(one)

    def _check_one(self, value: Any) -> None:
        rules = self.rules
        if rules.choices:
            check_choice(self.name, value, rules.choices)
        if self.kind is int and (not isinstance(value, int) or not -(2**63) <= value < 2**63):
            raise BadInput(f"{self.name}={value!r} must be a whole number")
        if rules.above is None and rules.at_least is None and rules.below is None:
            return
        check_number(self.name, value)
        low = -math.inf if rules.above is None else rules.above
        least = -math.inf if rules.at_least is None else rules.at_least
        end = math.inf if rules.below is None else rules.below
        if not (low < value < end and least <= value):
            raise BadInput(f"{self.name}={value} {rules.refusal or _refusal(rules)}")


def _refusal(rules: Rules) -> str:
    """Which numbers a range allows."""
    if rules.below is not None:
        low = f"above {rules.above} and" if rules.at_least is None else f"from {rules.at_least} to"
        return f"is out of range; give a value {low} below {rules.below}"
    if rules.at_least is not None:
        return f"must be a number, {rules.at_least} or more"
    return f"must be a number greater than {rules.above}"


@cache
def options_of(config: type) -> dict[str, Option]:
    """The fields of a configuration by their names."""
    hints = get_type_hints(config)
    return {
        one.name: _option(one.name, one.default, hints[one.name], one.metadata.get("rules", Rules()))
        for one in fields(config)
    }


def _option(name: str, default: Any, hint: Any, rules: Rules) -> Option:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    real = [kind for kind in kinds if kind is not NoneType]
    many = len(real) == 1 and get_origin(real[0]) is tuple
    kind = None if len(real) > 1 else get_args(real[0])[0] if many else real[0]
    return Option(name=name, default=default, kind=kind, optional=NoneType in kinds, many=many, rules=rules)


def commanded(config: type) -> dict[str, Option]:
    """Those that a command offers."""
    return {name: one for name, one in options_of(config).items() if one.rules.help is not None}


def check_options(config: Any) -> None:
    """Refuse a configuration with a value that its field doesn't allow."""
    kind: type = config.__class__
    for name, one in options_of(kind).items():
        one.check(getattr(config, name))


def said(usual: Any, values: Mapping[str, Any], *, of_recipe: bool = False) -> dict[str, Any]:
    """Of a configuration's `values`, those that a command line names so as to give the same.

    `usual` is the configuration that the command has without them, but for what a recipe changes.
    """
    out = {}
    for name, one in commanded(type(usual)).items():
        value = values.get(name)
        known = one.kind is bool or one.rules.unsaid
        as_usual = known and value == getattr(usual, name) and not (of_recipe and one.rules.by_recipe)
        if value is not None and not as_usual:
            out[name] = value
    return out


def either(words: Sequence[str]) -> str:
    """Words as "one, two or three"."""
    return " or ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
