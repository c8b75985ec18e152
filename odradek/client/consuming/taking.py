"""Takes what was fetched for the application, and lets more be fetched where a partition has run empty."""

from __future__ import annotations

from odradek.client.common.errors import ClientError
from odradek.client.common.values import ConsumerRecord, TopicPartition
from odradek.client.consuming.delivery import Delivery
from odradek.client.consuming.fetched import RawBatches
from odradek.client.consuming.fetcher import Fetcher
from odradek.client.consuming.positions import Positions
from odradek.protocol.errors import ErrorCode, MalformedMessage


class Taking:
    def __init__(self, positions: Positions, delivery: Delivery, fetcher: Fetcher) -> None:
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
        return taken

    def batches(self) -> dict[TopicPartition, RawBatches] | None:
        """What one Fetch brought of each partition."""
        taken = self._positions.take_batches()
        if taken:
            self._fetcher.wake()
        return taken or None
