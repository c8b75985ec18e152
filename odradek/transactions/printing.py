"""Rows as a table for people, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]

WIDTH_OF_A_FILE = 1_000  # columns; what is piped is not cut


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], *, as_json: bool, empty: str) -> None:
    """columns: key of a row → heading. empty: said to people in place of a table without rows."""
    if as_json:
        print(json.dumps([dict(row) for row in rows], indent=2))
        return
    if not rows:
        print(empty)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(shown(row[key]) for key in columns))
    Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE, highlight=False, markup=False).print(table)


def shown(value: object) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def duration(ms: int) -> str:
    """In its two largest units, as in `3 d 4 h`."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
    for (name, unit_ms), (smaller, smaller_ms) in pairwise(units):
        if ms >= unit_ms:
            return f"{ms // unit_ms} {name} {ms % unit_ms // smaller_ms} {smaller}"
    return f"{ms} ms"
