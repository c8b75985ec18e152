"""Implements the commands of `odradek spark` that process complete topics: exactly-once, export, diff, profile. They
need Spark."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.tools.commands.errors import DIFFERENT, DONE, REFUSED, CommandError
from odradek.tools.commands.options import add_isolation_level, add_json, add_list, setting, time_ms
from odradek.tools.commands.output import headings, print_object, table

if TYPE_CHECKING:
    from odradek.spark.jobs.audit import Comparison
    from odradek.spark.jobs.diff import ChangedRecord, Diff, PartitionDiff
    from odradek.spark.jobs.profile_facts import Profile

SOURCES = (
    "Records are read from a running cluster (kafka://HOST:PORT/TOPIC) or from files: a data directory of Odradek or"
    " Apache Kafka (DIR), or one topic of it (DIR/TOPIC). Only committed records are read, unless"
    " --isolation-level says otherwise."
)
Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, such as local[4] or spark://HOST:7077; default: local[*], or the master that"
        " spark-submit sets",
    )
    add_list(
        parser, "--conf", type=setting, metavar="NAME=VALUE", help="a setting of Spark, such as spark.driver.memory=4g"
    )
    parser.add_argument("--verbose", action="store_true", help="show the output of Spark itself")


@contextmanager
def session(options: argparse.Namespace, title: str) -> Iterator[Any]:
    """Yields a Spark session with a progress bar. Raises CommandError if Spark fails."""
    from odradek.spark.jobs.session import JobFailed, progress
    from odradek.spark.jobs.session import session as spark_session

    try:
        with (
            spark_session(f"odradek {title}", options.master, dict(options.conf), is_verbose=options.verbose) as spark,
            progress(spark, title),
        ):
            yield spark
    except JobFailed as error:
        raise CommandError(str(error), REFUSED) from None


def columns_of(text: str) -> list[str]:
    """Splits a text into columns and SQL expressions, at the commas outside brackets and quotes. Used as `type=` of
    arguments."""
    found, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            found.append("")
            continue
        found[-1] += character
    columns = [each.strip() for each in found]
    if not all(columns) or depth or quote:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of columns or SQL expressions, separated by commas")
    return columns


def add_exactly_once(parsers: Parsers) -> None:
    parser = parsers.add_parser(
        "exactly-once",
        help="check that each record of an input is in an output exactly once",
        description="Compares the records of two topics as multisets, and reports records that the output has lost,"
        " repeated or invented. --on names the columns (key, value, headers …) or SQL expressions by which a"
        " record of the output is matched with a record of the input. " + SOURCES,
        epilog="exit status: 0 each record is there exactly once, 6 it is not; otherwise as in `odradek --help`",
    )
    parser.add_argument("--input", required=True, metavar="SOURCE", help="kafka://HOST:PORT/TOPIC or DIR/TOPIC")
    parser.add_argument("--output", required=True, metavar="SOURCE", help="the output, in the same form as --input")
    parser.add_argument(
        "--on",
        type=columns_of,
        default=["key", "value"],
        metavar="COLUMNS",
        help="the columns that identify a record, separated by commas; default: key,value",
    )
    parser.add_argument(
        "--output-on",
        type=columns_of,
        metavar="COLUMNS",
        help="the columns of the output, if they are named differently",
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=5,
        metavar="N",
        help="how many examples to show for each kind of difference; default: %(default)s",
    )
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=exactly_once)


def exactly_once(options: argparse.Namespace) -> int:
    from odradek.spark.jobs.inputs import input_of, one_topic

    if options.output_on is not None and len(options.output_on) != len(options.on):
        raise ValueError("--on and --output-on must name the same number of columns")
    level = {"kafka.isolation.level": options.isolation_level}
    source, output = (one_topic(input_of(each)).with_options(**level) for each in (options.input, options.output))
    with session(options, "exactly-once") as spark:
        from odradek.spark.jobs.audit import compare

        compared = compare(
            source.frame(spark), output.frame(spark), options.on, output_on=options.output_on, examples=options.examples
        )
    if options.json:
        print_object(dataclasses.asdict(compared) | {"is_exact": compared.is_exact})
    else:
        for line in _comparison_lines(compared):
            print(line)
    return DONE if compared.is_exact else DIFFERENT


def _comparison_lines(compared: Comparison) -> Iterator[str]:
    yield f"{'exactly once' if compared.is_exact else 'NOT exactly once'}: {compared}"
    if not compared.examples:
        return
    names = list(compared.examples[0].value)
    rows = [
        {
            "verdict": each.verdict,
            **{f"on {name}": value for name, value in each.value.items()},
            "input_count": each.input_count,
            "output_count": each.output_count,
            "first_input": each.first_input,
            "first_output": each.first_output,
            "last_output": each.last_output if each.last_output != each.first_output else None,
        }
        for each in compared.examples
    ]
    yield ""
    yield from table(
        rows,
        {
            "verdict": "VERDICT",
            **{f"on {name}": name.upper() for name in names},
            "input_count": "IN",
            "output_count": "OUT",
            "first_input": "INPUT AT",
            "first_output": "OUTPUT AT",
            "last_output": "LAST AT",
        },
    )


def add_export(parsers: Parsers) -> None:
    parser = parsers.add_parser(
        "export",
        help="export topics as Parquet by topic and day, each record exactly once; run again to add new records",
        description="Writes topics as Parquet files FOLDER/topic=T/date=D/T-PARTITION-START-END.parquet, by the day"
        " (UTC) of the timestamp. The files have all columns of a record, and are compressed with zstd. If you"
        " run the command again, it adds the new records. If it is killed and run again, there are neither"
        " gaps nor duplicates, because it records in FOLDER/_odradek which files it will write, before it"
        " reads the records. " + SOURCES,
        epilog="exit status: 0 all present records are exported, 1 some are not: run it again; otherwise as in"
        " `odradek --help`",
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="kafka://HOST:PORT/TOPIC, DIR/TOPIC, or DIR for all its topics"
    )
    add_list(parser, "-t", "--topic", metavar="TOPIC", help="only this topic")
    parser.add_argument(
        "--to",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="a new directory, or the directory of an earlier export",
    )
    parser.add_argument(
        "--from",
        dest="starting",
        type=time_ms,
        metavar="TIME",
        help="begin each partition with the first record at or after this time, such as 2026-11-01 or"
        " 2026-11-01T12:00+01:00; UTC unless it has an offset",
    )
    parser.add_argument(
        "--until", dest="ending", type=time_ms, metavar="TIME", help="end before the first record at or after this time"
    )
    parser.add_argument("--no-dates", action="store_true", help="partition only by topic, not by date")
    parser.add_argument(
        "--compression",
        choices=["zstd", "snappy", "gzip", "lz4", "none"],
        default="zstd",
        help="the compression of the files; default: %(default)s",
    )
    parser.add_argument(
        "--allow-data-loss", action="store_true", help="continue even if records were deleted before they were exported"
    )
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    from odradek.spark.jobs.inputs import input_of

    source = input_of(options.source, options.topic).with_options(**{"kafka.isolation.level": options.isolation_level})
    started_s = time.monotonic()
    with session(options, "export") as spark:
        from odradek.spark.jobs.export import ExportOptions, export, export_source
        from odradek.spark.jobs.shown import size

        exported = export(
            spark,
            export_source(
                source, starting_ms=options.starting, ending_ms=options.ending, allows_loss=options.allow_data_loss
            ),
            options.to,
            ExportOptions(not options.no_dates, options.compression, options.allow_data_loss),
        )
    seconds = time.monotonic() - started_s
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
        print(f"{options.to}: there are no new records")
        return DONE
    print(
        f"{options.to}: {exported.rows:,} new records in {len(exported.files):,} files of"
        f" {size(exported.size_bytes)}, within {seconds:,.0f} s"
    )
    if exported.resumed:
        print("An earlier export had been interrupted. It is complete now.")
    return DONE


def add_diff(parsers: Parsers) -> None:
    parser = parsers.add_parser(
        "diff",
        help="compare two directories of logs, such as a cluster and its mirror or backup, or before and after an"
        " upgrade",
        description="Compares two directories of logs, of Odradek or Apache Kafka. Batches are compared by offsets"
        " and CRC, which needs only their headers. If batches differ, their records are compared, since two"
        " logs may hold the same records in different batches. Transaction markers are compared by their"
        " outcome.",
        epilog="exit status: 0 the records and markers are the same, 6 they differ; otherwise as in `odradek --help`",
    )
    parser.add_argument("first", metavar="DIR", help="a data directory, or DIR/TOPIC")
    parser.add_argument("second", metavar="DIR")
    add_list(parser, "-t", "--topic", metavar="TOPIC", help="only this topic")
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="compare only the offsets that both directories have: the second may lag, or may have deleted more",
    )
    parser.add_argument(
        "--examples", type=int, default=5, metavar="N", help="how many records to show; default: %(default)s"
    )
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run_diff)


def run_diff(options: argparse.Namespace) -> int:
    from odradek.spark.jobs.inputs import input_of

    first, second = (input_of(each, options.topic) for each in (options.first, options.second))
    if not (first.is_directory and second.is_directory):
        raise ValueError(
            "`odradek spark diff` compares directories; for the topics of a cluster, use `odradek spark exactly-once`"
        )
    with session(options, "diff") as spark:
        from odradek.spark.jobs.diff import diff

        found = diff(spark, first, second, overlap=options.overlap, examples=options.examples)
    if options.json:
        print_object(dataclasses.asdict(found) | {"is_same": found.is_same})
    else:
        for line in _diff_lines(found):
            print(line)
    return DONE if found.is_same else DIFFERENT


def _diff_lines(found: Diff) -> Iterator[str]:
    different = [each for each in found.partitions if not each.is_same]
    packed = sum(each.batches for each in found.partitions if each.is_same)
    yield f"{len(found.partitions)} partitions compared, {len(different)} differ"
    if packed:
        yield f"{packed:,} batches of the other partitions differ, but contain the same records"
    if different:
        yield ""
        columns = headings(
            "partition left right batches missing_left missing_right changed markers",
            left="FIRST",
            right="SECOND",
            missing_left="NOT IN FIRST",
            missing_right="NOT IN SECOND",
        )
        yield from table([_partition_row(each) for each in different], columns)
    if found.examples:
        yield ""
        for each in found.examples:
            yield from _example_lines(each)


def _partition_row(one: PartitionDiff) -> dict[str, object]:
    def bounds(side: tuple[int, int] | None) -> str:
        return "none" if side is None else f"{side[0]} to {side[1]}"

    counted = ("batches", "missing_left", "missing_right", "changed", "markers")
    return {"partition": f"{one.topic}-{one.partition}", "left": bounds(one.left), "right": bounds(one.right)} | {
        name: getattr(one, name) for name in counted
    }


def _example_lines(one: ChangedRecord) -> Iterator[str]:
    columns = f" ({', '.join(one.columns)})" if one.columns else ""
    yield f"{one.topic}-{one.partition}@{one.offset} {one.difference}{columns}"
    for sign, side in (("-", one.left), ("+", one.right)):
        if side is not None:
            yield f"  {sign} " + "  ".join(f"{name}={value}" for name, value in side.items() if value is not None)


def add_profile(parsers: Parsers) -> None:
    parser = parsers.add_parser(
        "profile",
        help="show sizes, keys, skew, compression and latency of a topic, as text or as a page with charts",
        description="Measures a topic: the sizes of records and batches, the keys and how they are spread over"
        " partitions, the compression, and the time between a record and the commit of its transaction. --html"
        " writes a self-contained page with charts. Batches and transactions are measured only in directories."
        " " + SOURCES,
    )
    parser.add_argument("source", metavar="SOURCE", help="kafka://HOST:PORT/TOPIC or DIR/TOPIC")
    add_list(parser, "-t", "--topic", metavar="TOPIC", help="the topic, if SOURCE is a data directory")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page to this file")
    add_isolation_level(parser)
    add_session(parser)
    add_json(parser)
    parser.set_defaults(run=run_profile)


def run_profile(options: argparse.Namespace) -> int:
    from odradek.spark.jobs.inputs import input_of

    source = input_of(options.source, options.topic).with_options(**{"kafka.isolation.level": options.isolation_level})
    if options.html is not None and not options.html.absolute().parent.is_dir():
        raise ValueError(f"{options.html}: its directory does not exist")
    with session(options, "profile") as spark:
        from odradek.spark.jobs.profile import profile

        found = profile(spark, source)
    if options.html is not None:
        from odradek.spark.jobs.profile_page import page

        options.html.write_text(page(found, datetime.now(UTC)), encoding="utf-8")
    if options.json:
        print_object(dataclasses.asdict(found) | {"skew": round(found.skew, 3), "findings": found.findings()})
        return DONE
    for line in _profile_lines(found):
        print(line)
    if options.html is not None:
        print(f"page      {options.html}")
    return DONE


def _profile_lines(found: Profile) -> Iterator[str]:
    from odradek.spark.jobs.shown import size

    sizes, log = found.record_bytes, found.log
    yield f"{found.topic}: {found.records:,} records in {len(found.partitions)} partitions"
    if found.records:
        median, most = size(sizes.quantile(0.5)), size(sizes.quantile(0.99))
        yield f"sizes     {size(found.payload_bytes)} of keys and values; half of the records ≤ {median}, 99 % ≤ {most}"
        yield (
            f"keys      about {found.distinct_keys:,}; {found.null_keys:,} records without a key; skew {found.skew:.2f}"
        )
    if log is not None:
        codecs = ", ".join(f"{name} {size(count)}" for name, count in sorted(log.codecs.items()))
        yield f"log       {size(log.size_bytes)} in {log.batches:,} batches of {log.producers:,} producers; {codecs}"
        if log.committed or log.aborted or log.still_open:
            wait = f"; median time to commit {log.open_for.quantile(0.5):,.0f} ms" if log.committed else ""
            yield (f"txns      {log.committed:,} committed, {log.aborted:,} aborted, {log.still_open:,} open{wait}")
    for each in found.findings():
        yield f"note      {each}"
