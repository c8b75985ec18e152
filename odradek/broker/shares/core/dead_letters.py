"""Dead letters are share group records that no consumer could process. They are copied to the group's dead-letter queue
(KIP-1191).

    rejected, or delivered too often → ARCHIVING, stored → copied, or the copy failed → ARCHIVED, stored

This module decides which queue receives the copies and what a copy contains; `shares/leader/dead_letter_queues.py`
reads the records and writes the copies.

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
    """The reason why a record became a dead letter. The value is the text of the copy's header
    `__dlq.errors.message`."""

    REJECTED = "Offset rejected by client."
    TOO_MANY_DELIVERIES = "Offset delivery count exceeded the threshold."


class DeadLetter(NamedTuple):
    """An inclusive range of offsets that became dead letters together.

    cause     None if the leader has loaded the offsets as ARCHIVING and has not guessed the cause yet
    is_whole  whether the range is a complete tracked batch; if so, its records are read together
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Cause | None = None
    is_whole: bool = False

    @property
    def record_count(self) -> int:
        return self.last_offset - self.first_offset + 1


def guess_cause(delivery_count: int, delivery_count_limit: int) -> Cause:
    """Returns the likely cause for a record that was loaded as ARCHIVING. The actual cause is not stored."""
    return Cause.TOO_MANY_DELIVERIES if delivery_count >= delivery_count_limit else Cause.REJECTED


def subtract_letters(letters: Sequence[DeadLetter], others: Iterable[DeadLetter]) -> list[DeadLetter]:
    """Returns the parts of `letters` whose offsets are not in `others`. Apart from sorting, the running time is
    proportional to the total number of letters."""
    ranges = sorted((each.first_offset, each.last_offset) for each in others)
    left: list[DeadLetter] = []
    at = 0
    for letter in sorted(letters, key=_first_offset):
        first = letter.first_offset
        while at < len(ranges) and ranges[at][1] < first:
            at += 1
        reached = at
        while reached < len(ranges) and ranges[reached][0] <= letter.last_offset:
            if ranges[reached][0] > first:
                left.append(letter._replace(first_offset=first, last_offset=ranges[reached][0] - 1, is_whole=False))
            first = max(first, ranges[reached][1] + 1)
            reached += 1
        if first <= letter.last_offset:
            left.append(letter if first == letter.first_offset else letter._replace(first_offset=first, is_whole=False))
    return left


def _first_offset(letter: DeadLetter) -> int:
    return letter.first_offset


# The queue.

FORBIDDEN_PREFIX: Final = "__"


class QueueRules(NamedTuple):
    """The broker settings that concern dead-letter queues.

    creates_topics  errors.deadletterqueue.auto.create.topics.enable
    prefix          errors.deadletterqueue.topic.name.prefix
    """

    creates_topics: bool
    prefix: str


class UnusableQueue(KafkaError):
    """Raised if the broker must not write to a dead-letter queue. Nothing has been written."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_queue(name: str, is_marked: bool | None, rules: QueueRules) -> None:
    """Raises UnusableQueue unless the broker may write to the topic, or may create it and then write to it.

    is_marked  whether the topic has errors.deadletterqueue.group.enable=true; None if the topic does not exist
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
            " errors.deadletterqueue.topic.name.prefix requires"
        )


# The topic configs of dead-letter topics that the broker creates.
QUEUE_CONFIGS: Final = (("errors.deadletterqueue.group.enable", "true"), ("message.timestamp.type", "CreateTime"))


# The copies.


class Source(NamedTuple):
    """The share partition that dead letters come from. `topic` is the topic's name, or its id if the topic has been
    deleted."""

    topic: str
    partition: int
    group_id: str


class Content(NamedTuple):
    """A source record's key and value. They are copied if the group's settings request it. Headers of the source record
    are never copied."""

    key: bytes | None
    value: bytes | None


NO_CONTENT: Final = Content(None, None)
VARINTS_BYTES: Final = 32  # maximum total size of the varints in a record without headers
HEADER_VARINTS_BYTES: Final = 10


def copy_of(source: Source, offset: int, letter: DeadLetter, content: Content, now_ms: int) -> NewRecord:
    """Builds the record to write to the dead-letter queue for one offset."""
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


def batches_within(records: Iterable[NewRecord], max_bytes: int) -> Iterator[list[NewRecord]]:
    """Splits the copies into batches of at most `max_bytes`. A copy that is too large even for a separate batch is
    yielded without its key and value.

    If a copy is too large even without its key and value, raises MESSAGE_TOO_LARGE after yielding the batches before
    it.
    """
    batch: list[NewRecord] = []
    size = HEADER_BYTES
    for record in records:
        record_bytes = _max_record_bytes(record)
        if HEADER_BYTES + record_bytes > max_bytes and len(build_batch([record])) > max_bytes:
            record = record._replace(key=None, value=None)
            record_bytes = _max_record_bytes(record)
            if HEADER_BYTES + record_bytes > max_bytes and len(build_batch([record])) > max_bytes:
                if batch:
                    yield batch
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"max.message.bytes of the dead-letter topic is {max_bytes}, which is too little for the headers"
                    " of a copy",
                )
        if batch and size + record_bytes > max_bytes:
            yield batch
            batch, size = [], HEADER_BYTES
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch


def _max_record_bytes(record: NewRecord) -> int:
    """Returns an upper bound on the record's size in a batch. The bound is close to the actual size."""
    size = VARINTS_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += HEADER_VARINTS_BYTES + len(name) + len(content or b"")
    return size
