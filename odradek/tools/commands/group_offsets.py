"""Offsets that a group is moved to, by the options of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.errors import NOT_FOUND, CommandError
from odradek.tools.commands.output import headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin


def add_reset(parser: argparse.ArgumentParser, *, is_share: bool = False) -> None:
    parser.add_argument("names", nargs=1, metavar="GROUP", help="the group; it must have no members")
    parser.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="only this topic, or these partitions of it; may be repeated",
    )
    parser.add_argument("--all-topics", action="store_true", help="every topic that the group has offsets of")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record")
    where.add_argument("--to-latest", action="store_true", help="the end")
    where.add_argument(
        "--to-datetime", metavar="TIME", type=milliseconds, help="the first record since, as in 2026-01-31T08:00:00"
    )
    if not is_share:
        where.add_argument("--to-offset", metavar="N", type=int, help="this offset")
        where.add_argument("--shift-by", metavar="N", type=int, help="so many records on, or back if negative")
        where.add_argument("--to-current", action="store_true", help="where it is; without an offset, the end")
    parser.add_argument("--execute", action="store_true", help="do it; otherwise it is only shown")
    parser.add_argument("--dry-run", action="store_true", help="only show it, which is the default")


def check_reset(options: argparse.Namespace) -> None:
    if options.all_topics == bool(options.topic):
        raise ValueError("give either --topic or --all-topics")


def milliseconds(text: str) -> int:
    """Parses ISO 8601 for `type=`, in UTC unless it names an offset, as Kafka's tools do."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: it takes a time as in 2026-01-31T08:00:00") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


async def plan(
    admin: Admin, options: argparse.Namespace, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the new offset of each partition, within the bounds of its log."""
    from odradek.client.administration.records import EARLIEST, LATEST

    if options.all_topics and not committed:
        raise CommandError(f"the group {options.names[0]} has no offsets", NOT_FOUND)
    partitions = sorted(committed) if options.all_topics else await selected(admin, options.topic)
    first, end = await _offsets(admin, partitions, EARLIEST), await _offsets(admin, partitions, LATEST)
    wanted = first if options.to_earliest else end
    if options.to_datetime is not None:
        since = await admin.list_offsets(dict.fromkeys(partitions, options.to_datetime))
        wanted = {each: found.offset if found else end[each] for each, found in since.items()}
    elif getattr(options, "to_offset", None) is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    elif getattr(options, "to_current", False):
        wanted = {each: committed.get(each, end[each]) for each in partitions}
    elif getattr(options, "shift_by", None) is not None:
        if missing := [each for each in partitions if each not in committed]:
            raise CommandError(f"{missing[0].topic}-{missing[0].partition} has no committed offset to shift")
        wanted = {each: committed[each] + options.shift_by for each in partitions}
    return {each: min(max(wanted[each], first[each]), end[each]) for each in partitions}


async def _offsets(admin: Admin, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(partitions, at))
    return {each: told.offset for each, told in found.items() if told is not None}


async def selected(admin: Admin, topics: list[str]) -> list[TopicPartition]:
    """Returns the partitions of topics that are written as TOPIC or TOPIC:0,1."""
    found: list[TopicPartition] = []
    for text in topics:
        parts = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", text)
        if parts is None:
            raise ValueError(f"{text!r}: it takes TOPIC or TOPIC:0,1")
        topic, indexes = parts.groups()
        there = {each.partition for each in (await admin.describe_topics([topic]))[topic].partitions}
        wanted = there if indexes is None else {int(index) for index in indexes.split(",")}
        if missing := wanted - there:
            raise CommandError(f"there is no partition {topic}-{min(missing)}", NOT_FOUND)
        found += [TopicPartition(topic, index) for index in sorted(wanted)]
    return found


def show(
    options: argparse.Namespace, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> None:
    rows = [
        {"topic": each.topic, "partition": each.partition, "from": before.get(each), "to": offset}
        for each, offset in after.items()
    ]
    print_rows(rows, headings("topic partition from to"), as_json=options.json, empty="Nothing to move.")
    if not options.execute and not options.json:
        print("Nothing was changed: --execute does it.")
