"""Collaborators of the coordinator with known bugs, which tests plant intentionally. Bug numbers are those of the
pytest mark `known_bug`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from odradek.broker.coordinators.shard_records import ShardLog
from odradek.broker.coordinators.transaction_coordinator import TransactionCoordinator
from odradek.broker.coordinators.transaction_markers import MarkerWriter, OnWritten, TxnMarker
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.entry import Txn
from odradek.broker.transactions.records import decode_record
from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import DecisionInputs, Outcome, Reply, Token
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.records import BatchHeader, batches, records_of
from odradek.storage.verification import VerificationGuard
from tests.checker.history import TopicPartition
from tests.simulation.far_markers import FarMarkers
from tests.simulation.virtual_time import VirtualTimers

Pair = tuple[int, int]


class MarkersOfVersion0:
    """KAFKA-19446 (bug 7): leaders compare the epochs of markers as before KIP-1228.

    A late marker of the previous transaction then has the epoch of the current one and ends it.
    """

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        self._writer.write([replace(marker, transaction_version=0) for marker in markers], then)


def markers_of_version_0(writer: MarkerWriter, timers: VirtualTimers, rng: Random) -> MarkerWriter:
    return FarMarkers(MarkersOfVersion0(writer), timers, rng)


class MarkersThatLeaveGuards:
    """Bug 62: a marker keeps the verification guard of its own epoch, regardless of its transaction version.

    Each marker is first written with version 2. If no transaction is open, the partition mistakes the marker for a
    repeated one and keeps the guard. If the partition refuses the epoch, the marker is written with its real version.
    """

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        (marker,) = markers

        def answered(results: Sequence[Mapping[TopicPartition, ErrorCode]]) -> None:
            late = [each for each, code in results[0].items() if code is ErrorCode.INVALID_PRODUCER_EPOCH]
            if late:
                rest = replace(marker, partitions=late)
                self._writer.write([rest], lambda again: then([{**results[0], **again[0]}]))
            else:
                then(results)

        self._writer.write([replace(marker, transaction_version=2)], answered)


def markers_that_leave_guards(writer: MarkerWriter, timers: VirtualTimers, rng: Random) -> MarkerWriter:
    return MarkersThatLeaveGuards(writer)


class MarkersOnce:
    """KAFKA-19999 (bug 1): a marker already written is refused, even if the coordinator has not received the
    response."""

    def __init__(self, writer: MarkerWriter, written: set[tuple[TopicPartition, Pair]]) -> None:
        self._writer = writer
        self._written = written

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        (marker,) = markers
        pair = (marker.producer_id, marker.producer_epoch)
        again = [each for each in marker.partitions if (each, pair) in self._written]
        first = [each for each in marker.partitions if (each, pair) not in self._written]

        def answered(results: Sequence[Mapping[TopicPartition, ErrorCode]]) -> None:
            self._written |= {(each, pair) for each, code in results[0].items() if code is ErrorCode.NONE}
            then([{**results[0], **dict.fromkeys(again, ErrorCode.INVALID_PRODUCER_EPOCH)}])

        self._writer.write([replace(marker, partitions=first)], answered)


def markers_once() -> Callable[[MarkerWriter, VirtualTimers, Random], MarkerWriter]:
    written: set[tuple[TopicPartition, Pair]] = set()  # survives a restart, like the markers
    return lambda writer, timers, rng: MarkersOnce(writer, written)


class TrustingCoordinator(TransactionCoordinator):
    """KAFKA-17754 (bug 9): EndTxn ends whichever transaction is open, regardless of the epoch."""

    def end_txn(self, request: EndTxnRequest, *, requested_version: int) -> EndTxnResponse | Deferred[EndTxnResponse]:
        state = self.describe(request.transactional_id)
        if state.transaction_state == TxnState.ONGOING.kafka_name:
            request.producer_id, request.producer_epoch = state.producer_id, state.producer_epoch
        return super().end_txn(request, requested_version=requested_version)


class ForgetfulLog:
    """redpanda 6018 (bug 33): open transactions and their partitions exist only in memory, and not in the log."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log
        self._next_offset = 1_000_000

    @property
    def max_batch_bytes(self) -> int:
        return self._log.max_batch_bytes

    @property
    def is_empty(self) -> bool:
        return self._log.is_empty

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        for position, _ in batches(batch):
            for stored in records_of(batch, position):
                record = decode_record(stored.key, stored.value)
                if getattr(record, "state", None) is TxnState.ONGOING:
                    return self._next_offset
        return self._log.append(batch, now_ms, guard, header)

    def is_durable(self, *, must_sync: bool) -> bool:
        return self._log.is_durable(must_sync=must_sync)

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        self._log.when_durable(action, must_sync=must_sync)

    def read(self) -> AsyncIterator[bytes | bytearray | memoryview]:
        return self._log.read()


