"""The parts of a decision. An `Outcome` is only a plan. In one turn of the event loop, the caller carries out its parts
in this order: it appends the records, replays them, lets the core settle the rest, arms the timers and sends the
replies. Outcomes are not frozen, because creating a frozen object takes three times as long, and every transaction
creates a dozen of them."""

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
"""Represents a request that is answered later. The core only stores and returns the token; the caller knows its
type."""

Response = object
"""The response to a request. Each API has its own class."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings that decisions depend on. Each field is named after the Kafka property, with underscores instead of
    dots."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # Prefixes of transactional ids, each with the expiration time in milliseconds that replaces the default.
    transactional_id_expiration_rules: tuple[tuple[str, int], ...] = ()
    transaction_two_phase_commit_enable: bool = False
    # The longest time that a completion record waits for another record with its transactional id. Kafka has no such
    # setting.
    completion_delay_ms: int = 0

    def expiration_ms(self, transactional_id: str) -> int:
        """Returns the time after which an unused transactional id expires. If several rules match, the rule with the
        longest prefix applies."""
        fitting = [rule for rule in self.transactional_id_expiration_rules if transactional_id.startswith(rule[0])]
        return max(fitting, key=lambda rule: len(rule[0]))[1] if fitting else self.transactional_id_expiration_ms


@dataclass(slots=True)
class DecisionInputs:
    """The inputs of a decision other than the state and the request.

    transaction_version  the finalised level of the cluster: 0, 1 or 2
    new_producer_id      an unused producer id; if it is None, the result can be `PRODUCER_ID_NEEDED`
    """

    now_ms: int
    transaction_version: int = 2
    new_producer_id: int | None = None


class OverdueFate(Enum):
    """The fate of a transaction once the locks on records that it acknowledges have expired (KIP-1289)."""

    ENDING = auto()  # The transaction is decided, and its markers are being written.
    PENDING = auto()  # The transaction is a two-phase commit, which only its owner can end.
    OVER = auto()  # The transaction is complete, has been superseded, or is unknown.


@dataclass(slots=True)
class PendingMarkers:
    """The markers that a decided transaction still needs.

    must_sync  whether a marker must be synced before it is considered written, because no coordinator sends the marker
               again after the transaction is complete
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
    """The response to the request that the token represents. The response is sent once the decision's records are
    durable. Groups have their own `Reply` class, which is frozen and holds only responses to JoinGroup and
    SyncGroup."""

    token: Token
    message: Response


@dataclass(slots=True)
class Timer:
    """An instruction to restart the timer of a transactional id, or to stop it if `delay_ms` is None. Timers of groups
    have their own class, because their keys are tuples."""

    key: str
    delay_ms: int | None


@mypyc_attr(native_class=False)  # mypyc 2.4 makes generic dataclasses that cannot be imported
@dataclass(slots=True)
class Outcome(Generic[R_co]):
    """A decision of `TransactionCore`. `GroupCore` and `StateCore` have their own outcome classes with other fields.
    The fields that all outcomes share are declared in `coordinators/shard.py::OutcomeLike`.

    response           the response; None if the request's token is stored until the transaction is complete
    records            the records to append and then to replay in order. Either all or none are appended, unless
                       `may_split` is set
    markers            the markers to send once the records are durable; the results are reported to `markers_written`
    needs_producer_id  whether the decision must be made again with `DecisionInputs.new_producer_id`; if so, all other
                       fields are empty
    completed          a transaction whose last marker has been written, as it will be recorded
    reserved           the entry of a transactional id that has a producer id but no record yet
    awaited            by transactional id, the reply to the request waiting for the end of the transaction, or None if
                       no request is waiting any more
    remaining          by transactional id, the partitions that still need a marker
    to_sync            the partitions of a transaction that is now known to be a two-phase commit; their records have to
                       be synced before the response
    must_sync          whether the response and the replies wait for an fdatasync regardless of the settings. They also
                       wait if nothing is recorded, because they may depend on another request's records
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
