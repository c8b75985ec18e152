"""The transaction object that the application uses within a dual write's block."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic

from odradek.client.common.values import ConsumerGroupMetadata, RecordMetadata, ShareGroupMetadata
from odradek.client.producing.share_acknowledgements import ToAcknowledge
from odradek.dualwrite.database import C, Cursor, Driver, Parameters
from odradek.dualwrite.errors import IllegalUse
from odradek.dualwrite.participant import Headers, Offsets, OutgoingMessage, Participant


class Transaction(Generic[C]):
    """A transaction that covers the rows and messages of one `with` block and ends with the block.

    has_sent    True if messages, offsets or acknowledgements were sent, so that there is a Kafka transaction to commit
    connection  the database connection, for driver calls that this class does not offer. Do not commit or roll back
                through it.
    """

    def __init__(self, driver: Driver[C], connection: C, participant: Participant) -> None:
        self.connection = connection
        self.has_sent = False
        self._driver = driver
        self._participant = participant
        self._is_over = False

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        """Executes an SQL statement in the database. Parameters are marked in the database driver's style."""
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
        """Adds a message to the producer's buffer. Waits only if the buffer is full.

        The future resolves to the message's position once the message has been acknowledged. If a message cannot be
        written, the block fails when it ends, even if the future is never read.
        """
        self._begin()
        return self._participant.send(
            OutgoingMessage(
                topic=topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Commits a consumer group's offsets together with the block: the offset of the next record to read in each
        partition.

        Pass the consumer's `group_metadata()` as `group`, so that the broker refuses the offsets of a member that was
        removed from the group. Raises ClientError if the broker refuses the offsets.
        """
        self._begin()
        self._participant.send_offsets(offsets, group)

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        """Acknowledges records from a share group together with the block (KIP-1289). Records are accepted; each range
        of offsets is acknowledged with its type.

        `group` is the share consumer's `share_group_metadata()`. Raises ClientError if a record no longer belongs to
        that consumer, or if the broker does not support the request.
        """
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
            raise IllegalUse("the block of this transaction has ended")
