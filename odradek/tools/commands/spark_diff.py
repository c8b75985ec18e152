"""`odradek spark diff`: where two directories of logs differ."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.tools.commands.errors import DIFFERENT, DONE
from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import print_object, table
from odradek.tools.commands.spark_options import Actions, add_session, session

if TYPE_CHECKING:
    from odradek.spark.diff import ChangedRecord, Diff, PartitionDiff

_COLUMNS = {
    "partition": "PARTITION",
    "left": "FIRST",
    "right": "SECOND",
    "batches": "BATCHES",
    "missing_left": "NOT IN FIRST",
    "missing_right": "NOT IN SECOND",
    "changed": "CHANGED",
    "markers": "MARKERS",
}


def configure(actions: Actions) -> None:
    parser = actions.add_parser(
        "diff",
        help="where two directories of logs differ: a mirror, a restored backup, before and after an upgrade",
        description="Compare two directories of logs, of Odradek or Apache Kafka. Batches are compared by offsets and"
        " CRC, which reads headers only; records are read where batches differ, since two logs may hold the same"
        " records in other batches. Markers of transactions are compared by what they say.",
        epilog="exit status: 0 the same records and markers, 6 not so, else as everywhere",
    )
    parser.add_argument("first", metavar="DIR", help="a data directory, or DIR/TOPIC")
    parser.add_argument("second", metavar="DIR")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="only it; may be repeated")
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="only offsets that both have: the second may lag, or have deleted more",
    )
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="of records; default: %(default)s")
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.spark.inputs import input_of

    first, second = (input_of(each, options.topic) for each in (options.first, options.second))
    if not (first.is_directory and second.is_directory):
        raise ValueError("directories are compared; for topics of a cluster there is `odradek spark exactly-once`")
    with session(options, "diff") as spark:
        from odradek.spark.diff import diff

        found = diff(spark, first, second, overlap=options.overlap, examples=options.examples)
    if options.json:
        print_object(dataclasses.asdict(found) | {"is_same": found.is_same})
    else:
        for line in _lines(found):
            print(line)
    return DONE if found.is_same else DIFFERENT


def _lines(found: Diff) -> Iterator[str]:
    different = [each for each in found.partitions if not each.is_same]
    packed = sum(each.batches for each in found.partitions if each.is_same)
    yield f"{len(found.partitions)} partitions compared, {len(different)} differ"
    if packed:
        yield f"{packed:,} batches of the others differ, and their records are the same"
    if different:
        yield ""
        yield from table([_row(each) for each in different], _COLUMNS)
    if found.examples:
        yield ""
        for each in found.examples:
            yield from _example(each)


def _row(one: PartitionDiff) -> dict[str, object]:
    def bounds(side: tuple[int, int] | None) -> str:
        return "none" if side is None else f"{side[0]} to {side[1]}"

    return {
        "partition": f"{one.topic}-{one.partition}",
        "left": bounds(one.left),
        "right": bounds(one.right),
        "batches": one.batches,
        "missing_left": one.missing_left,
        "missing_right": one.missing_right,
        "changed": one.changed,
        "markers": one.markers,
    }


def _example(one: ChangedRecord) -> Iterator[str]:
    columns = f" ({', '.join(one.columns)})" if one.columns else ""
    yield f"{one.topic}-{one.partition}@{one.offset} {one.difference}{columns}"
    for sign, side in (("-", one.left), ("+", one.right)):
        if side is not None:
            yield f"  {sign} " + "  ".join(f"{name}={value}" for name, value in side.items() if value is not None)
