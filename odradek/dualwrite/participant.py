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
    """The broker has seen a newer producer for this transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    topic: str
    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None  # None: chosen by the key
    timestamp_ms: int | None = None  # None: now
    headers: Headers = ()


class Participant(Protocol):
    """One producer of one transactional id, which never lets the broker decide by itself.

    A prepared state is text that identifies one transaction; "" identifies none. All calls wait for a bounded time.
    They raise ParticipantFenced if another producer has the id, and other exceptions for other failures.
    """

    def take_over(self) -> str:
        """Fences earlier producers, but keeps their open transaction. Returns its state. Called once, before everything
        else."""

    def begin(self) -> None: ...

    def send(self, message: OutgoingMessage) -> "Future[RecordMetadata]":
        """Adds a message to the producer's buffer. `prepare` reports failures."""

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Adds offsets to the transaction. Raises an error if that fails."""

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        """Like `send_offsets`, for records of a share group."""

    def prepare(self) -> str:
        """Waits until every message is acknowledged, and returns the state of the transaction. Raises an error if a
        message could not be written."""

    def complete(self, stored_state: str) -> None:
        """Commits the prepared transaction if this is its state, and aborts it otherwise. It may also be one that
        `take_over` found."""

    def abort(self) -> None: ...

    def close(self) -> None:
        """Closes the producer. A prepared transaction stays prepared."""
