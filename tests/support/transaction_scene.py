"""Transactional ids for tests: a core, its log in memory, a clock, and producers that send requests, without sockets or
an event loop.

`given(*records)` prepares the initial state from records of the log. The scene does the work of
`odradek.broker.coordinators.shard.Shard` and `odradek.broker.coordinators.transaction_coordinator` step by step: it
appends, replays, settles, arms timers, releases replies and allocates producer ids. The test decides when markers are
written. Records are encoded and decoded, so `restarted()` returns the state that a restart finds in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pytest

from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.entry import Txn, TxnRecord
from odradek.broker.transactions.records import decode_record, encode_record, record_headers, restore_headers
from odradek.broker.transactions.requests import check_request
from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import DecisionInputs, Outcome, PendingMarkers, TransactionConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_transactions_response import TransactionState
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.records import Headers
from odradek.protocol.topic_partition import TopicPartition

R = TypeVar("R")
S = TxnState
E = ErrorCode
ID = "pay"
PID = 7
NEW_PID = 1000  # the first producer id that the scene assigns
NOW_MS = 1_800_000_000_000
TIMEOUT_MS = 60_000
MAX = 32_767
P0, P1 = ("orders", 0), ("orders", 1)
COORDINATOR_EPOCH = 4
Pair = tuple[int, int]


def txn(
    state: TxnState = S.ONGOING,
    pair: Pair = (PID, 0),
    partitions: Iterable[TopicPartition] | None = None,
    *,
    transactional_id: str = ID,
    previous: int | None = None,
    following: int | None = None,
    following_epoch: int | None = None,
    last_epoch: int | None = None,
    version: int = 2,
    started_ms: int | None = None,
    updated_ms: int = NOW_MS,
    timeout_ms: int = TIMEOUT_MS,
) -> Txn:
    """Returns a record of the transaction log. By default P0 takes part in an open or decided transaction."""
    is_busy = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    if partitions is None:
        partitions = [P0] if is_busy else []
    if started_ms is None and state is not S.EMPTY:
        started_ms = NOW_MS
    return Txn(
        transactional_id,
        *pair,
        timeout_ms,
        state,
        frozenset(partitions),
        started_ms,
        updated_ms,
        previous_producer_id=pair[0] if previous is None else previous,
        next_producer_id=following,
        next_producer_epoch=following_epoch,
        last_producer_epoch=last_epoch,
        client_version=version,
    )


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code


class PendingEndTxn:
    """An EndTxn request, and its response after it has arrived."""

    def __init__(self) -> None:
        self._answer: EndTxnResponse | None = None

    @property
    def is_parked(self) -> bool:
        return self._answer is None

    @property
    def code(self) -> ErrorCode:
        assert self._answer is not None, "not answered yet"
        return ErrorCode(self._answer.error_code)

    @property
    def pair(self) -> Pair:
        """The producer id and epoch that the producer continues with, or (-1, -1) if they do not change."""
        assert self._answer is not None, "not answered yet"
        assert self.code is E.NONE
        return self._answer.producer_id, self._answer.producer_epoch

    def resolve(self, answer: EndTxnResponse) -> None:
        assert self._answer is None, "answered twice"
        self._answer = answer


class Scene:
    def __init__(
        self,
        *,
        transaction_version: int = 2,
        coordinator_epoch: int = COORDINATOR_EPOCH,
        config: TransactionConfig | None = None,
        now_ms: int = NOW_MS,
    ) -> None:
        self.config = config or TransactionConfig()
        self.transaction_version = transaction_version
        self.coordinator_epoch = coordinator_epoch
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None, Headers]] = []
        self.written: list[TxnRecord] = []  # records written since the scene was created
        # partitions that responses have waited for since the scene was created
        self.to_sync: set[TopicPartition] = set()
        self.refuse_appends: ErrorCode | None = None
        self.has_producer_ids = True
        self.next_producer_id = NEW_PID
        self._reset()

    def _reset(self) -> None:
        self.core = TransactionCore(self.config, coordinator_epoch=self.coordinator_epoch)
        self.owed: list[PendingMarkers] = []  # requested markers that have not been written
        self.due: dict[str, int] = {}  # due time of each timer, by its key

    # Initial state.

    def replay_bytes(self, key: bytes, value: bytes | None, headers: Headers = ()) -> None:
        """Replays a record from the bytes that the log contains."""
        self.log.append((key, value, headers))
        record = decode_record(key, value)
        if record is not None:
            self.core.replay(restore_headers(record, headers), len(self.log) - 1)

    def loaded(self) -> Scene:
        self._settle(self.core.on_loaded(self.now_ms))
        return self

    def restarted(self) -> Scene:
        """Kills the process. Returns the scene of the next process, which reads the log and has a higher coordinator
        epoch."""
        scene = Scene(
            transaction_version=self.transaction_version,
            coordinator_epoch=self.coordinator_epoch + 1,
            config=self.config,
            now_ms=self.now_ms,
        )
        scene.next_producer_id = self.next_producer_id + 1000
        for stored in self.log:
            scene.replay_bytes(*stored)
        return scene.loaded()

    # Requests.

    def init(
        self,
        pair: Pair = (-1, -1),
        *,
        transactional_id: str | None = ID,
        timeout_ms: int = TIMEOUT_MS,
        enable2_pc: bool = False,
    ) -> Pair:
        """Sends InitProducerId. Raises KafkaError if the response has an error."""
        answered, ongoing = self._init(pair, transactional_id, timeout_ms, enable2_pc=enable2_pc, keeps=False)
        assert ongoing == (-1, -1)
        return answered

    def keep(
        self,
        pair: Pair = (-1, -1),
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
        enable2_pc: bool = False,
    ) -> tuple[Pair, Pair]:
        """Sends InitProducerId with KeepPreparedTxn. Returns the producer id and epoch to continue with, and those of
        the kept transaction."""
        return self._init(pair, transactional_id, timeout_ms, enable2_pc=enable2_pc, keeps=True)

    def _init(
        self, pair: Pair, transactional_id: str | None, timeout_ms: int, *, enable2_pc: bool, keeps: bool
    ) -> tuple[Pair, Pair]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=pair[0],
            producer_epoch=pair[1],
            enable2_pc=enable2_pc,
            keep_prepared_txn=keeps,
        )
        check_request(request, self.config, self.transaction_version)
        assert transactional_id is not None
        response = self._turn(
            lambda inputs: self.core.init_producer_id(request, inputs),
            lambda producer_id: self.core.reserve(request, producer_id, self.now_ms),
        )
        assert response is not None
        if response.error_code:
            assert (response.producer_id, response.producer_epoch) == (-1, -1)
            raise KafkaError(ErrorCode(response.error_code))
        return (
            (response.producer_id, response.producer_epoch),
            (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch),
        )

    def add(
        self, pair: Pair, *partitions: TopicPartition, transactional_id: str = ID, version: int = 0
    ) -> dict[TopicPartition, ErrorCode]:
        """Sends AddPartitionsToTxn, as a producer does (versions 0 to 3)."""
        codes = self._turn(
            lambda inputs: self.core.add_partitions(
                transactional_id, *pair, frozenset(partitions or [P0]), requested_version=version, inputs=inputs
            )
        )
        assert codes is not None
        return dict(codes)

    def add5(
        self, pair: Pair, *partitions: TopicPartition, transactional_id: str = ID
    ) -> dict[TopicPartition, ErrorCode]:
        """Sends the request that a partition leader uses to add a partition because of a Produce."""
        return self.add(pair, *partitions, transactional_id=transactional_id, version=2)

    def verify(
        self, pair: Pair, *partitions: TopicPartition, transactional_id: str = ID
    ) -> dict[TopicPartition, ErrorCode]:
        codes = self._turn(
            lambda _: self.core.verify_partitions(transactional_id, *pair, frozenset(partitions or [P0]))
        )
        assert codes is not None
        return dict(codes)

    def end(self, pair: Pair, *, committed: bool, version: int, transactional_id: str = ID) -> PendingEndTxn:
        pending = PendingEndTxn()
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=committed
        )
        answer = self._turn(
            lambda inputs: self.core.end_txn(
                request, pending, requested_version=2 if version >= 5 else 0, inputs=inputs
            )
        )
        if answer is not None:
            pending.resolve(answer)
        return pending

    def commit4(self, pair: Pair) -> PendingEndTxn:
        return self.end(pair, committed=True, version=4)

    def abort4(self, pair: Pair) -> PendingEndTxn:
        return self.end(pair, committed=False, version=4)

    def commit5(self, pair: Pair) -> PendingEndTxn:
        return self.end(pair, committed=True, version=5)

    def abort5(self, pair: Pair) -> PendingEndTxn:
        return self.end(pair, committed=False, version=5)

    # Events without a request.

    def write_markers(self, only: Iterable[TopicPartition] | None = None) -> list[PendingMarkers]:
        """Writes all requested markers, or only those of some partitions. Returns the marker requests."""
        owed, self.owed = self.owed, []
        for each in owed:
            written = each.partitions if only is None else each.partitions & frozenset(only)
            self.markers_answered(each, written)
        return owed

    def markers_answered(self, owed: PendingMarkers, written: frozenset[TopicPartition]) -> None:
        try:
            self._turn(lambda inputs: self.core.markers_written(owed, written, inputs))
        except KafkaError:
            self._settle(self.core.send_later(owed.transactional_id))

    def time_out(self) -> list[str]:
        """Looks for transactions that have exceeded their timeout. Returns the transactional ids whose transactions
        were aborted."""
        aborted = []
        for transactional_id in self.core.timed_out(self.now_ms):
            try:
                self._turn(partial(self.core.abort_timed_out, transactional_id))
            except KafkaError:
                continue
            aborted.append(transactional_id)
        return aborted

    def expire(self) -> None:
        self._turn(lambda _: self.core.expire(self.now_ms))

    def delete_topic(self, topic: str) -> None:
        self._turn(lambda _: self.core.forget_topic(topic))

    def advance(self, ms: int) -> None:
        """Advances the clock and fires the due timers."""
        self.now_ms += ms
        for key in [key for key, due_ms in self.due.items() if due_ms <= self.now_ms]:
            del self.due[key]
            self._settle(self.core.on_timer(key, self.now_ms))

    # Results.

    @property
    def state(self) -> tuple[TxnState, int, int]:
        """Returns (state, producer id, producer epoch) of ID, as recorded."""
        found = self.core.txn(ID)
        assert found is not None
        assert found.producer_epoch is not None
        return found.state, found.producer_id, found.producer_epoch

    @property
    def txn(self) -> Txn:
        found = self.core.txn(ID)
        assert found is not None
        return found

    @property
    def last(self) -> TxnRecord:
        return self.written[-1]

    def describe(self, transactional_id: str = ID) -> TransactionState:
        return self.core.describe(transactional_id)

    # The work of the shell.

    def _turn(
        self, decide: Callable[[DecisionInputs], Outcome[R]], before_again: Callable[[int], Outcome[None]] | None = None
    ) -> R | None:
        outcome = decide(DecisionInputs(self.now_ms, self.transaction_version))
        if not outcome.needs_producer_id:
            return self._settle(outcome)
        assert outcome == Outcome(needs_producer_id=True)
        if not self.has_producer_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, self.next_producer_id = self.next_producer_id, self.next_producer_id + 1
        if before_again is not None:
            self._settle(before_again(producer_id))
        return self._settle(decide(DecisionInputs(self.now_ms, self.transaction_version, producer_id)))

    def _settle(self, outcome: Outcome[R]) -> R | None:
        if outcome.records and self.refuse_appends is not None:
            raise KafkaError(self.refuse_appends)
        for record in outcome.records:
            key, value = encode_record(record, self.transaction_version)
            self.log.append((key, value, record_headers(record)))
            self.written.append(record)
            self.core.replay(record, len(self.log) - 1)
        self.core.settle(outcome)
        self.to_sync |= outcome.to_sync
        for timer in outcome.timers:
            self.due.pop(timer.key, None)
            if timer.delay_ms is not None:
                self.due[timer.key] = self.now_ms + timer.delay_ms
        for reply in outcome.replies:
            assert isinstance(reply.token, PendingEndTxn)
            assert isinstance(reply.message, EndTxnResponse)
            reply.token.resolve(reply.message)
        self.owed += outcome.markers
        return outcome.response


def given(
    *records: TxnRecord,
    transaction_version: int = 2,
    coordinator_epoch: int = COORDINATOR_EPOCH,
    config: TransactionConfig | None = None,
    now_ms: int = NOW_MS,
) -> Scene:
    """Returns the scene of a core that has loaded the given records."""
    scene = Scene(
        transaction_version=transaction_version, coordinator_epoch=coordinator_epoch, config=config, now_ms=now_ms
    )
    for record in records:
        scene.replay_bytes(*encode_record(record, transaction_version), record_headers(record))
    return scene.loaded()
