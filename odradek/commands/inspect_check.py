"""`odradek inspect check`: whether the logs of data directories are sound."""

from __future__ import annotations

import argparse
import sys
import time

from odradek.commands.options import add_json
from odradek.commands.output import print_object


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="data directories, or directories of single partitions"
    )
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this one; may be repeated")
    add_json(parser, "print one JSON object: the findings, and the bounds of each partition")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.inspect.check.report import as_json, lines
    from odradek.inspect.check.run import check, sizes
    from odradek.inspect.command import DAMAGED, GOOD, MISUNDERSTOOD
    from odradek.offline.directories import NoLogs, partitions_at

    try:
        logs = partitions_at(*options.directories)
        if options.topic:
            logs = [log for log in logs if log.topic in options.topic]
            if missing := set(options.topic) - {log.topic for log in logs}:
                raise NoLogs(f"no such topic there: {', '.join(sorted(missing))}")
    except ValueError as error:
        print(f"odradek inspect check: {error}", file=sys.stderr)
        return MISUNDERSTOOD
    with _Bar(sizes(logs)) as bar:
        report = check(logs, bar.add)
    seconds = bar.seconds
    if options.json:
        print_object(as_json(report, seconds))
    else:
        for line in lines(report, seconds):
            print(line)
    return DAMAGED if report.is_damaged else GOOD


class _Bar:
    """How far the check has come, on stderr if that is a terminal, and once it takes longer than a second."""

    _EVERY_S = 0.2
    _PATIENCE_S = 1.0
    _CELLS = 30

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = max(size_bytes, 1)
        self._done_bytes = 0
        self._begun = time.monotonic()
        self._next_at = self._begun + self._PATIENCE_S if sys.stderr.isatty() else float("inf")
        self.seconds = 0.0

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._begun
        if self._next_at not in (self._begun + self._PATIENCE_S, float("inf")):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def add(self, name: str, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + self._EVERY_S
        share = min(1.0, self._done_bytes / self._size_bytes)
        cells = "#" * round(share * self._CELLS)
        rate = self._done_bytes / (now - self._begun) / 1e9
        text = f"\r[{cells:<{self._CELLS}}] {share:4.0%}  {self._done_bytes / 1e9:.1f} GB, {rate:.1f} GB/s  {name}"
        print(f"{text}\x1b[K", end="", file=sys.stderr, flush=True)
