"""Parts of a decision. Nothing in an `Outcome` has happened yet: the shell appends its records, replays them, lets the
core settle the rest, arms the timers and releases the replies, in this order and in one turn of the loop. Not frozen,
which would treble the time that it takes to make one: every transaction takes a dozen of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from mypy_extensions import mypyc_attr

from odradek.broker.transactions.entry import Txn, TxnRecord
from odradek.protocol.topic_partition import TopicPartition

R_co = TypeVar("R_co", covariant=True)

Token = object
"""Stands for a request that is answered later; the core only keeps it and hands it back. The shell knows what it is."""

Response = object
"""What a decision is answered with: a type of its own for each request."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings that decisions depend on; the names are Kafka's property names, `.` as `_`, units said."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    transactional_id_expiration_rules: tuple[tuple[str, int], ...] = ()  # prefix, and milliseconds in place of those
    transaction_two_phase_commit_enable: bool = False
    completion_delay_ms: int = 0  # ours: how long the record of a complete transaction waits for another of its id

    def expiration_ms(self, transactional_id: str) -> int:
        """Returns how long an unused id is remembered. Of rules that fit, that with the longest prefix counts."""
        fitting = [rule for rule in self.transactional_id_expiration_rules if transactional_id.startswith(rule[0])]
        return max(fitting, key=lambda rule: len(rule[0]))[1] if fitting else self.transactional_id_expiration_ms


@dataclass(slots=True)
class Moment:
    """Facts that a decision needs beside state and request.

    transaction_version  the finalised level of the cluster: 0, 1 or 2
    new_producer_id      one that was never used; without it a decision may come out as `PRODUCER_ID_NEEDED`
    """

    now_ms: int
    transaction_version: int = 2
    new_producer_id: int | None = None


class OverdueFate(Enum):
    """Fates of a transaction after locks on what it acknowledges ran out (KIP-1289)."""

    ENDING = auto()  # decided, now or before: its markers are on their way
    PENDING = auto()  # a two-phase commit: nobody but its owner ends it
    OVER = auto()  # complete, or never heard of


@dataclass(slots=True)
class MarkersOwed:
    """The markers that a decided transaction still waits for.

    must_sync: written is only what survives power failure. Once the transaction is complete nobody sends them again.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    must_sync: bool


@dataclass(slots=True)
class Reply:
    """A message to the request that the token stands for, once what it rests on is recorded."""

    token: Token
    message: Response


@dataclass(slots=True)
class Timer:
    """Arm the timer of this transactional id anew, or with no delay given, disarm it."""

    key: str
    delay_ms: int | None


@mypyc_attr(native_class=False)  # mypyc 2.4 makes generic dataclasses that cannot be imported
@dataclass(slots=True)
class Outcome(Generic[R_co]):
    """A decision.

    response   the answer; None where the request's token is kept until the transaction is complete
    records    to append all or none, unless `may_split`; then to replay in order
    markers    to send once the records are durable; what became of them comes back by `markers_written`
    needs_producer_id  nothing is decided, and the rest is empty: decide again with `Moment.new_producer_id`
    completed  a transaction whose last marker is written, as it will be recorded
    reserved   a transactional id that has got a producer id and no record yet
    awaited    transactional id → who is told of its end, and what; None: nobody any more
    remaining  transactional id → the partitions that still owe their marker
    to_sync    partitions whose records, too, are synced before the response is given: those of a transaction that was
               just made, or found to be, a two-phase commit
    must_sync  whether answer and replies wait for an fdatasync whatever the settings say; also where nothing is
               recorded, since they may rest on what another request has just recorded
    """

    response: R_co | None = None
    records: Sequence[TxnRecord] = ()
    replies: Sequence[Reply] = ()
    timers: Sequence[Timer] = ()
    may_split: bool = False
    must_sync: bool = False
    awaited: Mapping[str, Reply | None] | None = None
    remaining: Mapping[str, frozenset[TopicPartition]] | None = None
    to_sync: frozenset[TopicPartition] = frozenset()
    markers: Sequence[MarkersOwed] = ()
    needs_producer_id: bool = False
    reserved: Txn | None = None
    completed: Txn | None = None
