"""The values that applications pass to the client and receive from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """The place of a record. `offset` is None where the broker did not return it: with `acks=0`, or when a repeated
    batch had been in the log for long already. `timestamp_ms` is the broker's in topics of LogAppendTime."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class OffsetAndMetadata(NamedTuple):
    """`offset` is that of the record to be read next."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The member that commits offsets. With generation and member id, a commit by a member that was expelled from the
    group is refused; the group id alone asks for no such check."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
