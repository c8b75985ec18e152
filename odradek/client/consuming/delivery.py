"""Hands fetched records to the application one by one and fetches more when a partition runs out of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.client.common.errors import ClientError
from odradek.client.common.values import ConsumerRecord, TopicPartition
from odradek.client.consuming.fetched import RawBatches
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.positions import Positions
from odradek.protocol.errors import ErrorCode, MalformedMessage


class Delivery:
    """The records of one partition that have been taken from the buffer but not yet returned to the application.

    `take` is called for every record, so it does as little as possible. It may run in a different thread from the other
    methods, provided that only `hold` is called at the same time.
    """

    __slots__ = ("_given", "_records", "_topic_partition", "is_held")

    def __init__(self) -> None:
        self._topic_partition: TopicPartition | None = None
        self._records: Sequence[ConsumerRecord] = ()
        self._given = 0
        self.is_held = False  # if True, no records are returned until the consumer has polled its group

    def load(self, topic_partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        self._topic_partition, self._records, self._given = topic_partition, records, 0

    def take(self) -> ConsumerRecord | None:
        given = self._given
        if self.is_held or given == len(self._records):
            return None
        self._given = given + 1
        return self._records[given]

    def take_rest(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        rest = self._records[self._given : self._given + max_records]
        if self.is_held or not rest:
            return None
        assert self._topic_partition is not None
        self._given += len(rest)
        return self._topic_partition, list(rest)

    def drop(self) -> None:
        self._records, self._given = (), 0

    @property
    def progress(self) -> tuple[TopicPartition | None, int, int]:
        """A value that changes with every `take`."""
        return self._topic_partition, id(self._records), self._given

    def position(self, topic_partition: TopicPartition) -> int | None:
        """Returns the offset of the next record of this partition, or None if no record of the partition is waiting to
        be returned."""
        if topic_partition != self._topic_partition or self._given == len(self._records):
            return None
        return self._records[self._given].offset


class RecordTaker:
    def __init__(
        self, positions: Positions, delivery: Delivery, fetcher: Fetcher, on_returned: Callable[[str, int], None]
    ) -> None:
        """`on_returned` is called with the topic and the number of records taken."""
        self._on_returned = on_returned
        self._positions = positions
        self._delivery = delivery
        self._fetcher = fetcher

    def take_first(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Returns records of one partition, beginning with any that `getone` has left over. Raises the errors of
        `take_more`."""
        return self._delivery.take_rest(max_records) or self.take_more(max_records)

    def take_more(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Returns records of the partition whose turn it is. Raises ClientError for damaged records."""
        exhausted_fetches = self._positions.exhausted_fetches
        try:
            delivered = self._positions.take(max_records)
        except MalformedMessage as error:
            raise ClientError(f"the records are damaged: {error}", ErrorCode.CORRUPT_MESSAGE) from None
        # A Fetch result has been used up, which happens far less often than a take.
        if self._positions.exhausted_fetches != exhausted_fetches:
            self._fetcher.wake()
        if delivered is not None:
            self._on_returned(delivered[0].topic, len(delivered[1]))
        return delivered

    def take_batches(self) -> dict[TopicPartition, RawBatches] | None:
        """Takes the batches from one Fetch response for each partition. Returns None if no batches are buffered."""
        delivered = self._positions.take_batches()
        if delivered:
            self._fetcher.wake()
        # The batches are still encoded, so the difference of the offsets serves as the number of records.
        for partition, each in delivered.items():
            self._on_returned(partition.topic, each.end_offset - each.start_offset)
        return delivered or None
