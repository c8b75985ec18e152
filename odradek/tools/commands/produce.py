"""`odradek produce`: records from standard input or files, as kcat -P and kafka-console-producer."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from odradek.tools.commands.errors import DONE
from odradek.tools.commands.options import add_connection, add_topic, client_settings, setting
from odradek.tools.commands.record_format import delimiter

if TYPE_CHECKING:
    from odradek.client.common.values import RecordMetadata

READ_BYTES = 1 << 16
BY_KEY = -1  # what kcat calls unassigned


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path, help="one record each; default: lines of stdin")
    add_topic(parser)
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="default, and -1: by key, or spread")
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    parser.add_argument("-K", "--key-delimiter", metavar="DELIM", help="what separates key and value in a line")
    parser.add_argument("-D", "--delimiter", metavar="DELIM", default="\\n", help="what ends a record; default: \\n")
    parser.add_argument("-l", "--lines", action="store_true", help="a record for each line of the files")
    parser.add_argument(
        "-H", "--header", type=setting, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument("-c", "--count", type=int, metavar="N", help="stop after so many records")
    parser.add_argument("-Z", "--null", action="store_true", help="empty keys and values are null")
    parser.add_argument(
        "-z", "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", help="default: none"
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="default: all")
    parser.add_argument(
        "--transactional-id", metavar="ID", help="send everything in one transaction, committed at the end of input"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing, as it is anyway without --report")
    parser.add_argument("--report", action="store_true", help="print the place of each record: TOPIC PARTITION OFFSET")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    asyncio.run(_produce(options))
    return DONE


async def _produce(options: argparse.Namespace) -> None:
    from odradek.client.producer import Producer

    key_delimiter = None if options.key_delimiter is None else delimiter(options.key_delimiter)
    headers = [(name, value.encode()) for name, value in options.header]
    timeout_ms = options.timeout * 1000
    async with Producer(
        **client_settings(options),
        acks=options.acks if options.acks == "all" else int(options.acks),
        compression_type=options.compression,
        transactional_id=options.transactional_id,
        max_block_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        delivery_timeout_ms=2 * timeout_ms,
    ) as producer:
        if options.transactional_id is not None:
            await producer.init_transactions()
            await producer.begin_transaction()
        sent: list[asyncio.Future[RecordMetadata]] = []
        records = islice(_records(options), options.count)
        partition = None if options.partition == BY_KEY else options.partition
        # Reading waits for whoever types; meanwhile the loop sends what there is.
        while (record := await asyncio.to_thread(next, records, None)) is not None:
            key, value = options.key.encode() if options.key is not None else None, record
            if key_delimiter is not None:
                before, separator, after = record.partition(key_delimiter)
                key, value = (before, after) if separator else (key, record)
            sent.append(
                await producer.send(
                    options.topic,
                    None if options.null and not value else value,
                    key=None if options.null and not key else key,
                    partition=partition,
                    headers=headers,
                )
            )
            _raise_first(sent)
            if not options.report:
                sent = [each for each in sent if not each.done()]
        await producer.flush()
        for metadata in await asyncio.gather(*sent):
            if options.report:
                print(metadata.topic, metadata.partition, "-" if metadata.offset is None else metadata.offset)
        if options.transactional_id is not None:
            await producer.commit_transaction()


def _raise_first(sent: list[asyncio.Future[RecordMetadata]]) -> None:
    for each in sent:
        if each.done():
            each.result()


def _records(options: argparse.Namespace) -> Iterator[bytes]:
    """Each file, or what the delimiter separates; the last may lack it."""
    end = delimiter(options.delimiter)
    if options.files and not options.lines:
        for path in options.files:
            yield path.read_bytes()
        return
    for path in options.files:
        with path.open("rb") as file:
            yield from split(file, end)
    if not options.files:
        yield from split(sys.stdin.buffer, end)


def split(file: IO[bytes], end: bytes) -> Iterator[bytes]:
    if end == b"\n":
        for line in file:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while part := file.read(READ_BYTES):
        *whole, rest = (rest + part).split(end)
        yield from whole
    if rest:
        yield rest
