"""`odradek spark export`: topics as Parquet, each record exactly once."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from odradek.tools.commands.errors import DONE
from odradek.tools.commands.options import add_json
from odradek.tools.commands.output import print_object
from odradek.tools.commands.spark_options import SOURCES, Actions, add_isolation_level, add_session, session


def configure(actions: Actions) -> None:
    parser = actions.add_parser(
        "export",
        help="topics as Parquet, partitioned by topic and day, each record exactly once; again: what is new",
        description="Write topics as Parquet: FOLDER/topic=T/date=D/T-PARTITION-START-END.parquet, by the day (UTC) of"
        " the timestamp; zstd, with all columns of a record. Called again, it adds what is new. Killed at any moment"
        " and called again, it leaves neither holes nor duplicates: what is written is decided before it is read, under"
        " names that are the same each time (FOLDER/_odradek). " + SOURCES,
        epilog="exit status: 0 everything up to now is exported, 1 not everything: call it again, else as everywhere",
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="kafka://HOST:PORT/TOPIC, DIR/TOPIC, or DIR for all its topics"
    )
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="only it; may be repeated")
    parser.add_argument(
        "--to", required=True, type=Path, metavar="FOLDER", help="a new directory, or that of an earlier call"
    )
    parser.add_argument(
        "--from",
        dest="starting",
        type=time_ms,
        metavar="TIME",
        help="begin each partition with the first record that is not older: 2026-11-01, 2026-11-01T12:00+01:00; UTC if"
        " nothing is said",
    )
    parser.add_argument(
        "--until", dest="ending", type=time_ms, metavar="TIME", help="end before the first record that is not older"
    )
    parser.add_argument("--no-dates", action="store_true", help="partition by topic only")
    parser.add_argument(
        "--compression", choices=["zstd", "snappy", "gzip", "lz4", "none"], default="zstd", help="default: %(default)s"
    )
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="go on where records were deleted before they were exported"
    )
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def time_ms(text: str) -> int:
    """For `type=`: a date or a time of ISO 8601."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, as 2026-11-01 or 2026-11-01T12:00+01:00") from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def run(options: argparse.Namespace) -> int:
    from odradek.spark.inputs import input_of

    source = input_of(options.source, options.topic).with_options(**{"kafka.isolation.level": options.isolation_level})
    begun = time.monotonic()
    with session(options, "export") as spark:
        from odradek.spark.export import ExportOptions, export
        from odradek.spark.export_sources import export_source
        from odradek.spark.jobs.shown import size

        exported = export(
            spark,
            export_source(
                source,
                starting_ms=options.starting,
                ending_ms=options.ending,
                allows_loss=options.allow_data_loss,
            ),
            options.to,
            ExportOptions(not options.no_dates, options.compression, options.allow_data_loss),
        )
    seconds = time.monotonic() - begun
    if options.json:
        print_object(
            {
                "to": str(options.to),
                "records": exported.rows,
                "offsets": exported.offsets,
                "size_bytes": exported.size_bytes,
                "files": [each._asdict() for each in exported.files],
                "resumed": bool(exported.resumed),
                "seconds": round(seconds, 1),
            }
        )
        return DONE
    if not exported.plans:
        print(f"{options.to}: nothing is new")
        return DONE
    print(
        f"{options.to}: {exported.rows:,} records more, in {len(exported.files):,} files of"
        f" {size(exported.size_bytes)}, within {seconds:,.0f} s"
    )
    if exported.resumed:
        print("An earlier call had not come to its end; what it had begun is complete now.")
    return DONE
