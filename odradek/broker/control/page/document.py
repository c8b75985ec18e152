"""The page as one file: what a browser needs for the first paint comes with one request."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.control.page.json_value import View

ASSETS = Path(__file__).parent / "assets"


def document(first: View, token: str | None) -> str:
    """first: the view that is shown until the browser has asked for more. token: see `acting`."""
    return template().replace("/*TOKEN*/null", json.dumps(token)).replace("/*FIRST*/null", in_script(first))


def in_script(value: View) -> str:
    """In a script element "</" would end it, wherever it stands."""
    return json.dumps(value).replace("</", "<\\/")


@cache
def template() -> str:
    page, style, script = (
        (ASSETS / name).read_text(encoding="utf-8") for name in ("index.html", "style.css", "page.js")
    )
    return page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
