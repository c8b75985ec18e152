"""Writes the markers of decided transactions. A round begins with the decision's record in the coordinator's log and
ends with the marker in the last partition.

    outcome's markers → MarkerRound.start → MarkerWriter → the leaders' logs → MarkerRound.handle_results
                      → MarkerRound.report_completion, or report_unfinished → the core's next turn

`MarkerWriter` hides that the coordinator and the leaders run in one process: its parameters and results correspond to a
WriteTxnMarkers request and its response.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.shares.core.state import FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK, TransactionEnd
from odradek.broker.transactions.tables import NEEDS_NO_MARKER
from odradek.protocol.control_records import sealed_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import GROUP_OFFSETS, SHARE_GROUP_STATE, PartitionCodes, TopicPartition
from odradek.storage.log import Origin

if TYPE_CHECKING:
    from odradek.broker.coordinators.group_coordinator import GroupCoordinator
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.partitions.registry import Partitions
    from odradek.broker.runtime.clock import Clock
    from odradek.broker.transactions.core import TransactionCore
    from odradek.broker.transactions.turn import DecisionInputs, PendingMarkers

logger = logging.getLogger("odradek.transactions")

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
LOGGED_REFUSAL: Final = 2  # the number of the refusal that is logged; see `_log_refusal`
OnWritten = Callable[[Sequence[PartitionCodes]], None]


@dataclass(slots=True)
class TxnMarker:
    """One entry of WriteTxnMarkers: the end of one producer's transaction in some partitions.

    transaction_version  None if unknown, because version 1 of the request has no field for it. Logs then compare epochs
                         by the rules of older transaction versions, so that operators can end transactions that have no
                         coordinator. Share groups compare epochs by the rules of version 2, so that a repeated marker
                         cannot end the next transaction
    must_sync            whether the marker is considered written only after an fdatasync; the request has no field for
                         this flag
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int | None
    partitions: Sequence[TopicPartition]
    must_sync: bool = False


class MarkerWriter(Protocol):
    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        """Writes markers. When the marker of a partition is durable or refused, passes the partition's error code to
        `then`.

        `then` gets one mapping from partitions to error codes for each marker, in the order of the markers. It is
        called at least once, possibly before this method returns. Partitions that have not been reported yet are
        pending, and a later call will report them. `LocalMarkerWriter` calls `then` once, with all partitions.
        """


class TopicMarkerWriter(MarkerWriter, Protocol):
    """A marker writer that is notified when topics are deleted."""

    def topic_deleted(self, topic: str) -> None:
        """Reports UNKNOWN_TOPIC_OR_PARTITION for the pending partitions of a deleted topic."""


