"""Implements `odradek inspect`, which prints files of a data directory as text, and `odradek inspect check`, which
checks whether the logs of a data directory are sound."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import complain, print_object

EVERY_S = 0.2
PATIENCE_S = 1.0
_CELLS = 30
_NEVER = float("inf")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files or directories")
    add_json(parser, "print one JSON object per line")
    parser.add_argument(
        "--as", dest="kind", metavar="KIND", help="the kind of the files, if their names do not show it"
    )
    parser.add_argument(
        "--topic", metavar="NAME", help="the topic of a log file that is outside its partition's directory"
    )
    parser.add_argument("--batches", action="store_true", help="print only the batches of logs, not their records")
    parser.add_argument("--full", action="store_true", help="print long keys and values in full")
    parser.add_argument(
        "--pcap",
        type=Path,
        metavar="OUT",
        help="convert a recording to a capture file that Wireshark and tshark can read",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.tools.inspect.command import inspect

    if options.pcap is not None:
        return _capture(options)
    return inspect(
        options.files,
        kind=options.kind,
        topic=options.topic,
        as_json=options.json,
        with_records=not options.batches,
        is_full=options.full,
    )


def _capture(options: argparse.Namespace) -> int:
    from odradek.protocol.errors import MalformedMessage
    from odradek.protocol.recording import Recording
    from odradek.tools.inspect.command import DAMAGED, GOOD, MISUNDERSTOOD
    from odradek.tools.inspect.pcap import packets

    if len(options.files) > 1:
        complain("odradek inspect", "--pcap needs exactly one recording")
        return MISUNDERSTOOD
    try:
        with options.files[0].open("rb") as file, options.pcap.open("wb") as out:
            recording = Recording(file.read)
            for piece in packets(recording.entries(), recording.started_ms):
                out.write(piece)
    except (MalformedMessage, OSError) as error:
        complain("odradek inspect", f"{options.files[0]}: {error}")
        return DAMAGED
    return GOOD


def configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="data directories, or directories of single partitions"
    )
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this topic; may be repeated")
    add_json(parser, "print one JSON object with the findings and the first and last offset of each partition")
    parser.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    from odradek.files.offline.directories import NoLogs, partitions_at
    from odradek.tools.inspect.check.report import as_json, lines
    from odradek.tools.inspect.check.run import check, sizes
    from odradek.tools.inspect.command import DAMAGED, GOOD, MISUNDERSTOOD

    try:
        logs = partitions_at(*options.directories)
        if options.topic:
            logs = [log for log in logs if log.topic in options.topic]
            if missing := set(options.topic) - {log.topic for log in logs}:
                raise NoLogs(f"the directories contain no topic {', '.join(sorted(missing))}")
    except ValueError as error:
        print(f"odradek inspect check: {error}", file=sys.stderr)
        return MISUNDERSTOOD
    with ByteBar(sizes(logs), sys.stderr) as bar:
        report = check(logs, bar.add)
    seconds = bar.seconds
    if options.json:
        print_object(as_json(report, seconds))
    else:
        for line in lines(report, seconds):
            print(line)
    return DAMAGED if report.is_damaged else GOOD


class ByteBar:
    """A progress bar on a terminal. It appears after a second of work and is erased at the end. Nothing is printed if
    the output is not a terminal."""

    def __init__(self, size_bytes: int, to: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._size_bytes = max(size_bytes, 1)
        self._to = to
        self._clock = clock
        self._done_bytes = 0
        self._is_drawn = False
        self._start_s = clock()
        self._next_at = self._start_s + PATIENCE_S if to.isatty() else _NEVER
        self.seconds = 0.0  # total duration; set at the end

    def __enter__(self) -> ByteBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._clock() - self._start_s
        if self._is_drawn:
            self._write("\r\x1b[K")

    def add(self, name: str, size_bytes: int) -> None:
        """Adds to the number of bytes read, and redraws the bar if it is due."""
        self._done_bytes += size_bytes
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at, self._is_drawn = now + EVERY_S, True
        share = min(1.0, self._done_bytes / self._size_bytes)
        filled = round(share * _CELLS)
        rate = self._done_bytes / (now - self._start_s) / 1e9
        line = (
            f"{'█' * filled}{'░' * (_CELLS - filled)}  {share:4.0%}  {self._done_bytes / 1e9:.1f} GB, {rate:.1f} GB/s"
        )
        self._write(f"\r{line}  {name}\x1b[K")

    def _write(self, text: str) -> None:
        self._to.write(text)
        self._to.flush()
