"""The reference: each public function tells of its arguments, what comes back, what is refused, and has an example.

tests/test_docs.py runs the examples.
"""

from __future__ import annotations

import inspect
import re
import types

import pytest

import bise
import bise.data

FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (bise, bise.data)
    for name in module.__all__
    if isinstance(getattr(module, name), types.FunctionType)
}


def section(text, name):
    """The lines below `name:` in a docstring, without their indentation."""
    found = re.search(rf"^{name}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    return inspect.cleandoc(found[1]) if found else ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_returns_and_refusals(name):
    text = inspect.getdoc(FUNCTIONS[name])
    parameters = [
        ("**" if p.kind is p.VAR_KEYWORD else "") + p.name
        for p in inspect.signature(FUNCTIONS[name]).parameters.values()
    ]
    assert re.findall(r"^([*\w]+): \S", section(text, "Args"), re.MULTILINE) == parameters
    assert section(text, "Returns")
    assert section(text, "Example").startswith(">>> ")
    assert section(text, "Raises").startswith("BadInput: ") or not parameters
