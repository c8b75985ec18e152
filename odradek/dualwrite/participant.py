"""Kafka's side of a dual write: the interface of a participant in two-phase commit, as defined by KIP-939."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from odradek.client.common.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    RecordMetadata,
    ShareGroupMetadata,
    TopicPartition,
)
from odradek.client.producing.share_acknowledgements import ToAcknowledge

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
Headers = Sequence[tuple[str, bytes | None]]


class ParticipantFenced(Exception):
    """The broker has registered a newer producer for this transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    topic: str
    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None  # None means that the producer chooses the partition
    timestamp_ms: int | None = None  # None means the current time
    headers: Headers = ()


class Participant(Protocol):
    """A producer with a transactional id. The broker never decides its transactions on its own.

    A prepared state is text that identifies one transaction; "" identifies no transaction. No call waits indefinitely.
    Calls raise ParticipantFenced if another producer has taken over the id, and other exceptions for other failures.
    """

    def take_over(self) -> str:
        """Fences earlier producers, but keeps their open transaction. Returns the state of that transaction, or "" if
        no transaction is open. Called once, before all other methods."""

    def begin(self) -> None: ...

    def send(self, message: OutgoingMessage) -> "Future[RecordMetadata]":
        """Adds a message to the producer's buffer. Failures are reported by `prepare`."""

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Adds offsets to the transaction. Raises an error on failure."""

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        """Adds acknowledgements of a share group's records to the transaction. Raises an error on failure."""

    def prepare(self) -> str:
        """Waits until all messages have been acknowledged, prepares the transaction, and returns its state. Raises an
        error if a message could not be written."""

    def complete(self, stored_state: str) -> None:
        """Commits the prepared transaction if `stored_state` is its state and aborts it otherwise. The transaction may
        also come from an earlier producer (see `take_over`)."""

    def abort(self) -> None: ...

    def close(self) -> None:
        """Closes the producer. A prepared transaction remains prepared."""
