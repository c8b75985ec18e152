"""Entries as lines: for people, or one JSON object each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from odradek.protocol.decoded.messages import json_value
from odradek.tools.inspect.entries import Damage, Entry, Finding, Note

SHOWN_CHARACTERS = 200
TIMES = frozenset({"timestamp", "maxTimestamp", "deleteHorizonMs"})


def json_line(path: str, finding: Finding) -> str:
    """`at` is the byte. Keys and values of records are text where they are UTF-8, else {"base64": …}."""
    head: dict[str, Any] = {"file": path, "at": finding.position}
    match finding:
        case Entry():
            row = {**head, "kind": finding.kind, **finding.fields}
        case Damage():
            row = {**head, "kind": "damage", "reason": finding.reason}
        case Note():
            row = {**head, "kind": "note", "text": finding.text}
    return json.dumps(row, default=json_value)


def text_line(finding: Finding, *, is_full: bool = False) -> str:
    match finding:
        case Damage():
            return f"{finding.position:>10}  DAMAGED: {finding.reason}"
        case Note():
            return f"{finding.position:>10}  ({finding.text})"
    place = f"{finding.position:>10}" if finding.depth == 0 else " " * 10
    fields = {
        name: value for name, value in finding.fields.items() if finding.kind != "batch" or not _is_nothing(value)
    }
    words = [f"{name}={_shown(name, value, is_full)}" for name, value in fields.items()]
    return f"{place}  {'  ' * finding.depth}{finding.kind}  {' '.join(words)}"


def _is_nothing(value: object) -> bool:
    """What a batch need not say to people: no producer, no transaction."""
    return value is False or value == -1


def _shown(name: str, value: Any, is_full: bool) -> str:
    if name in TIMES and isinstance(value, int) and value >= 0:
        return f"{value}({_time(value)})"
    if isinstance(value, bytes):
        value = json_value(value)
        if isinstance(value, dict):
            return _cut(f"base64:{value['base64']}", is_full)
    if isinstance(value, str) and value and name not in ("key", "value") and value.isprintable() and " " not in value:
        return value
    return _cut(json.dumps(value, default=json_value, ensure_ascii=False), is_full)


def _cut(text: str, is_full: bool) -> str:
    if is_full or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters, --full shows them)"


def _time(ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "no date"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
