"""The records of a coordinator's core as its partition stores them: their format, the log, and how it is replayed."""

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

FIRST_SEQUENCE: Final = 0  # the group coordinator of Kafka writes it although there is no producer id
RECORDS_BETWEEN_BREAKS: Final = 100  # of loading: some 1.5 ms, then the loop sees to its clients


class ShardLog(Protocol):
    """The partition of a shard."""

    @property
    def max_batch_bytes(self) -> int: ...
    @property
    def is_empty(self) -> bool: ...

    def append(
        self, batch: bytearray, now_ms: int, guard: VerificationGuard | None = None, header: BatchHeader | None = None
    ) -> int:
        """The base offset; the batch is written when this returns. Raises KafkaError, then nothing of it stays.

        header: that of `batch`, where the caller has it
        """

    def is_durable(self, *, must_sync: bool) -> bool:
        """Whether `when_durable` would run its action at once, without an error."""

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        """Runs `action`, maybe at once, when all that was appended is as durable as the settings ask.

        must_sync  whatever the settings say, only after an fdatasync
        """

    def read(self) -> AsyncIterator[bytes | bytearray | memoryview]:
        """The whole log from its start, in buffers of whole batches."""


@dataclass(slots=True)
class RecordsOf:
    """The producer in whose transaction records are written; see `Log.append` for the guard.

    must_sync: it takes part in a two-phase commit, and is answered only after an fdatasync
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
    """Stored form of the core's records. `decode` returns None for a kind that is to be passed over.

    headers  what is stored beside key and value, where Kafka has no field for it and passes over it
    revive   the record as it was before it was stored, headers included
    """

    encode: Callable[[Any], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], Any | None]
    compression: Compression = Compression.NONE
    base_sequence: int = FIRST_SEQUENCE
    headers: Callable[[Any], Headers] = no_headers
    revive: Callable[[Any, Headers], Any] = as_decoded


class Replayed(Protocol):
    """The side of a core that its log changes."""

    def replay(self, record: Any, record_offset: int, producer_id: int) -> None: ...
    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None: ...


async def replay_log(log: ShardLog, form: RecordFormat, core: Replayed) -> None:
    """Replays the whole log into a core, with breaks for the loop. Raises MalformedMessage, KafkaError."""
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
    form: RecordFormat, core: Replayed, data: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> Iterator[int]:
    """Yields how many records it has replayed since it did so before."""
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
