"""Dead letters: the records of a share group that nobody could process, and their copies in the dead-letter queue of
the group (KIP-1191).

    rejected, or delivered too often → ARCHIVING, stored → copied, or that has failed → ARCHIVED, stored

This file decides where copies go and what is in them; `shares/leader/dead_letter_queues.py` reads and writes.
Source: docs/spec/dead-letter-queues.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.protocol.batch_header import HEADER_BYTES
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import NewRecord, build_batch


class Cause(Enum):
    """Why a record became a dead letter; the values are the texts of a header in the copy."""

    REJECTED = "Offset rejected by client."
    TOO_MANY_DELIVERIES = "Offset delivery count exceeded the threshold."


class DeadLetter(NamedTuple):
    """Neighbouring offsets, both inclusive, that became dead letters together.

    cause     None only until it is guessed, where the leader has loaded them as ARCHIVING
    is_whole  they are all of a range that was acquired, or loaded, together: their records are read together, too
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause | None = None
    is_whole: bool = False

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


def guessed(delivery_count: int, delivery_count_limit: int) -> Cause:
    """Returns the cause that is likely: the stored state does not name it."""
    return Cause.TOO_MANY_DELIVERIES if delivery_count >= delivery_count_limit else Cause.REJECTED


def without(letters: Sequence[DeadLetter], others: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Returns what is left of `letters` when the offsets of `others` are taken out. Takes time in proportion to both,
    but for sorting."""
    taken = sorted((each.first_offset, each.last_offset) for each in others)
    left: list[DeadLetter] = []
    at = 0
    for letter in sorted(letters, key=_first_offset):
        first = letter.first_offset
        while at < len(taken) and taken[at][1] < first:
            at += 1
        reached = at
        while reached < len(taken) and taken[reached][0] <= letter.last_offset:
            if taken[reached][0] > first:
                left.append(letter._replace(first_offset=first, last_offset=taken[reached][0] - 1, is_whole=False))
            first = max(first, taken[reached][1] + 1)
            reached += 1
        if first <= letter.last_offset:
            left.append(letter if first == letter.first_offset else letter._replace(first_offset=first, is_whole=False))
    return left


def _first_offset(letter: DeadLetter) -> int:
    return letter.first_offset


# The queue.

FORBIDDEN_PREFIX: Final = "__"


class QueueRules(NamedTuple):
    """The settings of the broker that concern dead-letter queues.

    creates_topics  errors.deadletterqueue.auto.create.topics.enable
    prefix          errors.deadletterqueue.topic.name.prefix
    """

    creates_topics: bool
    prefix: str


class UnusableQueue(KafkaError):
    """A dead-letter queue into which nothing is written, and no attempt at it is made."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_queue(name: str, is_marked: bool | None, rules: QueueRules) -> None:
    """Raises UnusableQueue unless the topic may be written to, or created and then written to.

    is_marked  whether the topic has errors.deadletterqueue.group.enable; None where there is no such topic
    """
    if not name.strip():
        raise UnusableQueue("the group names no dead-letter topic")
    if name.startswith(FORBIDDEN_PREFIX):
        raise UnusableQueue(f"the name of the dead-letter topic {name!r} begins with {FORBIDDEN_PREFIX}")
    if is_marked is False:
        raise UnusableQueue(f"the topic {name!r} does not have errors.deadletterqueue.group.enable=true")
    if is_marked is None and not rules.creates_topics:
        raise UnusableQueue(
            f"there is no topic {name!r}, and errors.deadletterqueue.auto.create.topics.enable is not true"
        )
    if rules.prefix.strip() and not name.startswith(rules.prefix):
        raise UnusableQueue(
            f"the name of the dead-letter topic {name!r} does not begin with {rules.prefix!r}, as"
            " errors.deadletterqueue.topic.name.prefix asks"
        )


# Configs of a dead-letter topic that the broker creates.
QUEUE_CONFIGS: Final = (("errors.deadletterqueue.group.enable", "true"), ("message.timestamp.type", "CreateTime"))


# The copies.


class Source(NamedTuple):
    """Where dead letters come from. topic: its name, or its id where it has been deleted"""

    topic: str
    partition: int
    group_id: str


class Content(NamedTuple):
    """The part of a record that is copied where the group asks for it. The headers of the source are not."""

    key: bytes | None
    value: bytes | None


NO_CONTENT: Final = Content(None, None)
VARINTS_BYTES: Final = 32  # at most, of a record without its headers
HEADER_VARINTS_BYTES: Final = 10


def copy_of(source: Source, offset: int, letter: DeadLetter, content: Content, now_ms: int) -> NewRecord:
    """Makes the record that is written into the dead-letter queue for one offset."""
    assert letter.cause is not None
    headers = (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", source.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.delivery_count),
        ("__dlq.errors.message", letter.cause.value.encode()),
    )
    return NewRecord(content.key, content.value, now_ms, headers)


def batches_within(records: Iterable[NewRecord], most_bytes: int) -> Iterator[list[NewRecord]]:
    """Cuts copies into batches of at most `most_bytes`. One that does not fit alone goes without key and value.

    Raises MESSAGE_TOO_LARGE, after the batches before, for a record that does not fit even then.
    """
    batch: list[NewRecord] = []
    size = HEADER_BYTES
    for record in records:
        record_bytes = _most_bytes(record)
        if HEADER_BYTES + record_bytes > most_bytes and len(build_batch([record])) > most_bytes:
            record = record._replace(key=None, value=None)
            record_bytes = _most_bytes(record)
            if HEADER_BYTES + record_bytes > most_bytes and len(build_batch([record])) > most_bytes:
                if batch:
                    yield batch
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"max.message.bytes of the dead-letter topic is {most_bytes}, which is too little for the headers"
                    " of a copy",
                )
        if batch and size + record_bytes > most_bytes:
            yield batch
            batch, size = [], HEADER_BYTES
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch


def _most_bytes(record: NewRecord) -> int:
    """Returns the size of a record in a batch, or a little more."""
    size = VARINTS_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += HEADER_VARINTS_BYTES + len(name) + len(content or b"")
    return size
