"""Indents JSON without parsing its values.

Parsing could change the text: readers that only have doubles would change 9007199254740993, 10.00 would become 10, and
one of two members with the same name would be lost. On the page, `json_text.js` does the same;
`tests/unit/broker/http/test_json_text.py` tests both implementations with the same cases. Source: RFC 8259, sections 2
to 7.
"""

from __future__ import annotations

import re
from typing import Final

# The quantifiers are possessive so that text that does not match is rejected in one pass.
TOKEN: Final = re.compile(
    r'[ \t\n\r]*+(?:([{}\[\],:])|("[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")'
    r"|(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|true|false|null)(?![0-9a-zA-Z.+-]))"
)
STEP: Final = "  "
# More deeply nested elements are kept on one line, because their indentation could be far longer than the text itself.
DEEPEST: Final = 20
OPEN, CLOSED = "[{", "]}"
# The kinds of tokens that can come next: a value; a value or the end of an array; a name; a name or the end of an
# object; a colon; or a token that follows a value.
VALUE, FIRST_VALUE, NAME, FIRST_NAME, COLON, AFTER = range(6)


def indented(text: str) -> str | None:
    """Returns a JSON object or array with one line for each member or element, or None if the text is not a JSON object
    or array."""
    if not text.lstrip(" \t\n\r").startswith(("{", "[")):
        return None
    parts: list[str] = []
    inside: list[str] = []  # the open brackets
    expected = VALUE
    at = 0
    while inside or at == 0:
        found = TOKEN.match(text, at)
        if found is None:
            return None
        at = found.end()
        token = found[0].lstrip(" \t\n\r")
        depth = len(inside)
        if token == ",":
            if expected != AFTER:
                return None
            expected = NAME if inside[-1] == "{" else VALUE
            parts.append(f",\n{STEP * depth}" if depth <= DEEPEST else ",")
        elif token == ":":
            if expected != COLON:
                return None
            expected = VALUE
            parts.append(": ")
        elif token in CLOSED:
            is_first = expected in (FIRST_VALUE, FIRST_NAME)
            if not (is_first or expected == AFTER) or OPEN.index(inside.pop()) != CLOSED.index(token):
                return None
            expected = AFTER
            parts.append(token if is_first or depth > DEEPEST else f"\n{STEP * (depth - 1)}{token}")
        elif expected in (NAME, FIRST_NAME):
            if found[2] is None:
                return None
            parts.append(newline(depth) + token if expected == FIRST_NAME else token)
            expected = COLON
        elif expected in (VALUE, FIRST_VALUE):
            parts.append(newline(depth) + token if expected == FIRST_VALUE else token)
            expected = AFTER
            if token in OPEN:
                inside.append(token)
                expected = FIRST_NAME if token == "{" else FIRST_VALUE
        else:
            return None
    return "".join(parts) if not text[at:].strip(" \t\n\r") else None


def newline(depth: int) -> str:
    return f"\n{STEP * depth}" if depth <= DEEPEST else ""
