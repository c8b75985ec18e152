"""What the jobs of `odradek spark` have in common: their options, and the session of Spark that they run in."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from odradek.tools.commands.errors import REFUSED, CommandError
from odradek.tools.commands.options import setting

SOURCES = (
    "Records are read from a running cluster (kafka://HOST:PORT/TOPIC) or from files: a data directory of Odradek or"
    " Apache Kafka (DIR), or one topic of it (DIR/TOPIC). Only committed records are read, unless"
    " --isolation-level says otherwise."
)
Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def add_isolation_level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isolation-level", choices=ISOLATION_LEVELS, default=ISOLATION_LEVELS[0], help="default: %(default)s"
    )


def add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="where Spark works: local[4], spark://HOST:7077 …; default: local[*], or what spark-submit says",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of Spark, as spark.driver.memory=4g; may be repeated",
    )
    parser.add_argument("--verbose", action="store_true", help="show what Spark itself writes")


@contextmanager
def session(options: argparse.Namespace, title: str) -> Iterator[Any]:
    """A session of Spark with a progress bar. What is wrong in it is told as any other refusal."""
    from odradek.spark.jobs.progress import progress
    from odradek.spark.jobs.session import JobFailed
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
    """For `type=`: columns and SQL expressions, with commas that are not within brackets or quotes."""
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
        raise argparse.ArgumentTypeError(f"{text!r}: it takes columns or SQL expressions, with commas")
    return columns
