"""Checkpoints and properties: already text, but checked, split, and with the meaning of the columns.

Layouts: docs/formats/checkpoints.md and data-directory.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from odradek.tools.inspect.entries import Damage, Entry, Finding, Note

CHECKPOINT_VERSION = "0"
OFFSETS = ("topic", "partition", "offset")
LEADER_EPOCHS = ("epoch", "startOffset")
NUMBERS = frozenset({"partition", "offset", "epoch", "startOffset"})


def read_offset_checkpoint(data: bytes, _: int) -> Iterator[Finding]:
    return _checkpoint(data, OFFSETS)


def read_leader_epoch_checkpoint(data: bytes, _: int) -> Iterator[Finding]:
    return _checkpoint(data, LEADER_EPOCHS)


def _checkpoint(data: bytes, columns: Sequence[str]) -> Iterator[Finding]:
    """Version, count, then so many rows."""
    if not data:
        yield Note(0, "empty, which stands for no entries")
        return
    lines = list(_lines(data))
    if lines[0][1] != CHECKPOINT_VERSION:
        yield Damage(0, f"a checkpoint of version {lines[0][1]!r}; 0 is known")
        return
    if len(lines) < 2 or not lines[1][1].isdigit():
        yield Damage(len(lines[0][1]) + 1, "the number of entries is missing")
        return
    rows = lines[2:]
    for position, line in rows:
        values = line.split(" ")
        fields = dict(zip(columns, values, strict=False))
        if len(values) != len(columns) or not all(_is_number(fields[name]) for name in NUMBERS & fields.keys()):
            yield Damage(position, f"{line!r} is not {', '.join(columns)}")
            continue
        row = {name: int(value) if name in NUMBERS else value for name, value in fields.items()}
        yield Entry("leader epoch" if columns is LEADER_EPOCHS else "checkpoint", position, row)
    if int(lines[1][1]) != len(rows):
        yield Damage(lines[1][0], f"{lines[1][1]} entries are announced; there are {len(rows)}")


def read_properties(data: bytes, _: int) -> Iterator[Finding]:
    """meta.properties: as Java writes it."""
    yield from _pairs(data, "=", comments=("#", "!"))


def read_partition_metadata(data: bytes, _: int) -> Iterator[Finding]:
    if not data:
        yield Damage(0, "empty: the id of the topic is missing")
        return
    yield from _pairs(data, ": ", comments=())


def read_json(data: bytes, _: int) -> Iterator[Finding]:
    """quorum-state and .kafka_cleanshutdown."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        yield Damage(getattr(error, "pos", 0), f"not JSON: {error}")
        return
    if not isinstance(fields, dict):
        yield Damage(0, "not an object of JSON")
        return
    yield Entry("state", 0, fields)


def read_nothing(data: bytes, _: int) -> Iterator[Finding]:
    """.lock: its being there, and locked, is all it says."""
    if data:
        yield Note(0, f"{len(data)} bytes, which are never read")
    else:
        yield Note(0, "empty, as it should be")


def _pairs(data: bytes, separator: str, comments: tuple[str, ...]) -> Iterator[Finding]:
    for position, line in _lines(data):
        if not line.strip() or (comments and line.startswith(comments)):
            continue
        name, found, value = line.partition(separator)
        if not found or not name.isprintable():
            yield Damage(position, f"{line!r} is not a name and a value")
        else:
            yield Entry("property", position, {name.strip(): value.replace("\\", "").strip()})


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    position = 0
    for line in data.splitlines(keepends=True):
        yield position, line.decode("utf-8", "backslashreplace").rstrip("\r\n")
        position += len(line)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
