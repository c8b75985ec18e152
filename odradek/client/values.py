"""The values that applications pass to the client and receive from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a record came to stand. `offset` is None where the broker did not say: with `acks=0`, or when a repeated
    batch turned out to be in the log since long ago. `timestamp_ms` is the broker's in topics of LogAppendTime."""

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
    """Who commits offsets. With the generation and the member of a living consumer a commit of one that was expelled
    from the group is refused; the group's id alone asks for no such check."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
