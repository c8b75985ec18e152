"""Implements `odradek consume`, which prints records to standard output, like kcat -C and kafka-console-consumer."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.errors import DONE, NOT_FOUND, CommandError
from odradek.tools.commands.options import add_connection, add_isolation_level, add_topic, admin, client_settings
from odradek.tools.commands.record_format import Render, formatted, json_render
from odradek.tools.commands.schema_options import add_formats, formats_of

if TYPE_CHECKING:
    from odradek.client.consumer import Consumer
    from odradek.tools.commands.record_schemas import RecordDecoder

POLL_MS = 500


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="read only this partition; default: all")
    parser.add_argument(
        "-o",
        "--offset",
        dest="offsets",
        action="append",
        metavar="OFFSET",
        type=_position,
        help="where to begin: beginning, end, an offset, -N (the last N records), s@MS (the first record since this"
        " timestamp), or stored (the offsets of the group). Default: beginning, or stored with --group. The"
        " option may be repeated with e@MS, to stop at the first record since that timestamp",
    )
    parser.add_argument("-c", "--count", "--max-messages", type=int, metavar="N", help="stop after N records")
    parser.add_argument("-e", "--exit", action="store_true", help="exit when the end of all partitions is reached")
    parser.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help=r"how to print a record: %%s value, %%J value as indented JSON, %%k key, %%t topic, %%p partition, %%o"
        r" offset, %%T timestamp, %%h headers, %%S and %%K sizes of the value and the key, %%R size of the"
        r" value as four bytes, \n \t; default: %%s\n",
    )
    parser.add_argument(
        "-K", "--key-delimiter", metavar="DELIM", help="print the key and this separator before the value"
    )
    parser.add_argument(
        "-D", "--delimiter", metavar="DELIM", default="\\n", help="print this text after each record; default: \\n"
    )
    parser.add_argument("-J", "--json", action="store_true", help="print a JSON object for each record")
    parser.add_argument(
        "-Z",
        "--null",
        metavar="TEXT",
        nargs="?",
        const="NULL",
        default="NULL",
        help="print this text for null; default: NULL",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="accepted for compatibility with kcat, but has no effect: only records are printed",
    )
    parser.add_argument("-G", "--group", metavar="GROUP", help="read as a member of this group, and commit offsets")
    add_isolation_level(parser)
    add_formats(parser, "decode {part}s with schemas from the schema registry, and print them as JSON")
    add_connection(parser)
    parser.set_defaults(run=run)


def _position(text: str) -> str:
    if re.fullmatch(r"beginning|earliest|end|latest|stored|-?\d+|[se]@\d+", text):
        return {"earliest": "beginning", "latest": "end"}.get(text, text)
    raise argparse.ArgumentTypeError(f"{text!r} is not an offset: give beginning, end, stored, N, -N, s@MS or e@MS")


def renderer(options: argparse.Namespace) -> Render:
    if options.json:
        return json_render(frozenset(formats_of(options)))
    if options.format is not None:
        text = options.format
    else:
        key = "" if options.key_delimiter is None else f"%k{options.key_delimiter.replace('%', '%%')}"
        text = f"{key}%s{options.delimiter.replace('%', '%%')}"
    return formatted(text, null=options.null.encode())


def run(options: argparse.Namespace) -> int:
    positions = options.offsets or ()
    starts = [each for each in positions if not each.startswith("e@")]
    until = [int(each[2:]) for each in positions if each.startswith("e@")]
    options.offset = starts[0] if starts else "beginning"
    options.until_ms = until[0] if until else None
    if len(starts) > 1 or len(until) > 1:
        raise ValueError("give at most one --offset at which to begin, and one e@MS at which to stop")
    if options.group is None and options.offset == "stored":
        raise ValueError("--offset stored needs a --group")
    is_placed = options.partition is not None or options.offset not in ("beginning", "end", "stored") or until
    if options.group is not None and is_placed:
        raise ValueError("--group continues at the offsets of the group: leave out --partition and --offset")
    asyncio.run(_consume(options, renderer(options)))
    return DONE


async def _consume(options: argparse.Namespace, render: Render) -> None:
    from odradek.client.consumer import Consumer

    decoder = None
    if formats_of(options):
        from odradek.tools.commands.record_schemas import decoder_of

        decoder = decoder_of(options)
    timeout_ms = options.timeout * 1000
    async with Consumer(
        **client_settings(options),
        group_id=options.group,
        isolation_level=options.isolation_level,
        auto_offset_reset="latest" if options.offset == "end" else "earliest",
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=max(timeout_ms, 1_000),
        allow_auto_create_topics=False,
    ) as consumer:
        partitions = await _partitions(options)
        if options.group is not None:
            consumer.subscribe([options.topic])
        else:
            consumer.assign(partitions)
            await _seek(consumer, partitions, options.offset)
        ends = await _ends(consumer, partitions, options)
        await _print(consumer, options, render, ends, decoder)


async def _partitions(options: argparse.Namespace) -> list[TopicPartition]:
    """Returns the partitions to read. Uses an Admin, because a consumer would wait until the topic exists."""
    async with admin(options, options.timeout * 1000) as connection:
        found = (await connection.describe_topics([options.topic]))[options.topic]
    there = [each.partition for each in found.partitions]
    if options.partition is not None and options.partition not in there:
        raise CommandError(
            f"{options.topic} has no partition {options.partition}; it has {len(there)} partitions", NOT_FOUND
        )
    return [TopicPartition(options.topic, index) for index in there if options.partition in (None, index)]


async def _ends(
    consumer: Consumer, partitions: list[TopicPartition], options: argparse.Namespace
) -> dict[TopicPartition, int] | None:
    """Returns the (exclusive) offset at which to stop in each partition, or None to read forever."""
    if not options.exit and options.until_ms is None:
        return None
    ends = await consumer.end_offsets(partitions)
    if options.until_ms is None:
        return ends
    since = await consumer.offsets_for_times(dict.fromkeys(partitions, options.until_ms))
    return {
        each: ends[each] if (found := since[each]) is None else min(found.offset, ends[each]) for each in partitions
    }


async def _seek(consumer: Consumer, partitions: list[TopicPartition], position: str) -> None:
    if position == "beginning":
        consumer.seek_to_beginning()
    elif position == "end":
        consumer.seek_to_end()
    elif position.startswith("s@"):
        since = await consumer.offsets_for_times(dict.fromkeys(partitions, int(position[2:])))
        for partition, found in since.items():
            if found is None:
                consumer.seek_to_end(partition)
            else:
                consumer.seek(partition, found.offset)
    elif position.startswith("-"):
        first, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, max(first[partition], ends[partition] + int(position)))
    else:
        for partition in partitions:
            consumer.seek(partition, int(position))


async def _print(
    consumer: Consumer,
    options: argparse.Namespace,
    render: Render,
    ends: dict[TopicPartition, int] | None,
    decoder: RecordDecoder | None,
) -> None:
    """Prints records until the requested count or the (exclusive) end offsets are reached."""
    left = options.count
    out = sys.stdout.buffer
    while left is None or left > 0:
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=500 if left is None else min(left, 500))
        count = 0
        for partition, records in found.items():
            end = None if ends is None else ends.get(partition)
            for record in records:
                if end is None or record.offset < end:
                    out.write(render(record if decoder is None else await decoder.decoded(record)))
                    count += 1
        out.flush()
        if options.group is not None and count:
            await consumer.commit()
        if left is not None:
            left -= count
        if ends is not None and await _is_at(consumer, ends):
            return


async def _is_at(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Returns whether the end offsets have been reached. In a group, only the partitions assigned to this member are
    considered."""
    assigned = consumer.assignment()
    if not assigned:
        return False
    return all([await consumer.position(each) >= ends[each] for each in assigned if each in ends])
