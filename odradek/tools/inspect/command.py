"""`odradek inspect FILE…`: prints files; the exit status says whether all of them could be read.

0: all of it; 1: something is damaged or cannot be read; 2: the command line is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from odradek.tools.inspect.entries import Damage
from odradek.tools.inspect.files import UnknownFile, files_below, recognised
from odradek.tools.inspect.rendering import json_line, text_line

GOOD, DAMAGED, MISUNDERSTOOD = 0, 1, 2


def inspect(
    paths: Sequence[Path],
    *,
    kind: str | None = None,
    topic: str | None = None,
    as_json: bool = False,
    with_records: bool = True,
    is_full: bool = False,
    out: TextIO | None = None,
) -> int:
    """Returns the exit status. Of a directory, all files that are known are shown."""
    out = sys.stdout if out is None else out
    status = GOOD
    for path in _expanded(paths):
        try:
            findings = recognised(path, kind, topic).findings(with_records=with_records)
        except (UnknownFile, ValueError) as error:
            print(f"odradek inspect: {path}: {error}", file=sys.stderr)
            return MISUNDERSTOOD
        except OSError as error:
            print(f"odradek inspect: {path}: {error.strerror or error}", file=sys.stderr)
            status = DAMAGED
            continue
        if not as_json:
            _write(out, str(path))
        for finding in findings:
            _write(out, json_line(str(path), finding) if as_json else text_line(finding, is_full=is_full))
            if isinstance(finding, Damage):
                status = DAMAGED
                if not as_json:
                    print(f"{path}: damaged at byte {finding.position}: {finding.reason}", file=sys.stderr)
    return status


def _expanded(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def _write(out: TextIO, line: str) -> None:
    """Whatever bytes stand in a file, the terminal gets what it can show."""
    out.write(line.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8") + "\n")
