"""The site: README and the pages of docs/ as they are, and a reference from the docstrings.

Its source is the checkout itself, so that the links between pages are the same here as on a code host. Its table of
contents is README's table of documentation, and then whatever page that table doesn't name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bise
import bise.data

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

project = "BISE"
author = "The BISE developers"
project_copyright = author
version = release = bise.__version__

root_doc = "README"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "results/README.md", "docs/*.md", "docs/notebooks/*.ipynb", "docs/site/reference.rst"]
exclude_patterns = [".*", "**/.*"]
templates_path = ["templates"]

default_role = "code"  # `name` in a docstring, as in Markdown
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False

html_theme = "furo"
html_title = f"BISE {version}"
html_additional_pages = {"index": "index.html"}
html_static_path = ["static"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sourcelink = False


def rows(readme: str) -> Iterator[tuple[str, list[str]]]:
    """(caption, pages) of each row of README's table of documentation, a page by its name without an ending."""
    for caption, cell in re.findall(r"^\| ([a-z ]+) \| (\[.*) \|$", readme, re.MULTILINE):
        yield caption, re.findall(r"\]\(([^)#]+)\.md\)", cell)


def contents(readme: str) -> list[tuple[str, list[str]]]:
    """The table of contents: README's rows, the notebooks, the reference, and every page that no row names."""
    notebooks = sorted(f"docs/notebooks/{path.stem}" for path in (ROOT / "docs/notebooks").glob("*.ipynb"))
    parts = [*rows(readme), ("notebooks", notebooks), ("reference", ["docs/site/reference"])]
    told = {page for _, pages in parts for page in pages}
    found = {str(path.relative_to(ROOT).with_suffix("")) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
    parts.append(("more", sorted({*found, "results/README"} - told - {root_doc})))
    return [(caption, pages) for caption, pages in parts if pages]


def as_read(app: Sphinx, page: str, source: list[str]) -> None:
    """Hang the contents below README, and each public name below its module in the reference."""
    if page == root_doc:
        for caption, pages in contents(source[0]):
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption.capitalize()}\n\n{listed}\n```\n"
    elif page == "docs/site/reference":
        for module in (bise, bise.data):
            source[0] = source[0].replace(f"ALL OF {module.__name__}\n", names_of(module))


def names_of(module: Any) -> str:
    """A directive for each public name: functions first, then classes."""
    functions, classes = [], []
    for name in module.__all__:
        found = getattr(module, name)
        dotted = f"{module.__name__}.{name}"
        if isinstance(found, type):
            fields = "   :undoc-members:\n" if hasattr(found, "__dataclass_fields__") else ""
            classes.append(f".. autoclass:: {dotted}\n   :members:\n{fields}")
        elif callable(found):
            functions.append(f".. autofunction:: {dotted}\n")
    return "\n".join([*functions, *classes])


def setup(app: Sphinx) -> None:
    app.connect("source-read", as_read)