class NothingSealed(TransactionCore):
    """Plants a bug: partitions do not learn about takeovers, so the old producer can still write to the transaction."""

    def __init__(self, *args: Any, seals: object = None, **how: Any) -> None:
        super().__init__(*args, **how)


class NotBumpedAgain(TransactionCore):
    """KIP-939's epoch arithmetic without its last step.

    The transaction after a kept one has the same epoch as the owner. A second copy of the owner's EndTxn is therefore
    mistaken for the end of the next transaction.
    """

    def end_txn(
        self, request: EndTxnRequest, token: Token, *, requested_version: int, inputs: DecisionInputs
    ) -> Outcome[EndTxnResponse]:
        txn = self.txn(request.transactional_id)
        outcome = super().end_txn(request, token, requested_version=requested_version, inputs=inputs)
        if txn is None or not txn.is_kept or not outcome.records:
            return outcome
        producer_id, producer_epoch = txn.client_pair
        (decided,) = outcome.records  # The transaction is open, so the outcome has one record.
        assert isinstance(decided, Txn)
        assert producer_epoch is not None
        unbumped = replace(decided, next_producer_id=producer_id, next_producer_epoch=producer_epoch)
        answer = EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
        outcome.records, outcome.awaited = (unbumped,), {request.transactional_id: Reply(token, answer)}
        return outcome


class TimeoutPassedOn(TransactionCore):
    """The behaviour before ADR 11: a recovery changes neither the timeout of the kept transaction nor the timeouts of
    later ones."""

    def init_producer_id(
        self, request: InitProducerIdRequest, inputs: DecisionInputs
    ) -> Outcome[InitProducerIdResponse]:
        before = self.txn(request.transactional_id or "")
        outcome = super().init_producer_id(request, inputs)
        if before is None or not request.keep_prepared_txn or before.state is not TxnState.ONGOING:
            return outcome
        if outcome.needs_producer_id:
            return outcome
        (kept,) = outcome.records
        assert isinstance(kept, Txn)
        outcome.records = (replace(kept, timeout_ms=before.timeout_ms, next_timeout_ms=None),)
        return outcome


class UnsyncedLog:
    """A log that never waits for an fdatasync, not even in a two-phase commit."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log

    @property
    def max_batch_bytes(self) -> int:
        return self._log.max_batch_bytes

    @property
    def is_empty(self) -> bool:
        return self._log.is_empty

    def append(
        self,
        batch: bytearray,
        now_ms: int,
        guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        return self._log.append(batch, now_ms, guard, header)

    def is_durable(self, *, must_sync: bool) -> bool:
        return self._log.is_durable(must_sync=False)

    def when_durable(self, action: Callable[[KafkaError | None], None], *, must_sync: bool = False) -> None:
        self._log.when_durable(action)

    def read(self) -> AsyncIterator[bytes | bytearray | memoryview]:
        return self._log.read()


def unsynced_log(log: ShardLog) -> ShardLog:
    return UnsyncedLog(log)
