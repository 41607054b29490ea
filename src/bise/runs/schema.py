"""The form of a run's files: what an earlier version wrote is read in today's form, which all other code knows alone.

A file that is read stays as it is on disk; what is written is of today's schema.

Schema 2 names what bise makes by keys (`recipe:celeba`), whose arguments stand beside them, where schema 1 named
functions by their modules. And each option of an extraction is there, with what it was before it could be chosen, as
are those of schema 3, the budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bise.base.files import SCHEMA, read_json

Content = dict[str, Any]


def read(path: Path) -> Content:
    """A JSON file of a run in today's form, refused where it is missing, broken or of a newer schema."""
    content = read_json(path)
    for version in range(content["schema"], SCHEMA):
        content = MIGRATIONS[version].get(path.name, _as_it_was)(content) | {"schema": version + 1}
    return content


def read_bare(path: Path) -> Content:
    """The same without the schema's version: what was handed over to be written."""
    return {key: value for key, value in read(path).items() if key != "schema"}


def _as_it_was(content: Content) -> Content:
    return content


DEMO_OF_1 = {f"{module}:{name}" for module in ("bise.demo", "bise.jobs.demo") for name in ("digit_net", "splits")}
RECIPE_OF_1 = {
    f"{module}:{name}" for module in ("bise.recipes", "bise.jobs.recipes") for name in ("architecture", "splits")
}
"""The functions that schema 1 names, wherever they lay then; a recipe's name is among the arguments."""
EXTRACTION_OF_1: Content = {
    "rho": None,
    "mi_over_biases": "mean",
    "gates_at": "activations",
    "norms": "plain",
    "also": [],
    "ties": "earlier",
}
"""The options of an extraction that some of schema 1 don't have, and what was done then."""
EXTRACTION_OF_2: Content = {"max_macs": None, "max_parameters": None, "max_latency": None}
"""Likewise of schema 2."""


def _configuration_of_1(content: Content) -> Content:
    content = _with_options(content, EXTRACTION_OF_1)
    if isinstance(content.get("source"), dict):
        content["source"] = _source_of_1(content["source"])
    if isinstance(content.get("recipe"), dict):
        content["recipe"] = {"search": "train"} | content["recipe"]
    return content


def _configuration_of_2(content: Content) -> Content:
    return _with_options(content, EXTRACTION_OF_2)


def _with_options(content: Content, options: Content) -> Content:
    """A configuration whose extraction, and whose recipe's, has all of these options."""
    content = dict(content)
    if isinstance(content.get("extract"), dict):
        content["extract"] = options | content["extract"]
    recipe = content.get("recipe")
    if isinstance(recipe, dict) and isinstance(recipe.get("extract"), dict):
        content["recipe"] = recipe | {"extract": options | recipe["extract"]}
    return content


def _source_of_1(source: Content) -> Content:
    """Model and data by their keys; what isn't as bise wrote it stays, for others to refuse."""
    source = dict(source)
    for what in ("model", "data"):
        name, arguments = source.get(what), source.get(f"{what}_arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            continue
        if name in DEMO_OF_1:
            source |= {what: "demo:digits", f"{what}_arguments": arguments}
        elif name in RECIPE_OF_1 and isinstance(arguments.get("recipe"), str):
            rest = {one: value for one, value in arguments.items() if one != "recipe"}
            source |= {what: f"recipe:{arguments['recipe']}", f"{what}_arguments": rest}
    return source


def _subnetwork_of(options: Content) -> Callable[[Content], Content]:
    """What an extraction noted that it was given, with these options; a finetuning has no γ."""

    def migrated(content: Content) -> Content:
        record = content.get("record")
        if isinstance(record, dict) and isinstance(record.get("config"), dict) and "gamma" in record["config"]:
            return content | {"record": record | {"config": options | record["config"]}}
        return content

    return migrated


MIGRATIONS: dict[int, dict[str, Callable[[Content], Content]]] = {
    1: {"config.json": _configuration_of_1, "subnetwork.json": _subnetwork_of(EXTRACTION_OF_1)},
    2: {"config.json": _configuration_of_2, "subnetwork.json": _subnetwork_of(EXTRACTION_OF_2)},
}
"""{schema: {file: what makes the next schema's form of it}}; a file that isn't listed has the same form in both."""
