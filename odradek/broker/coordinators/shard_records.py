"""The storage of a coordinator core's records in a partition: the record format, the log, and replaying the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from odradek.protocol.batch_header import BatchHeader, batches
from odradek.protocol.compression import Compression
from odradek.protocol.control_records import read_marker
from odradek.protocol.errors import KafkaError, MalformedMessage
from odradek.protocol.records import Headers, records_of

if TYPE_CHECKING:
    from odradek.storage.verification import VerificationGuard

R = TypeVar("R")

FIRST_SEQUENCE: Final = 0  # Kafka's group coordinator writes this sequence number even without a producer id
RECORDS_BETWEEN_BREAKS: Final = 100  # number of records replayed between breaks for other clients; takes about 1.5 ms


class ShardLog(Protocol):
    """The log of a shard's partition."""

    @property
    def max_batch_bytes(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...

    def append(
        self, batch: bytearray, now_ms: int, guard: VerificationGuard | None = None, header: BatchHeader | None = None
    ) -> int:
        """Appends and writes a batch. Returns its base offset. If the method raises KafkaError, no part of the batch
        remains in the log.

        header  the header of `batch`, if the caller already has it
        """

    def is_durable(self, *, must_sync: bool) -> bool:
        """Returns whether `when_durable` would call its action immediately and without an error."""

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        """Calls `action`, possibly immediately, when everything appended so far is as durable as the settings require.

        must_sync  requires an fdatasync regardless of the settings
        """

    def read(self) -> AsyncIterator[bytes | bytearray | memoryview]:
        """Reads the entire log, in buffers that contain only complete batches."""


@dataclass(slots=True)
class RecordProducer:
    """The producer whose transaction the records belong to; see `Log.append` for the guard.

    must_sync  whether the transaction is a two-phase commit, in which case the response waits for an fdatasync
    """

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None
    must_sync: bool


def no_headers(record: object) -> Headers:
    return ()


def as_decoded(record: R, headers: Headers) -> R:
    return record


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The stored form of a core's records. `decode` returns None for a record that must be ignored.

    headers  returns, as record headers, the data that has no field in Kafka's record; Kafka ignores record headers
    revive   adds the data in the headers to a decoded record
    """

    encode: Callable[[Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], Any | None]
    compression: Compression = Compression.NONE
    base_sequence: int = FIRST_SEQUENCE
    headers: Callable[[Any], Headers] = no_headers
    revive: Callable[[Any, Headers], Any] = as_decoded


class ReplayTarget(Protocol):
    """The core methods that replaying a log calls."""

    def replay(self, record: Any, record_offset: int, producer_id: int) -> None: ...
    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None: ...


async def replay_log(log: ShardLog, form: RecordFormat, core: ReplayTarget) -> None:
    """Replays the entire log into a core, with breaks so that the event loop can do other work. Raises MalformedMessage
    if a batch cannot be decoded, or KafkaError if the log cannot be read."""
    since_break = 0
    async for data in log.read():
        for position, header in batches(data):
            try:
                for count in _replay_batch(form, core, data, position, header):
                    since_break += count
                    if since_break >= RECORDS_BETWEEN_BREAKS:
                        since_break = 0
                        await asyncio.sleep(0)
            except MalformedMessage as error:
                raise MalformedMessage(f"batch at offset {header.base_offset}: {error}") from error


def _replay_batch(
    form: RecordFormat, core: ReplayTarget, data: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> Iterator[int]:
    """Replays a batch. Yields the number of records that were replayed since the previous yield."""
    if header.is_control:
        marker = read_marker(data, position, header)
        if marker is not None:
            core.replay_marker(marker.producer_id, marker.producer_epoch, committed=marker.is_commit)
        yield 1
        return
    decode, count = form.decode, 0
    for stored in records_of(data, position):
        record = decode(stored.key, stored.value)
        if record is not None:
            if stored.headers:
                record = form.revive(record, stored.headers)
            core.replay(record, stored.offset, header.producer_id)
        count += 1
        if count == RECORDS_BETWEEN_BREAKS:
            yield count
            count = 0
    yield count
