"""The parts of a decision. Nothing in an `Outcome` has happened yet. In one turn of the loop, the caller appends its
records, replays them, lets the core settle the rest, arms the timers and sends the replies, in this order. Outcomes are
not frozen, because creating a frozen one takes three times as long, and every transaction creates a dozen."""

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
"""Represents a request that is answered later. The core only stores and returns it; the caller knows its type."""

Response = object
"""The answer to a request; each request has its own type."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings on which decisions depend. The names are Kafka's property names with `_` for `.`."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # Pairs of a prefix and the milliseconds that replace the default.
    transactional_id_expiration_rules: tuple[tuple[str, int], ...] = ()
    transaction_two_phase_commit_enable: bool = False
    # A setting of Odradek: how long the record of a completion waits for another record of its id.
    completion_delay_ms: int = 0

    def expiration_ms(self, transactional_id: str) -> int:
        """Returns how long an unused id is remembered. Of the matching rules, the one with the longest prefix
        applies."""
        fitting = [rule for rule in self.transactional_id_expiration_rules if transactional_id.startswith(rule[0])]
        return max(fitting, key=lambda rule: len(rule[0]))[1] if fitting else self.transactional_id_expiration_ms


@dataclass(slots=True)
class DecisionInputs:
    """The inputs of a decision other than the state and the request.

    transaction_version  the finalised level of the cluster: 0, 1 or 2
    new_producer_id      an unused producer id; without it the decision may be `PRODUCER_ID_NEEDED`
    """

    now_ms: int
    transaction_version: int = 2
    new_producer_id: int | None = None


class OverdueFate(Enum):
    """What happens to a transaction after locks on records that it acknowledges have expired (KIP-1289)."""

    ENDING = auto()  # The transaction is decided, and its markers are being written.
    PENDING = auto()  # The transaction is a two-phase commit, which only its owner ends.
    OVER = auto()  # The transaction is complete or unknown.


@dataclass(slots=True)
class PendingMarkers:
    """The markers that a decided transaction still waits for.

    must_sync  a marker only counts as written once it is synced, because no coordinator sends it again after the
               transaction is complete
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
    """A message to the request that the token represents, to be sent once its records are durable. The groups have a
    `Reply` of their own, which is frozen and holds only responses to JoinGroup and SyncGroup."""

    token: Token
    message: Response


@dataclass(slots=True)
class Timer:
    """Re-arms the timer of this transactional id, or disarms it if there is no delay. The timers of groups have a class
    of their own, because their keys are tuples."""

    key: str
    delay_ms: int | None


@mypyc_attr(native_class=False)  # mypyc 2.4 makes generic dataclasses that cannot be imported
@dataclass(slots=True)
class Outcome(Generic[R_co]):
    """A decision of `TransactionCore`. `GroupCore` and `StateCore` have outcomes of their own, with other parts; the
    parts that all have are in `coordinators/shard.py::OutcomeLike`.

    response           the response; None if the request's token is stored until the transaction is complete
    records            to append, all or none unless `may_split`; then to replay in order
    markers            to send once the records are durable; the results are reported to `markers_written`
    needs_producer_id  nothing was decided and the rest is empty: decide again with `DecisionInputs.new_producer_id`
    completed          a transaction whose last marker is written, in the form in which it will be recorded
    reserved           a transactional id that has a producer id but no record yet
    awaited            by transactional id: the request that waits for the end, and its response; None if none waits
    remaining          by transactional id: the partitions that still need a marker
    to_sync            partitions whose records also have to be synced before the response: those of a transaction that
                       has become, or turned out to be, a two-phase commit
    must_sync          whether response and replies wait for an fdatasync regardless of the settings, even if nothing is
                       recorded, since they may depend on records of another request
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
    markers: Sequence[PendingMarkers] = ()
    needs_producer_id: bool = False
    reserved: Txn | None = None
    completed: Txn | None = None
