"""A share group with a dead-letter queue on a `TxnShareBroker`. Tests read the queue and the stored states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.shares.core.dead_letters import QueueRules
from odradek.protocol.batch_header import batches
from odradek.protocol.compression import Compression
from odradek.protocol.records import NewRecord, Record, build_batch, records_of
from odradek.storage.log import Origin
from tests.support.txn_share_broker import TxnShareBroker

QUEUE = "dlq.a"
MARK = "errors.deadletterqueue.group.enable"
LIMIT, LOCK_MS = 2, 15_000
REJECTED, TOO_MANY = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


class Copy(NamedTuple):
    """A record of the dead-letter queue, described by its headers. `told` contains the delivery count and the cause."""

    topic: str
    partition: int
    offset: int
    group: str
    told: tuple[int, str]
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, record: Record) -> Copy:
        names = [name.removeprefix("__dlq.errors.") for name, _ in record.headers]
        assert names == ["topic", "partition", "offset", "group", "delivery.count", "message"]
        topic, partition, offset, group, count, message = ((text or b"").decode() for _, text in record.headers)
        return cls(topic, int(partition), int(offset), group, (int(count), message), record.key, record.value)


class DeadLetterScene(TxnShareBroker):
    """A broker with dead-letter queues. The group delivers each record `LIMIT` times. Its default queue is the existing
    topic `QUEUE`."""

    def __init__(self, *, has_queue: bool = True) -> None:
        super().__init__()
        self.set_level("share.version", 2)
        self.set_group(
            share_delivery_count_limit=str(LIMIT),
            share_record_lock_duration_ms=str(LOCK_MS),
            errors_deadletterqueue_topic_name=QUEUE,
        )
        if has_queue:
            self.queue()

    def queue(self, name: str = QUEUE, partition_count: int = 1, *, is_marked: bool = True, **settings: Any) -> None:
        self.topic(name, partition_count, **settings)
        if is_marked:
            self.mark(name)

    def mark(self, name: str) -> None:
        self.image.configs.setdefault((ConfigResourceType.TOPIC, name), {})[MARK] = "true"

    def allow_creation(self, prefix: str = "dlq.") -> None:
        self.queue_rules = QueueRules(creates_topics=True, prefix=prefix)

    def copy_whole(self) -> None:
        self.set_group(errors_deadletterqueue_copy_record_enable="true")

    def produce_records(
        self, topic: str, *values: bytes, key: bytes | None = None, compression: Compression = Compression.NONE
    ) -> None:
        """Produces the values in one batch. Each record also has a header `h`, which must not appear in copies."""
        now_ms = self.clock.now_ms()
        records = [NewRecord(key, value, now_ms, (("h", b"own"),)) for value in values]
        self.partition(topic).append_now(
            build_batch(records, compression=compression), origin=Origin.CLIENT, now_ms=now_ms
        )
        self.settle()

    def copies(self, queue: str = QUEUE, index: int = 0) -> list[Copy]:
        return [Copy.of(each) for each in self.records(queue, index)]

    def copied(self, queue: str = QUEUE, index: int = 0) -> list[int]:
        """Returns the copies' source offsets in order."""
        return [each.offset for each in self.copies(queue, index)]

    def records(self, topic: str, index: int = 0, first_offset: int = 0) -> list[Record]:
        log = self.partition(topic, index).log
        data = b"".join(map(bytes, log.reader.read_cold(first_offset, max_bytes=1 << 24).chunks))
        return [record for position, _ in batches(data) for record in records_of(data, position)]

    def batch_sizes(self, topic: str = QUEUE) -> list[int]:
        data = b"".join(map(bytes, self.partition(topic).log.reader.read_cold(0, max_bytes=1 << 24).chunks))
        return [header.record_count for _, header in batches(data)]

    def states(self) -> list[list[tuple[int, int, int, int]]]:
        """Returns (first offset, last offset, state, delivery count) for every range in each write so far."""
        written: Sequence[Any] = self.persister.writes
        return [[tuple(each) for each in write.batches] for write in written]
