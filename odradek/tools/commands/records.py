"""Implements `odradek records`, which shows offsets like kafka-get-offsets and deletes records like
kafka-delete-records."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.groups import selected
from odradek.tools.commands.options import CommandActions, add_list, add_topic, time_ms
from odradek.tools.commands.output import headings, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add(
        "offsets", "show log start offsets, last stable offsets and high watermarks", offsets, json=True
    ) as counting:
        add_list(counting, "-t", "--topic", metavar="TOPIC[:0,1]", help="only this topic, or these partitions of it")
        counting.add_argument("--time", type=time_ms, metavar="TIME", help="also show the first offset since this time")
    with actions.add("delete", "delete all records before an offset", delete, json=True) as deleting:
        add_topic(deleting)
        deleting.add_argument(
            "-p", "--partition", type=int, metavar="N", help="only in this partition; default: in all partitions"
        )
        deleting.add_argument(
            "--before-offset",
            type=int,
            required=True,
            metavar="OFFSET",
            help="the first offset to keep; -1 deletes everything up to the high watermark",
        )


async def offsets(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.records import EARLIEST, LATEST

    partitions = await selected(admin, options.topic or await admin.list_topics())
    first = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), is_committed=True)
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    columns = headings("topic partition log_start_offset last_stable_offset high_watermark")
    rows: list[dict[str, object]] = [
        {"topic": each.topic, "partition": each.partition, "log_start_offset": _offset(first[each])}
        | {"last_stable_offset": _offset(stable[each]), "high_watermark": _offset(end[each])}
        for each in partitions
    ]
    if options.time is not None:
        since = await admin.list_offsets(dict.fromkeys(partitions, options.time))
        columns["since"] = "FIRST SINCE"
        for row, each in zip(rows, partitions, strict=True):
            row["since"] = _offset(since[each])
    print_rows(rows, columns, as_json=options.json, empty="No topics.")


def _offset(found: tuple[int, int, int | None] | None) -> int | None:
    return None if found is None else found[0]


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    place = options.topic if options.partition is None else f"{options.topic}:{options.partition}"
    partitions: list[TopicPartition] = await selected(admin, [place])
    deleted = await admin.delete_records(dict.fromkeys(partitions, options.before_offset))
    rows = [
        {"topic": each.topic, "partition": each.partition, "log_start_offset": deleted[each]} for each in partitions
    ]
    print_rows(rows, headings("topic partition log_start_offset"), as_json=options.json, empty="")
