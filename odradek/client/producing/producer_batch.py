"""A batch of records for one partition, encoded as records are added. A batch may also be built from Arrow columns;
`odradek[columns]` installs the necessary packages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.client.common.values import Headers, RecordMetadata
from odradek.protocol.batch_header import HEADER_BYTES, NO_LEADER_EPOCH, NO_SEQUENCE, TRANSACTIONAL, seal_batch
from odradek.protocol.compression import Compression, compress
from odradek.protocol.records import append_record, append_varint, records_of

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.columns import EncodedBatch

LARGEST_SEQUENCE = 2**31 - 1
NO_LIMIT = 2**31 - 1


class SendFuture(Protocol):
    """A record's future, either from asyncio or for a waiting thread."""

    def done(self) -> bool: ...
    def set_result(self, result: RecordMetadata, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def exception(self) -> BaseException | None: ...


class EncodedRecords(Protocol):
    """A batch encoded and compressed by `odradek.client.columns.EncodedBatch`. Times are in ms."""

    @property
    def data(self) -> bytearray: ...
    @property
    def record_count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that a batch's sequences belong to."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)


def _varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


# Encoded varints for the numbers in nearly every record: its size, its position in the batch, and the milliseconds
# since the first record.
_SMALL = 2048
_VARINTS = tuple(_varint(value) for value in range(_SMALL))


class ProducerBatch:
    """A batch of records. It is open while records are added. Each time it is sent, it is sealed again, because its
    identity and sequence may have changed."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "created_at",
        "futures",
        "identity",
        "is_closed",
        "is_compressed",
        "is_done",
        "last_error",
        "max_timestamp_ms",
        "may_come_late",
        "order",
        "record_count",
        "size_bytes",
        "timestamps_ms",
    )

    def __init__(self, order: int, created_at: float, timestamp_ms: int) -> None:
        """Creates an open batch without records.

        order        position among the partition's batches: later batches have larger numbers
        created_at   seconds on the loop's clock
        """
        self.order = order
        self.created_at = created_at
        self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        self.buffer = bytearray(HEADER_BYTES)
        self.record_count = 0
        self.size_bytes = HEADER_BYTES  # size before compression
        self.futures: list[SendFuture] = []
        self.timestamps_ms: list[int] = []
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0  # number of times that the batch was sent
        self.is_closed = False
        self.is_compressed = False
        self.may_come_late = False  # True if a connection that the batch was sent on has been lost
        self.is_done = False  # True if the batch's futures are resolved
        self.last_error = ""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        limit_bytes: int,
        future: SendFuture,
    ) -> bool:
        """Adds a record and returns True. Returns False if the batch would exceed `limit_bytes`. The first record is
        always added."""
        count, delta_ms, buffer = self.record_count, timestamp_ms - self.base_timestamp_ms, self.buffer
        before = len(buffer)
        if key is None and value is not None and not headers and count < _SMALL and 0 <= delta_ms < _SMALL:
            size = len(value)
            delta, place = _VARINTS[delta_ms], _VARINTS[count]
            if size < _SMALL - 16:
                value_size = _VARINTS[size]
                record_size = _VARINTS[3 + len(delta) + len(place) + len(value_size) + size]
            else:
                value_size = _varint(size)
                record_size = _varint(3 + len(delta) + len(place) + len(value_size) + size)
            # The attributes are 0, the key is null (-1), and there are no headers.
            record = b"".join((record_size, b"\0", delta, place, b"\1", value_size, value, b"\0"))
            if before + len(record) > limit_bytes and count:
                return False
            buffer += record
        else:
            append_record(buffer, count, delta_ms, key, value, headers)
            if len(buffer) > limit_bytes and count:
                del buffer[before:]
                return False
        self.record_count = count + 1
        self.size_bytes = len(buffer)
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.futures.append(future)
        self.timestamps_ms.append(timestamp_ms)
        return True

    def fill(self, encoded: EncodedRecords, future: SendFuture) -> None:
        """Replaces the content with these records. The future resolves to the metadata of the first record."""
        self.buffer = encoded.data
        self.record_count = encoded.record_count
        self.size_bytes = len(encoded.data)
        self.base_timestamp_ms, self.max_timestamp_ms = encoded.base_timestamp, encoded.max_timestamp
        self.futures, self.timestamps_ms = [future], [encoded.base_timestamp]
        self.is_closed = self.is_compressed = True

    @property
    def can_split(self) -> bool:
        """True if the batch has several records, each with its own future, and no earlier copy of it can still
        arrive."""
        return 1 < self.record_count == len(self.futures) and not self.may_come_late

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Splits a sealed batch into two batches, each with half of the records and their sequences."""
        middle = self.record_count // 2
        halves = (
            ProducerBatch(self.order, self.created_at, self.timestamps_ms[0]),
            ProducerBatch(self.order + middle, self.created_at, self.timestamps_ms[middle]),
        )
        for index, record in enumerate(records_of(self.buffer)):
            half = halves[index >= middle]
            half.append(
                record.key, record.value, record.headers, self.timestamps_ms[index], NO_LIMIT, self.futures[index]
            )
        for half in halves:
            half.is_closed = True
        if self.has_sequence:
            halves[0].number(self.identity, self.base_sequence)
            halves[1].number(self.identity, halves[0].end_sequence)
        return halves

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def end_sequence(self) -> int:
        """The sequence after that of the last record."""
        return (self.base_sequence + self.record_count) & LARGEST_SEQUENCE

    def number(self, identity: ProducerIdentity, base_sequence: int) -> None:
        self.identity = identity
        self.base_sequence = base_sequence

    def seal(self, compression: Compression, *, is_transactional: bool) -> bytearray:
        """Returns the batch as it is sent: compressed and with its final header."""
        self.is_closed = True
        buffer = self.buffer
        if compression is not Compression.NONE and not self.is_compressed:
            buffer[HEADER_BYTES:] = compress(compression, memoryview(buffer)[HEADER_BYTES:].tobytes())
            self.is_compressed = True
        seal_batch(
            buffer,
            0,
            NO_LEADER_EPOCH,
            compression.value | (TRANSACTIONAL if is_transactional else 0),
            self.record_count - 1,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.identity.producer_id,
            self.identity.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        return buffer

    def succeed(self, topic: str, partition: int, base_offset: int | None, log_append_time_ms: int | None) -> None:
        """Resolves the future of every record with its offset."""
        self.is_done = True
        for index, future in enumerate(self.futures):
            if not future.done():
                timestamp_ms = self.timestamps_ms[index] if log_append_time_ms is None else log_append_time_ms
                offset = None if base_offset is None else base_offset + index
                future.set_result(RecordMetadata(topic, partition, offset, timestamp_ms))

    def fail(self, error: Exception) -> None:
        self.is_done = True
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                # Marks the exception as retrieved, so that asyncio does not warn if the future is never awaited.
                future.exception()


COLUMN_BATCH_BYTES = 256 * 1024


def encoded(
    keys: pa.Array | None,
    values: pa.Array,
    timestamps_ms: pa.Array | None,
    headers: pa.Array | None,
    batch_bytes: int,
    compression: Compression,
) -> list[EncodedBatch]:
    """Encodes all rows as batches. Called before any batch is sent, so that no row is sent if any row is invalid.
    Raises ValueError for an invalid row."""
    import numpy as np
    import pyarrow as pa

    from odradek.client.columns import encode

    if timestamps_ms is None:
        timestamps_ms = pa.array(np.full(len(values), time.time_ns() // 1_000_000, dtype=np.int64))
    return list(
        encode(values, timestamps_ms, keys=keys, headers=headers, batch_bytes=batch_bytes, compression=compression)
    )


def all_of(futures: Sequence[asyncio.Future[RecordMetadata]]) -> asyncio.Future[list[RecordMetadata]]:
    """Returns a future that resolves when all these futures have resolved, or fails with the first failure. If the
    future is never awaited, asyncio does not report the failure."""
    together: asyncio.Future[list[RecordMetadata]] = asyncio.gather(*futures)
    together.add_done_callback(lambda done: done.cancelled() or done.exception())
    return together
