"""Kafka's side of a dual write: the interface of a participant in two-phase commit, as KIP-939 defines it."""

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
    """The broker knows a newer producer for this transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    topic: str
    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None  # None: by the key
    timestamp_ms: int | None = None  # None: now
    headers: Headers = ()


class Participant(Protocol):
    """One producer of one transactional id, which never lets the broker decide by itself.

    A prepared state is text that names one transaction; "" names none. Calls raise ParticipantFenced when another
    producer has the id, and anything else for what went wrong otherwise; each waits for a bounded time.
    """

    def take_over(self) -> str:
        """Fence earlier producers and keep what they left open; gives its state. To be called once, and first."""

    def begin(self) -> None: ...

    def send(self, message: Outgoing) -> "Future[RecordMetadata]":
        """Into the producer's buffer. `prepare` is what tells of failures."""

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata) -> None:
        """Into the transaction; returns when it has them, and raises if it has not."""

    def acknowledge(self, records: ToAcknowledge, group: ShareGroupMetadata) -> None:
        """Do as `send_offsets` does, for records of a share group."""

    def prepare(self) -> str:
        """Wait until every message is acknowledged; raises if one is not. Gives the state of the transaction."""

    def complete(self, stored_state: str) -> None:
        """Commit what is prepared, or was found open, if that is its state, and abort it otherwise."""

    def abort(self) -> None: ...

    def close(self) -> None:
        """End; what is prepared stays prepared."""
