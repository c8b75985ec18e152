"""Reads logs and metadata log snapshots. Both consist of record batches, in the format that
docs/formats/record-batch.md describes.

Reading continues after a batch with a wrong CRC. Its length is trusted if it does not exceed the file and another batch
begins where this one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.files.batches import describe_damage, good_header
from odradek.protocol.batch_header import (
    BatchHeader,
    computed_crc,
)
from odradek.protocol.decoded.internal_records import control_fields, fields_of
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, records_of
from odradek.protocol.struct import Buffer
from odradek.tools.inspect.entries import Damage, FileEntry, Finding

ANY_OFFSET = -(1 << 63)  # accepts every offset; descending offsets are shown, and reported as damage


def read_log(data: Buffer, base_offset: int, topic: str | None, *, with_records: bool = True) -> Iterator[Finding]:
    """Yields the batches up to the first batch that cannot be read.

    base_offset  lowest valid offset of the first batch, which is the offset in the file's name
    topic        determines how records are decoded; if None, records remain bytes
    """
    view = memoryview(data)
    position, next_offset = 0, base_offset
    while position < len(view):
        rest = len(view) - position
        header = good_header(view, position, rest, ANY_OFFSET)
        if header is None:
            if any(view[position:]):
                yield Damage(position, describe_damage(view, position, rest, ANY_OFFSET))
            else:
                yield Damage(position, f"{rest} zero bytes follow the last batch, as a crash may leave them")
            return
        size = header.size_bytes
        crc = computed_crc(view, position, size)
        yield FileEntry("batch", position, _batch_fields(header, is_valid=crc == header.crc))
        if crc != header.crc:
            yield Damage(position, f"the batch has the CRC {header.crc}, but the CRC of its bytes is {crc}")
        if header.base_offset < next_offset:
            yield Damage(position, f"the base offset is {header.base_offset}, but must be at least {next_offset}")
        if with_records:
            yield from _records(view, position, header, fields_of(topic))
        position, next_offset = position + size, max(next_offset, header.next_offset)


def _batch_fields(header: BatchHeader, *, is_valid: bool) -> dict[str, Any]:
    try:
        compression = header.compression.name.lower()
    except MalformedMessage as error:
        compression = str(error)
    fields: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "sizeInBytes": header.size_bytes,
        "leaderEpoch": header.leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "compression": compression,
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
        "isValid": is_valid,
    }
    if header.delete_horizon_ms is not None:
        fields["deleteHorizonMs"] = header.delete_horizon_ms
    return fields


def _records(
    view: memoryview, position: int, header: BatchHeader, fields_of_record: Callable[[Record], dict[str, Any]]
) -> Iterator[Finding]:
    read = control_fields if header.is_control else fields_of_record
    records = records_of(view, position)
    number = 0
    while True:
        try:
            record = next(records, None)
        except MalformedMessage as error:
            yield Damage(position, f"record {number} of the batch: {error}")
            return
        if record is None:
            return
        fields: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
        try:
            fields |= read(record)
        except MalformedMessage as error:
            yield FileEntry("record", position, fields | {"key": record.key, "value": record.value}, depth=1)
            yield Damage(position, f"the record at offset {record.offset}: {error}")
        else:
            if record.headers:
                fields["headers"] = [{"key": name, "value": value} for name, value in record.headers]
            yield FileEntry("control record" if header.is_control else "record", position, fields, depth=1)
        number += 1
