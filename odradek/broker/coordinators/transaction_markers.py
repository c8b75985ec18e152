"""Markers in transit: from the coordinator that owes them to the partitions that wait for them.

    outcome's markers → MarkerSender → MarkerWriter → the leader's log → codes → MarkerSender → the core's next turn

Only `MarkerWriter` knows that coordinator and leaders live in one process: what passes through it is what a
WriteTxnMarkers request and its response hold.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.shares.core.state import Ending
from odradek.broker.transactions.tables import MarkerResult, marker_result
from odradek.protocol.control_records import sealed_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, PartitionCodes, TopicPartition
from odradek.storage.log import Origin

if TYPE_CHECKING:
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.transactions.turn import MarkersOwed, Outcome

logger = logging.getLogger("odradek.transactions")

FIRST_TOLD: Final = 2  # of the refusals of a marker
OnWritten = Callable[[Sequence[PartitionCodes]], None]
NOT_HERE: Final = frozenset(  # of the group or share coordinator: as any leader says it
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(slots=True)
class TxnMarker:
    """One entry of WriteTxnMarkers: the end of one producer's transaction in some partitions.

    must_sync: written is only what an fdatasync has made durable. A request has no field for it.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Sequence[TopicPartition]
    must_sync: bool = False


class MarkerWriter(Protocol):
    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        """Calls `then`, maybe at once, with one code per partition for each marker, when all are durable or refused."""


class ShareGroupMarkers(Protocol):
    """What markers do to acknowledgements that are pending; see `odradek.broker.shares.leader.markers.ShareMarkers`."""

    def require_loaded(self, index: int) -> None: ...
    def end(self, index: int, ending: Ending) -> None: ...
    def check(self, ending: Ending) -> None: ...


def ending_of(marker: TxnMarker) -> Ending:
    return Ending(marker.producer_id, marker.producer_epoch, marker.is_commit, marker.transaction_version)


class LocalMarkerWriter:
    """The partitions of this broker: what the leader does with WriteTxnMarkers.

    Source: docs/spec/transactions.md#s2-6.
    """

    def __init__(
        self, partitions: Partitions, groups: GroupCoordinator, clock: Clock, share_groups: ShareGroupMarkers
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._share_groups = share_groups

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        writing = Writing(markers, then)
        for number, marker in enumerate(markers):
            if not marker.partitions:  # from a coordinator elsewhere: to those who lead share partitions
                self._share_groups.check(ending_of(marker))
            for topic_partition in marker.partitions:
                done = partial(writing.done, number, topic_partition)
                try:
                    self._append(marker, topic_partition, done)
                except KafkaError as refusal:
                    done(refusal)
        writing.all_begun()

    def _append(
        self, marker: TxnMarker, topic_partition: TopicPartition, done: Callable[[KafkaError | None], None]
    ) -> None:
        topic, index = topic_partition
        try:
            partition = self._partitions.get(topic, index)
        except KafkaError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR
            )  # as in Kafka: a marker without a producer cannot be written
        if topic == GROUP_OFFSETS:
            self._require_coordinator(self._groups.require_loaded, index)
        elif topic == SHARE_GROUP_STATE:
            self._require_coordinator(self._share_groups.require_loaded, index)
        now_ms = self._clock.now_ms()
        batch, header = sealed_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        partition.append_now(
            batch,
            origin=Origin.COORDINATOR,
            now_ms=now_ms,
            header=header,
            transaction_version=marker.transaction_version,
        )
        if topic == GROUP_OFFSETS:
            self._groups.complete_transaction(
                index, marker.producer_id, marker.producer_epoch, committed=marker.is_commit
            )
        elif topic == SHARE_GROUP_STATE:
            self._share_groups.end(index, ending_of(marker))
        partition.when_durable(partition.log.log_end_offset, done, must_sync=marker.must_sync)

    def _require_coordinator(self, require_loaded: Callable[[int], None], index: int) -> None:
        """Before the marker is in the log: what it commits must take effect with it."""
        try:
            require_loaded(index)
        except KafkaError as error:
            if error.code in NOT_HERE:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
            raise


class Writing:
    """Markers under way, and what became of them so far."""

    def __init__(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        self._results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        self._missing = 1  # the last one: all are begun
        for marker in markers:
            self._missing += len(marker.partitions)
        self._then = then

    def done(self, number: int, topic_partition: TopicPartition, failure: KafkaError | None) -> None:
        self._results[number][topic_partition] = ErrorCode.NONE if failure is None else failure.code
        self._count_down()

    def all_begun(self) -> None:
        self._count_down()

    def _count_down(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._then(self._results)


class MarkerSender:
    """Sends the markers of the transactions of one `__transaction_state` partition."""

    def __init__(
        self,
        name: str,
        writer: MarkerWriter,
        exists: Callable[[TopicPartition], bool],
        written: Callable[[MarkersOwed, frozenset[TopicPartition]], None],
        lost: Callable[[Exception], None],
    ) -> None:
        """
        exists   whether metadata knows the partition; the marker of one that is gone is not owed any more
        written  takes which markers are there now, for the core
        lost     the decision could not be made durable, and nobody knows what of it is on the disk
        """
        self._name = name
        self._writer = writer
        self._exists = exists
        self._written = written
        self._lost = lost
        self._refusals: dict[str, Counter[tuple[TopicPartition, ErrorCode]]] = {}

    def carry_out(self, outcome: Outcome[object], failure: KafkaError | None) -> None:
        """The decision is as durable as the settings ask: send its markers. failure: why it is not."""
        if outcome.markers and failure is not None:
            self._lost(failure)
            return
        for owed in outcome.markers:
            self._send(owed)

    def _send(self, owed: MarkersOwed) -> None:
        wanted = [each for each in owed.partitions if self._exists(each)]
        wanted.sort()
        gone = owed.partitions.difference(wanted)
        if not wanted:
            self._refusals.pop(owed.transactional_id, None)
            self._written(owed, gone)
            return
        marker = TxnMarker(
            owed.producer_id,
            owed.producer_epoch,
            owed.is_commit,
            owed.coordinator_epoch,
            owed.transaction_version,
            wanted,
            owed.must_sync,
        )
        try:
            self._writer.write([marker], partial(self._answered, owed, gone))
        except Exception:
            # A bug, and not the transaction's: that one is tried again, rather than stuck for good.
            logger.exception("%s: the markers of %r could not be written", self._name, owed.transactional_id)
            self._written(owed, gone)

    def _answered(self, owed: MarkersOwed, gone: frozenset[TopicPartition], results: Sequence[PartitionCodes]) -> None:
        codes = results[0]
        done = {each for each, code in codes.items() if marker_result(code) is MarkerResult.DONE}
        if len(done) < len(codes):
            for topic_partition in codes.keys() - done:
                self._complain(owed, topic_partition, codes[topic_partition])
        elif self._refusals:
            self._refusals.pop(owed.transactional_id, None)
        self._written(owed, gone | done)

    def _complain(self, owed: MarkersOwed, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """Once for each reason, as there are several attempts a second; and not of the first, which after a restart
        may meet a partition that is loading."""
        refusals = self._refusals.setdefault(owed.transactional_id, Counter())
        refusals[topic_partition, code] += 1
        if refusals[topic_partition, code] != FIRST_TOLD:
            return
        logger.warning(
            "%s: the %s of %r waits for %s-%d, which answers its marker with %s; trying again",
            self._name,
            "commit" if owed.is_commit else "abort",
            owed.transactional_id,
            *topic_partition,
            code.name,
        )
