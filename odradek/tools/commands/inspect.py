"""`odradek inspect`: files of a data directory as text."""

from __future__ import annotations

import argparse
from pathlib import Path

from odradek.tools.commands.options import add_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files or directories")
    add_json(parser, "one JSON object for each line")
    parser.add_argument("--as", dest="kind", metavar="KIND", help="the kind of the files, if their names do not tell")
    parser.add_argument("--topic", metavar="NAME", help="the topic of a log outside of its directory")
    parser.add_argument("--batches", action="store_true", help="only the batches of logs, not their records")
    parser.add_argument("--full", action="store_true", help="do not shorten long keys and values")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.tools.inspect.command import inspect

    return inspect(
        options.files,
        kind=options.kind,
        topic=options.topic,
        as_json=options.json,
        with_records=not options.batches,
        is_full=options.full,
    )
