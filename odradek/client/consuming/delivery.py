"""Records on their way to the application: taken from the fetched ones, and handed over one by one. Where a partition
runs empty, more is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.client.common.errors import ClientError
from odradek.client.common.values import ConsumerRecord, TopicPartition
from odradek.client.consuming.fetched import RawBatches
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.positions import Positions
from odradek.protocol.errors import ErrorCode, MalformedMessage


class Delivery:
    """Records of one partition that were taken and not given yet. `take` is what each record passes through: it does
    little.

    It may be called from another thread than everything else, as long as nothing else happens meanwhile but `hold`.
    """

    __slots__ = ("_given", "_records", "_topic_partition", "is_held")

    def __init__(self) -> None:
        self._topic_partition: TopicPartition | None = None
        self._records: Sequence[ConsumerRecord] = ()
        self._given = 0
        self.is_held = False  # nothing is given until the consumer has looked after its group

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
        """Something else after every `take`."""
        return self._topic_partition, id(self._records), self._given

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset of the next record of this partition; None where that is not on its way here."""
        if topic_partition != self._topic_partition or self._given == len(self._records):
            return None
        return self._records[self._given].offset


class Taking:
    def __init__(
        self, positions: Positions, delivery: Delivery, fetcher: Fetcher, returned: Callable[[str, int], None]
    ) -> None:
        """returned   called with the topic and the number of records that were taken"""
        self._returned = returned
        self._positions = positions
        self._delivery = delivery
        self._fetcher = fetcher

    def first(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Records of one partition, those first that `getone` has left over. Raises as `more`."""
        return self._delivery.take_rest(max_records) or self.more(max_records)

    def more(self, max_records: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Records of the partition whose turn it is. Raises ClientError for damaged ones."""
        emptied = self._positions.emptied
        try:
            taken = self._positions.take(max_records)
        except MalformedMessage as error:
            raise ClientError(f"damaged records: {error}", ErrorCode.CORRUPT_MESSAGE) from None
        if self._positions.emptied != emptied:  # which is much rarer than a take
            self._fetcher.wake()
        if taken is not None:
            self._returned(taken[0].topic, len(taken[1]))
        return taken

    def batches(self) -> dict[TopicPartition, RawBatches] | None:
        """Takes what one Fetch brought of each partition."""
        taken = self._positions.take_batches()
        if taken:
            self._fetcher.wake()
        for partition, each in taken.items():  # unopened: nobody has counted their records
            self._returned(partition.topic, each.end_offset - each.start_offset)
        return taken or None
