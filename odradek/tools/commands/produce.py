"""Implements `odradek produce`, which sends records from standard input or files, like kcat -P and
kafka-console-producer."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from odradek.client.common.errors import ClientError
from odradek.tools.commands.errors import DONE, CommandError, explained
from odradek.tools.commands.options import add_connection, add_list, add_topic, client_settings, setting
from odradek.tools.commands.record_format import delimiter
from odradek.tools.commands.schema_options import add_formats, formats_of

if TYPE_CHECKING:
    from odradek.client.common.values import RecordMetadata

    Sent: TypeAlias = tuple[int, asyncio.Future[RecordMetadata]]

READ_BYTES = 1 << 16
BY_KEY = -1  # kcat's number for "no fixed partition"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        type=Path,
        help="send each of these files as one record; default: one record for each line of standard input",
    )
    add_topic(parser)
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        metavar="N",
        help="the partition. By default, and with -1, the key decides; records without a key are spread over all"
        " partitions",
    )
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    parser.add_argument("-K", "--key-delimiter", metavar="DELIM", help="the separator between key and value in a line")
    parser.add_argument(
        "-D", "--delimiter", metavar="DELIM", default="\\n", help="the terminator of records in the input; default: \\n"
    )
    parser.add_argument("-l", "--lines", action="store_true", help="send one record for each line of the files")
    add_list(parser, "-H", "--header", type=setting, metavar="NAME=VALUE", help="add this header to every record")
    parser.add_argument("-c", "--count", type=int, metavar="N", help="stop after N records")
    parser.add_argument("-Z", "--null", action="store_true", help="send empty keys and values as null")
    parser.add_argument(
        "-z",
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="the compression of batches; default: none",
    )
    parser.add_argument(
        "--acks",
        choices=("all", "1", "0"),
        default="all",
        help="how many replicas must acknowledge a record; default: all",
    )
    parser.add_argument(
        "--transactional-id",
        metavar="ID",
        help="send everything in one transaction, and commit it at the end of the input",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="accepted for compatibility with kcat, but has no effect: without --report nothing is printed",
    )
    parser.add_argument(
        "--report", action="store_true", help="print where each record was written: TOPIC PARTITION OFFSET"
    )
    add_formats(parser, "read {part}s as JSON, and encode them with schemas from the schema registry")
    named = parser.add_mutually_exclusive_group()
    named.add_argument(
        "--subject",
        metavar="SUBJECT",
        help="encode values with the latest schema of this subject; default: TOPIC-value. Keys always use TOPIC-key",
    )
    named.add_argument("--schema-id", type=int, metavar="ID", help="encode values with the schema that has this id")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.value_format is None and (options.subject is not None or options.schema_id is not None):
        raise ValueError("--subject and --schema-id choose the schema of values, so they need --value-format")
    asyncio.run(_produce(options))
    return DONE


async def _produce(options: argparse.Namespace) -> None:
    from odradek.client.producer import Producer

    key_delimiter = None if options.key_delimiter is None else delimiter(options.key_delimiter)
    headers = [(name, value.encode()) for name, value in options.header]
    encoder = None
    if formats_of(options):
        from odradek.tools.commands.record_schemas import encoder_of

        encoder = await encoder_of(options)
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
        sent: deque[Sent] = deque()
        read = _blocks(options)
        partition = None if options.partition == BY_KEY else options.partition
        count = 0
        # Reading can wait for the user to type, so the event loop sends the records read so far in the meantime.
        while block := await asyncio.to_thread(next, read, None):
            for record in block[: None if options.count is None else options.count - count]:
                count += 1
                key, value = options.key.encode() if options.key is not None else None, record
                if key_delimiter is not None:
                    before, separator, after = record.partition(key_delimiter)
                    key, value = (before, after) if separator else (key, record)
                key = None if options.null and not key else key
                content = None if options.null and not value else value
                try:
                    if encoder is not None:
                        key, content = encoder.encoded("key", key), encoder.encoded("value", content)
                    future = await producer.send(
                        options.topic,
                        content,
                        key=key,
                        partition=partition,
                        headers=headers,
                    )
                except (ClientError, CommandError) as error:
                    raise _record_error(count, error) from error
                sent.append((count, future))
            while sent and sent[0][1].done():
                _report(*sent.popleft(), report=options.report)
            if count == options.count:
                break
        await producer.flush()
        for each in sent:
            await asyncio.wait([each[1]])
            _report(*each, report=options.report)
        if options.transactional_id is not None:
            await producer.commit_transaction()


def _report(number: int, future: asyncio.Future[RecordMetadata], *, report: bool) -> None:
    try:
        metadata = future.result()
    except ClientError as error:
        raise _record_error(number, error) from error
    if report:
        print(metadata.topic, metadata.partition, "-" if metadata.offset is None else metadata.offset)


def _record_error(number: int, error: ClientError | CommandError) -> CommandError:
    status, words = explained(error)
    return CommandError(f"record {number}: {words}", status)


def _blocks(options: argparse.Namespace) -> Iterator[list[bytes]]:
    """Yields records in blocks as they arrive. No block is empty. A record is either a complete file or ends with the
    delimiter, which is optional after the last record."""
    end = delimiter(options.delimiter)
    if options.files and not options.lines:
        for path in options.files:
            yield [path.read_bytes()]
        return
    for path in options.files:
        with path.open("rb") as file:
            yield from split(file.read, end)
    if not options.files:
        yield from split(cast("BufferedReader", sys.stdin.buffer).read1, end)


def split(read: Callable[[int], bytes], end: bytes) -> Iterator[list[bytes]]:
    """Yields lists of records. Each list contains all the records read so far, so that no line typed by a user is held
    back."""
    rest = b""
    while part := read(READ_BYTES):
        *whole, rest = (rest + part).split(end)
        if whole:
            yield whole
    if rest:
        yield [rest]
