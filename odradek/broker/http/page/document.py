"""Renders the page as one file, HTML with its style, script and first view, so that the browser can show the page after
a single request.

The script is written as modules, which browsers would fetch one by one. This module turns each script module into a
function that is called once, after the modules that it imports: `const $text = (() => { ...; return { whole, size };
})();`. Only two forms are supported: `import { a, b } from "./c.js"` and `export const`.
`tests/unit/broker/http/test_document.py` checks that the script modules use no other form. Libraries in `assets/vendor`
are stored exactly as published, with `export{a as b}` at their end.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.http.page.served import View

ASSETS = Path(__file__).parent / "assets"
ENTRY = "page.js"
VENDOR = "vendor"
IMPORT = re.compile(r'^import (?P<names>\{[^}]*\}) from "(?P<path>[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export const (?P<names>\w+|\{[^}]*\})", re.MULTILINE)


def document(first: View, token: str | None) -> str:
    """Renders the page.

    first  the view to show until the browser has loaded another view
    token  the token for actions; None if actions are off
    """
    given = json.dumps({"token": token, "first": first})
    return template().replace("/*GIVEN*/", given.replace("<", "\\u003c"))  # "<" could end the script or open a comment


@cache
def template() -> str:
    page, style = ((ASSETS / name).read_text(encoding="utf-8") for name in ("index.html", "style.css"))
    return page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script(ASSETS))


def script(folder: Path) -> str:
    parts: dict[Path, str] = {}
    add_module(folder / ENTRY, parts)
    return "\n".join(['"use strict";', *parts.values()])


def add_module(path: Path, parts: dict[Path, str]) -> None:
    """Adds the module at `path` to `parts`, after the modules that it imports."""
    text = path.read_text(encoding="utf-8")
    if path.parent.name == VENDOR:
        code, _, exported = text.rpartition("export{")
        pairs = [each.split(" as ") for each in exported.partition("}")[0].split(",")]
        names = ", ".join(f"{outside}: {inside}" for inside, outside in pairs)
        parts[path] = f"const {variable(path.name)} = (() => {{\n{code}return {{ {names} }};\n}})();"
        return
    for each in IMPORT.finditer(text):
        imported = (path.parent / each["path"]).resolve()
        if imported not in parts:
            add_module(imported, parts)
    names = ", ".join(each["names"].strip("{ }") for each in EXPORT.finditer(text))
    body = IMPORT.sub(lambda each: f"const {each['names']} = {variable(each['path'])};", text)
    body = body.replace("export const", "const")
    parts[path] = f"const {variable(path.name)} = (() => {{\n{body}return {{ {names} }};\n}})();"


def variable(path: str) -> str:
    return f"${Path(path).stem.partition('.')[0]}"
