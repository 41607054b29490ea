"""HTML that is escaped by construction: every string is text, unless `tag` made it."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

VOID = {"br", "img", "input", "meta", "link", "line", "rect", "circle", "path", "polyline"}


class Html(str):
    """Markup that is whole already, and is not escaped again."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """<name attribute="…">children</name>; strings are escaped, None and False are left out.

    `cls` is class, and underscores are dashes: aria_label="…".
    """
    parts = [name]
    for key, value in attributes.items():
        key = {"cls": "class", "for_": "for"}.get(key, key.replace("_", "-"))
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f'{key}="{escape(_text(value))}"')
    head = "<" + " ".join(parts)
    if name in VOID and not children:
        return Html(head + "/>")
    return Html(f"{head}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children one after the other."""
    out = []
    for child in children:
        if isinstance(child, Html):
            out.append(str(child))
        elif isinstance(child, (list, tuple)):
            out.append(str(join(*child)))
        elif child is not None:
            out.append(escape(_text(child)))
    return Html("".join(out))


def embedded(value: Any) -> Html:
    """JSON that may stand inside a <script> element: nothing in it can end the element or a line of it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def foreign(text: str) -> Html:
    """Text from data, in an element of its own so that its direction of writing doesn't move what stands around it."""
    return tag("bdi", text)


def said(text: str) -> Html:
    """What a screen reader says where others see a colour, a pattern or a ring."""
    return tag("span", text, cls="said")


def _text(value: Any) -> str:
    """A value as text without characters that HTML can't hold: controls, and halves of surrogate pairs."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "�", text)
