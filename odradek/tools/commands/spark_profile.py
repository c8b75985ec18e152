"""`odradek spark profile`: sizes, keys, skew, compression and latency of a topic."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.tools.commands.errors import DONE
from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import print_object
from odradek.tools.commands.spark_options import SOURCES, Actions, add_isolation_level, add_session, session

if TYPE_CHECKING:
    from odradek.spark.jobs.profile_facts import Profile


def configure(actions: Actions) -> None:
    parser = actions.add_parser(
        "profile",
        help="sizes, keys, skew, compression and latency of a topic, as text or as a page with charts",
        description="Measure a topic: sizes of records and batches, keys and how they are spread over partitions,"
        " compression, and the time between a record and the commit of its transaction. --html writes a page with"
        " charts, in one file that needs nothing else. Of directories also what batch headers and markers tell. "
        + SOURCES,
    )
    parser.add_argument("source", metavar="SOURCE", help="kafka://HOST:PORT/TOPIC or DIR/TOPIC")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="the topic, for DIR")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page there")
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from odradek.spark.inputs import input_of

    source = input_of(options.source, options.topic).with_options(**{"kafka.isolation.level": options.isolation_level})
    if options.html is not None and not options.html.absolute().parent.is_dir():
        raise ValueError(f"{options.html}: there is no such directory")
    with session(options, "profile") as spark:
        from odradek.spark.profile import profile

        found = profile(spark, source)
    if options.html is not None:
        from odradek.spark.jobs.profile_page import page

        options.html.write_text(page(found, datetime.now(UTC)), encoding="utf-8")
    if options.json:
        print_object(dataclasses.asdict(found) | {"skew": round(found.skew, 3), "findings": found.findings()})
        return DONE
    for line in _lines(found):
        print(line)
    if options.html is not None:
        print(f"page      {options.html}")
    return DONE


def _lines(found: Profile) -> Iterator[str]:
    from odradek.spark.jobs.shown import size

    sizes, log = found.record_bytes, found.log
    yield f"{found.topic}: {found.records:,} records in {len(found.partitions)} partitions"
    if found.records:
        median, most = size(sizes.quantile(0.5)), size(sizes.quantile(0.99))
        yield f"sizes     {size(found.payload_bytes)} of keys and values; half of the records ≤ {median}, 99 % ≤ {most}"
        yield f"keys      about {found.distinct_keys:,}; {found.null_keys:,} records without; skew {found.skew:.2f}"
    if log is not None:
        codecs = ", ".join(f"{name} {size(count)}" for name, count in sorted(log.codecs.items()))
        yield f"log       {size(log.size_bytes)} in {log.batches:,} batches of {log.producers:,} producers; {codecs}"
        if log.committed or log.aborted or log.still_open:
            wait = f"; half commit within {log.open_for.quantile(0.5):,.0f} ms" if log.committed else ""
            yield (f"txns      {log.committed:,} committed, {log.aborted:,} aborted, {log.still_open:,} open{wait}")
    for each in found.findings():
        yield f"note      {each}"
