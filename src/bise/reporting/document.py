"""What all pages of ours have in common: one file, in our style, that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from bise.base.markup import Html, tag
from bise.base.version import VERSION
from bise.reporting.colours import theme_css

ENDING = ": bise report"
"""Of the title of every page of ours; it stands among its first bytes."""


def document(title: str, header: Html, main: Html, *, script: str = "") -> str:
    """A whole page: nothing in it comes from elsewhere, and only its own script may run."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if script:
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    style = theme_css() + (files("bise.reporting") / "style.css").read_text(encoding="utf-8")
    return "<!DOCTYPE html>\n" + tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("title", f"{title}{ENDING}"),
            Html(f"<style>{style}</style>"),
        ),
        tag(
            "body",
            header,
            main,
            tag("footer", f"Written by bise {VERSION}. This page is one file and needs no network."),
            Html(f"<script>{script}</script>") if script else None,
        ),
        lang="en",
    )
