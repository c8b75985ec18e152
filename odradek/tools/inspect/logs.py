"""Logs, segment by segment, and snapshots of the metadata log, which consist of record batches as well.

A batch with a wrong CRC does not end the walk: its length is trusted as long as it stays within the file and the next
batch begins where it ends. Bytes: docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.protocol.batch_header import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    batch_size_at,
    computed_crc,
    unpack_batch_header,
)
from odradek.protocol.decoded.internal_records import control_fields, fields_of
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, records_of
from odradek.protocol.struct import Buffer
from odradek.tools.inspect.entries import Damage, FileEntry, Finding

OLD_MAGICS = (0, 1)


def read_log(data: Buffer, base_offset: int, topic: str | None, *, with_records: bool = True) -> Iterator[Finding]:
    """Reads batches, up to the first that cannot be read.

    base_offset  the first that may stand here; that in the file's name
    topic        decides how records are read; None: as bytes
    """
    view = memoryview(data)
    position, next_offset = 0, base_offset
    while position < len(view):
        damage = _what_is_wrong(view, position)
        if damage is not None:
            yield damage
            return
        header = unpack_batch_header(view, position)
        size = header.size_bytes
        crc = computed_crc(view, position, size)
        yield FileEntry("batch", position, _batch_fields(header, is_valid=crc == header.crc))
        if crc != header.crc:
            yield Damage(position, f"the CRC is {header.crc}; of these bytes it would be {crc}")
        if header.base_offset < next_offset:
            yield Damage(position, f"base offset {header.base_offset}, where {next_offset} is the least possible")
        if with_records:
            yield from _records(view, position, header, fields_of(topic))
        position, next_offset = position + size, max(next_offset, header.next_offset)


def _what_is_wrong(view: memoryview, position: int) -> Damage | None:
    """Explains why no batch can be read at `position`, and so none behind it."""
    rest = len(view) - position
    if not any(view[position : position + HEADER_BYTES]) and not any(view[position:]):
        return Damage(position, f"{rest} zero bytes behind the last batch, as a crash may leave them")
    if rest < HEADER_BYTES:
        return Damage(position, f"{rest} bytes at the end are not a batch: its header alone has {HEADER_BYTES}")
    header = unpack_batch_header(view, position)
    if header.magic in OLD_MAGICS:
        return Damage(position, f"a message of format {header.magic}, from before Kafka 0.11, and whatever follows")
    if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LOG_OVERHEAD:
        return Damage(position, f"no batch begins here: magic {header.magic}, length {header.batch_length}")
    size = batch_size_at(view, position)
    if size > rest:
        return Damage(position, f"a batch cut short: it announces {size} bytes, of which {rest} are there")
    return None


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
