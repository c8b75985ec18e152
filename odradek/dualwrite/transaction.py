"""The object that the block of a dual write works with."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic

from odradek.client.common.values import ConsumerGroupMetadata, RecordMetadata, ShareGroupMetadata
from odradek.client.producing.share_acknowledgements import ToAcknowledge
from odradek.dualwrite.database import C, Cursor, Driver, Parameters
from odradek.dualwrite.errors import IllegalUse
from odradek.dualwrite.participant import Headers, Offsets, Outgoing, Participant


class Transaction(Generic[C]):
    """Rows and messages of one block. It is over with the block.

    has_sent    messages, offsets or acknowledgements: there is a Kafka transaction to be committed
    connection  for whatever else the driver can do; but only the end of the block may end the transaction
    """

    def __init__(self, driver: Driver[C], connection: C, participant: Participant) -> None:
        self.connection = connection
        self.has_sent = False
        self._driver = driver
        self._participant = participant
        self._is_over = False

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        """A statement in the database's own words; parameters are marked as its driver wants them."""
        self._check_open()
        return self._driver.execute(self.connection, statement, parameters)

    def executemany(self, statement: str, parameters: Sequence[Parameters]) -> Cursor:
        self._check_open()
        return self._driver.executemany(self.connection, statement, parameters)

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "Future[RecordMetadata]":
        """Into the producer's buffer; waits only for room there. The future tells where the message lies, once it is
        acknowledged; a message that cannot be written makes the end of the block fail, whether it is asked or not."""
        self._begin()
        return self._participant.send(
            Outgoing(topic=topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        )

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Commit offsets of a consumer group, of the records to be read next, with the block. Give the consumer's
        `group_metadata()`: then those of a member that was expelled are refused. Raises ClientError if they are."""
        self._begin()
        self._participant.send_offsets(offsets, group)

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        """Acknowledge records of a share group with the block (KIP-1289): accept them, or ranges of offsets by their
        types. `group` is the share consumer's `share_group_metadata()`. Raises ClientError when one of them is not that
        consumer's any more, or the broker does not serve it."""
        self._begin()
        self._participant.acknowledge(records, group)

    def close(self) -> None:
        self._is_over = True

    def _begin(self) -> None:
        self._check_open()
        if not self.has_sent:
            self._participant.begin()
            self.has_sent = True

    def _check_open(self) -> None:
        if self._is_over:
            raise IllegalUse("the block of this transaction is over")
