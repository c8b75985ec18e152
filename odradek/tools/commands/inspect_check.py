"""`odradek inspect check`: whether the logs of data directories are sound."""

from __future__ import annotations

import argparse
import sys

from odradek.tools.commands.byte_bar import ByteBar
from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import print_object


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="data directories, or directories of single partitions"
    )
    parser.add_argument("-t", "--topic", action="append", metavar="TOPIC", help="only this one; may be repeated")
    add_json(parser, "print one JSON object: the findings, and the bounds of each partition")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.tools.inspect.check.report import as_json, lines
    from odradek.tools.inspect.check.run import check, sizes
    from odradek.tools.inspect.command import DAMAGED, GOOD, MISUNDERSTOOD
    from odradek.tools.offline.directories import NoLogs, partitions_at

    try:
        logs = partitions_at(*options.directories)
        if options.topic:
            logs = [log for log in logs if log.topic in options.topic]
            if missing := set(options.topic) - {log.topic for log in logs}:
                raise NoLogs(f"no such topic there: {', '.join(sorted(missing))}")
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
