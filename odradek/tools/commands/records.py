"""`odradek records`: bounds of partitions (kafka-get-offsets), deletion of records (kafka-delete-records)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.group_offsets import milliseconds, selected
from odradek.tools.commands.options import add_connection, add_json, add_topic, with_admin
from odradek.tools.commands.output import print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin

COLUMNS = {"topic": "TOPIC", "partition": "PARTITION"}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    counting = actions.add_parser("offsets", help="log start offset, last stable offset and high watermark")
    counting.add_argument(
        "-t", "--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="only this; may be repeated"
    )
    counting.add_argument("--time", type=milliseconds, metavar="TIME", help="also the first offset since then")
    add_json(counting)
    add_connection(counting)
    counting.set_defaults(run=with_admin(offsets))

    deleting = actions.add_parser("delete", help="delete the records before an offset")
    add_topic(deleting)
    deleting.add_argument("-p", "--partition", type=int, metavar="N", help="default: every partition")
    deleting.add_argument(
        "--before-offset", type=int, required=True, metavar="OFFSET", help="-1: all that is committed"
    )
    add_json(deleting)
    add_connection(deleting)
    deleting.set_defaults(run=with_admin(delete))


async def offsets(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.records import EARLIEST, LATEST

    partitions = await selected(admin, options.topic or await admin.list_topics())
    first = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), is_committed=True)
    end = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    columns = COLUMNS | {
        "log_start_offset": "LOG START OFFSET",
        "last_stable_offset": "LAST STABLE OFFSET",
        "high_watermark": "HIGH WATERMARK",
    }
    rows: list[dict[str, object]] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "log_start_offset": _offset(first[each]),
            "last_stable_offset": _offset(stable[each]),
            "high_watermark": _offset(end[each]),
        }
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
    print_rows(rows, COLUMNS | {"log_start_offset": "LOG START OFFSET"}, as_json=options.json, empty="")