class MarkerResults:
    """An `OnWritten` that waits until no partition is pending, then calls `then` once with all error codes."""

    def __init__(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        self._codes: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
        self._left = sum(len(set(marker.partitions)) for marker in markers)  # a request can contain a partition twice
        self._then = then
        self._is_done = False

    def __call__(self, results: Sequence[PartitionCodes]) -> None:
        for codes, reported in zip(self._codes, results, strict=True):
            self._left -= len(reported.keys() - codes.keys())
            codes.update(reported)
        if self._left <= 0 and not self._is_done:
            self._is_done = True
            self._then(self._codes)


class ShareGroupMarkers(Protocol):
    """Applies markers to share groups' pending acknowledgements; see
    `odradek.broker.shares.leader.markers.ShareMarkers`."""

    def require_loaded(self, index: int) -> None: ...
    def apply_marker(self, index: int, ending: TransactionEnd) -> None: ...
    def reread_states(self, ending: TransactionEnd) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class MarkerRound:
    """The markers of one decided transaction, from its record to the last marker.

    The steps are methods, so that a subclass can delay or fail a transaction between two steps. When `start` is called,
    the decision is in the log, but no partition has a marker yet. `MarkerWriter` is called for each marker. When
    `report_completion` is called, the last marker has been written, but not yet reported to the coordinator.
    """

    def __init__(self, rounds: MarkerRounds, markers: PendingMarkers) -> None:
        self.markers = markers
        self._rounds = rounds
        self._done = NO_PARTITIONS
        self._pending = NO_PARTITIONS  # partitions whose markers the writer has received but not reported yet
        self._refusals: Counter[tuple[TopicPartition, ErrorCode]] | None = None

    def start(self) -> None:
        """Starts the round. Called once per decision, and again after a restart."""
        self.send()

    def send(self) -> None:
        """Sends `markers`, except to partitions whose marker the writer is still processing."""
        markers = self.markers
        partitions = markers.partitions
        if self._pending:
            self._pending &= partitions
            partitions -= self._pending
            if not partitions:  # nothing to do until the writer reports
                self._rounds.unfinished[markers.transactional_id] = self
                return
        if not partitions:
            self.report_completion()
            return
        self._pending = self._pending | partitions if self._pending else partitions
        marker = TxnMarker(
            markers.producer_id,
            markers.producer_epoch,
            markers.is_commit,
            markers.coordinator_epoch,
            markers.transaction_version,
            sorted(partitions),
            markers.must_sync,
        )
        try:
            self._rounds.writer.write([marker], self.handle_results)
        except Exception:
            # A bug in the writer must not leave the transaction stuck, so its markers are resent.
            logger.exception(
                "%s: the markers of transaction %r could not be written; trying again",
                self._rounds.name,
                markers.transactional_id,
            )
            self._pending -= partitions
            self.report_unfinished(NO_PARTITIONS)

    def handle_results(self, results: Sequence[PartitionCodes]) -> None:
        """Processes the leaders' responses. Partitions without a response are pending, and a later call will contain
        the missing responses."""
        codes, requested = results[0], self._pending
        refused, pending = [], []
        for each in requested:
            code = codes.get(each)
            if code is None:
                pending.append(each)
            elif code is not ErrorCode.NONE and not self._is_needless(each, code):
                refused.append(each)
        if refused or pending:
            self._pending = frozenset(pending)
            self.report_unfinished(requested.difference(refused, pending))
            return
        self._pending = NO_PARTITIONS
        self._done = self._done | requested if self._done else requested
        if self._done.issuperset(self.markers.partitions):
            self.report_completion()
        else:  # Other partitions have refused the marker; the timer will retry it.
            self.report_unfinished(requested)

    def report_completion(self) -> None:
        """Reports to the coordinator, after the current turn, that the transaction is complete. The coordinator appends
        the completion together with the next record of the transactional id, or after a delay."""
        if self._rounds.unfinished:
            self._rounds.unfinished.pop(self.markers.transactional_id, None)
        self._rounds.shard.follow_up(self._report)

    def report_unfinished(self, done: frozenset[TopicPartition]) -> None:
        """Reports to the coordinator, after the current turn, which markers have been written. The coordinator can then
        answer the client. The coordinator's timer will resend the markers that are neither done nor pending."""
        self._done |= done
        self._rounds.unfinished[self.markers.transactional_id] = self
        self._rounds.shard.follow_up(self._report)

    def _report(self) -> None:
        markers, rounds = self.markers, self._rounds
        shard, done, pending = rounds.shard, self._done, self.pending_partitions()
        if shard.is_away:  # the partition's next coordinator will read the decision and resend the markers
            return
        try:
            shard.submit(lambda core, now_ms: core.markers_written(markers, done, rounds.inputs(now_ms), pending))
        except KafkaError as error:
            logger.warning(
                "the end of transaction %r could not be recorded; trying again: %s", markers.transactional_id, error
            )
            rounds.unfinished[markers.transactional_id] = self
            shard.submit_maintenance(lambda core, _: core.send_later(markers.transactional_id))

    def pending_partitions(self) -> frozenset[TopicPartition]:
        """Returns the partitions whose markers the coordinator's timer must not send again."""
        return self._pending

    def _is_needless(self, topic_partition: TopicPartition, code: ErrorCode) -> bool:
        """Returns whether the partition no longer needs a marker. Otherwise logs the refusal, because the marker will
        be resent."""
        if code in NEEDS_NO_MARKER:
            return True
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._rounds.exists(topic_partition):
            return True
        self._log_refusal(topic_partition, code)
        return False

    def _log_refusal(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """Logs each reason for a partition's refusals only once, because there are several attempts per second. The
        first refusal is not logged, because after a restart it may only mean that the partition is loading."""
        if self._refusals is None:
            self._refusals = Counter()
        self._refusals[topic_partition, code] += 1
        if self._refusals[topic_partition, code] != LOGGED_REFUSAL:
            return
        logger.warning(
            "%s: the %s of transaction %r waits for %s-%d, which answered the marker with %s; trying again",
            self._rounds.name,
            "commit" if self.markers.is_commit else "abort",
            self.markers.transactional_id,
            *topic_partition,
            code.name,
        )


NewMarkerRound: TypeAlias = "Callable[[MarkerRounds, PendingMarkers], MarkerRound]"


class MarkerRounds:
    """The marker rounds of one `__transaction_state` partition."""

    shard: Shard[TransactionCore]  # set after construction, because creating the shard requires `send`

    def __init__(
        self,
        name: str,
        writer: MarkerWriter,
        exists: Callable[[TopicPartition], bool],
        inputs: Callable[[int], DecisionInputs],
        new_round: NewMarkerRound,
    ) -> None:
        """Creates an empty collection of rounds for one `__transaction_state` partition.

        exists  returns whether the metadata contains a partition; a deleted partition needs no marker
        inputs  creates the `DecisionInputs` for a decision from the current time
        """
        self.name = name
        self.writer = writer
        self.exists = exists
        self.inputs = inputs
        self._new_round = new_round
        # Rounds that have reported refused or pending markers, by transactional id. The rounds are kept because they
        # store their pending markers and earlier refusals.
        self.unfinished: dict[str, MarkerRound] = {}

    def send(self, markers: Sequence[PendingMarkers], failure: KafkaError | None) -> None:
        """Sends the markers of decisions that are as durable as the settings require. If a decision could not be made
        durable, `failure` is the error, and the shard is unloaded instead."""
        for pending in markers:
            if failure is not None:
                # After a failed fsync, the log is unusable: a restart may find a state that differs from the state in
                # memory.
                logger.error("%s: a decision may not be on the disk, so its coordinator stops: %s", self.name, failure)
                self.shard.unload()
                return
            unfinished = self.unfinished.pop(pending.transactional_id, None) if self.unfinished else None
            if unfinished is None:
                self._new_round(self, pending).start()
            else:
                unfinished.markers = pending
                unfinished.send()


class LocalMarkerWriter:
    """Writes markers to this broker's partitions, as a leader does when it receives WriteTxnMarkers.

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
        results: list[dict[TopicPartition, ErrorCode]] = []
        waiting: list[tuple[int, Partition]] = []
        for marker in markers:
            codes: dict[TopicPartition, ErrorCode] = {}
            # A marker without partitions comes from an external coordinator. It causes the leaders of share partitions
            # to re-read their state.
            if not marker.partitions:
                self._share_groups.reread_states(_transaction_end_of(marker))
            for each in marker.partitions:
                try:
                    partition = self._append(marker, each)
                except KafkaError as refusal:
                    codes[each] = refusal.code
                    continue
                log = partition.log
                if (marker.must_sync or log.needs_sync) and log.synced_offset < log.log_end_offset:
                    waiting.append((len(results), partition))
                else:  # the common case
                    codes[each] = ErrorCode.NONE
            results.append(codes)
        if waiting:
            _when_durable(markers, results, waiting, then)
        else:
            then(results)

    def topic_deleted(self, topic: str) -> None:
        """Does nothing, because this writer never has pending partitions."""

    def _append(self, marker: TxnMarker, topic_partition: TopicPartition) -> Partition:
        topic, index = topic_partition
        try:
            partition = self._partitions.get(topic, index)
        except KafkaError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR
            )  # A marker without a producer cannot be written. Kafka returns the same error.
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
            transaction_version=marker.transaction_version or 0,
        )
        if topic == GROUP_OFFSETS:
            self._groups.complete_transaction(
                index, marker.producer_id, marker.producer_epoch, committed=marker.is_commit
            )
        elif topic == SHARE_GROUP_STATE:
            self._share_groups.apply_marker(index, _transaction_end_of(marker))
        return partition

    def _require_coordinator(self, require_loaded: Callable[[int], None], index: int) -> None:
        """Raises KafkaError unless the coordinator is loaded. Called before a marker is appended, because the marker
        must take effect immediately."""
        try:
            require_loaded(index)
        except KafkaError as error:
            raise KafkaError(translate(Receiver.MARKER, error.code), error.message) from error


def _transaction_end_of(marker: TxnMarker) -> TransactionEnd:
    version = FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK if marker.transaction_version is None else marker.transaction_version
    return TransactionEnd(marker.producer_id, marker.producer_epoch, marker.is_commit, version)


def _when_durable(
    markers: Sequence[TxnMarker],
    results: list[dict[TopicPartition, ErrorCode]],
    waiting: Sequence[tuple[int, Partition]],
    then: OnWritten,
) -> None:
    """Calls `then` when every marker waiting for a sync is durable or has failed.

    waiting  for each marker waiting for a sync, its index and a partition to which it was appended
    """
    missing = len(waiting)

    def ended(number: int, partition: Partition, failure: KafkaError | None) -> None:
        nonlocal missing
        results[number][partition.topic, partition.index] = ErrorCode.NONE if failure is None else failure.code
        missing -= 1
        if missing == 0:
            then(results)

    for number, partition in waiting:
        end_offset, must_sync = partition.log.log_end_offset, markers[number].must_sync
        partition.when_durable(end_offset, partial(ended, number, partition), must_sync=must_sync)
