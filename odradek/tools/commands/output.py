"""Prints rows as a table for people, or as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from textwrap import indent
from typing import Self

Row = Mapping[str, object]

GAP = "  "


def headings(keys: str, **others: str) -> dict[str, str]:
    """Returns the heading of each table column, keyed by the column's key. A heading is the key in capitals, unless
    `others` contains a different one."""
    return {key: others.get(key, key.upper().replace("_", " ")) for key in keys.split()}


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool, empty: str) -> None:
    """Prints rows. `columns` maps keys to headings. If there are no rows, prints the text `empty` instead of a
    table."""
    if as_json:
        print(json.dumps([dict(row) for row in rows], indent=2))
    elif not rows:
        print(empty)
    else:
        for line in table(rows, columns):
            print(line)


def print_object(value: object) -> None:
    print(json.dumps(value, indent=2))


class JsonArray:
    """Prints a JSON array object by object, in the format of `print_object`. After an error, the array is left
    unclosed."""

    def __init__(self) -> None:
        self._before = "["

    def __enter__(self) -> Self:
        return self

    def add(self, value: object) -> None:
        print(f"{self._before}\n{indent(json.dumps(value, indent=2), '  ')}", end="")
        self._before = ","

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            print("[]" if self._before == "[" else "\n]")


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[str]:
    """Yields the lines of a table. Each column is as wide as its content, and numbers are right-aligned."""
    cells = [[shown(row[key]) for key in columns] for row in rows]
    is_number = [{type(row[key]) for row in rows} - {type(None)} == {int} for key in columns]
    widths = [max(map(len, column)) for column in zip(columns.values(), *cells, strict=True)]
    for line in [list(columns.values()), *cells]:
        placed = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, is_number, strict=True)
        )
        yield GAP.join(placed).rstrip()


def shown(value: object) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def duration(ms: int) -> str:
    """Formats a duration in its two largest units, for example `3 d 4 h`."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
    for (name, unit_ms), (smaller, smaller_ms) in pairwise(units):
        if ms >= unit_ms:
            return f"{ms // unit_ms} {name} {ms % unit_ms // smaller_ms} {smaller}"
    return f"{ms} ms"


def size(size_bytes: int) -> str:
    """Formats a number of bytes, for example `1.5 MiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    number = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """Formats a number with its noun in the singular or plural, for example `1 record` or `2 records`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def complain(command: str, text: str) -> None:
    """Prints each line of a text on stderr, prefixed with the command's name."""
    for line in text.splitlines():
        print(f"{command}: {line}", file=sys.stderr)
