"""A command's options that set fields of a configuration: made from these fields, so that they are said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from bise.base.options import Option, commanded
from bise.cli.completing import one_of

Command = Callable[..., Any]


def sets(config: type) -> Callable[[Command], Command]:
    """Give a command the options of a configuration; it receives those that have a value as one dict, `settings`.

    An option that isn't given has none, unless its default holds in every preset.
    """
    options = commanded(config)

    def decorate(command: Command) -> Command:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            made = [_parameter(one) for one in options.values()] if parameter.name == "settings" else [parameter]
            parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in made]

        @wraps(command)
        def wrapper(**arguments: Any) -> Any:
            given = {name: _value(one, arguments.pop(name)) for name, one in options.items()}
            return command(**arguments, settings={name: value for name, value in given.items() if value is not None})

        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return wrapper

    return decorate


def _parameter(one: Option) -> inspect.Parameter:
    """The option of a field as typer reads it."""
    kind = list[one.kind] if one.many else one.kind  # type: ignore[name-defined]
    completed: dict[str, Any] = {"autocompletion": one_of(one.rules.choices)} if one.rules.choices else {}
    flags = [f"--{one.name.replace('_', '-')}"] if one.kind is bool and one.rules.fixed else []
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=one.default if one.rules.fixed else None,
        annotation=Annotated[
            kind if one.rules.fixed else kind | None, typer.Option(*flags, help=one.help, **completed)
        ],
    )


def _value(one: Option, value: Any) -> Any:
    """As the configuration takes it; None where the option wasn't given."""
    return (tuple(value) or None) if one.many and value is not None else value
