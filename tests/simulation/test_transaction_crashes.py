"""A crash at every transition of a transactional id, at every point of it that makes a difference.

    before append → appended → synced → … markers … → answered

Each is tried with a kill, and with every state that a power failure may leave. Whatever was answered holds; what was
not answered is either done or not, in all partitions alike; nobody waits for anything; and the id goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

import pytest

from broker.features import TRANSACTION_VERSION
from broker.group_coordinator import OFFSETS_TOPIC
from broker.metadata.topics import NewTopic
from broker.topic_creation import TRANSACTION_STATE, internal_topic
from broker.transactions.entry import LAST_USABLE_EPOCH, Txn
from broker.transactions.listing import Filter
from broker.transactions.records import encode_record
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.frames import request_bytes, response_has_tags
from protocol.messages import response_class
from protocol.messages.end_txn_request import EndTxnRequest
from protocol.messages.feature_level_record import FeatureLevelRecord
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records import NewRecord, build_batch
from protocol.struct import Message
from storage.log import Origin
from tests.simulation.invariants import ask_for_offset, committed_records
from tests.simulation.simulated_broker import Parts, SimulatedBroker
from tests.simulation.transaction_world import NOW_MS, broker_config
from tests.simulation.virtual_time import VirtualTime
from tests.support.fake_disk import Crashed, FakeDisk

ID, GROUP = "pay", "billing"
P0, P1 = ("orders", 0), ("orders", 1)
ALL = (P0, P1, (OFFSETS_TOPIC, 0))
TIMEOUT_MS = 5_000
EXPIRATION_MS = 60_000
E = ErrorCode


class Point(Enum):
    BEFORE_APPEND = "before append"
    APPENDED = "appended"
    SYNCED = "synced"
    BETWEEN_MARKERS = "between markers"
    ANSWERED = "answered"


class Stage:
    """A broker whose acknowledgements wait for fsync, and one producer that asks and waits."""

    def __init__(self, disk: FakeDisk | None = None, now_ms: int = NOW_MS, level: int = 2) -> None:
        self.disk = disk or FakeDisk()
        self.time = VirtualTime(now_ms)
        self.config = broker_config(
            is_durable=True,
            transactional_id_expiration_ms=str(EXPIRATION_MS),
            transaction_remove_expired_transaction_cleanup_interval_ms=str(EXPIRATION_MS),
        )
        self.dies_at_call: int | None = None  # once the broker has called the disk that often
        self.level = level
        self.pair = (-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}
        self.answers: list[ErrorCode] = []
        self.broker = SimulatedBroker(
            self.disk, self.time, Random(0), self.config, log_changes={"segment_bytes": 1 << 20}, parts=Parts()
        )
        if disk is None:
            self._make_topics()
        self.wait(500)

    def _make_topics(self) -> None:
        internal = [internal_topic(name, self.config) for name in (TRANSACTION_STATE, OFFSETS_TOPIC)]
        self.broker.auto_creation.create(
            [NewTopic("orders", 2, 1), NewTopic("input", 1, 1), *[each for each in internal if each is not None]]
        )
        self.broker.metadata.commit([FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=self.level)])

    def wait(self, ms: int) -> None:
        until_ms = self.time.now_ms() + ms
        while self._step(until_ms):
            pass

    def _step(self, until_ms: float) -> bool:
        is_stepped = self.time.step(until_ms)
        if self.dies_at_call is not None and self.disk.calls >= self.dies_at_call:
            raise Crashed
        return is_stepped

    def die_after(self, calls: int) -> None:
        """As soon as it has called the disk that often from now on; what that leads to does not happen any more."""
        self.dies_at_call = self.disk.calls + calls

    def ask(self, request: Message, version: int) -> Any:
        answers: list[bytes] = []
        self.broker.receive(request_bytes(request, version, 1, "producer"), answers.append)
        until_ms = self.time.now_ms() + 2_000
        while not answers and self._step(until_ms):
            pass
        assert answers, f"{type(request).__name__} is not answered"
        kind = response_class(request.API_KEY)
        return decode(kind, version, answers[0], 8 + response_has_tags(request.API_KEY, kind, version))

    def init(self, pair: tuple[int, int] = (-1, -1)) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS, producer_id=pair[0], producer_epoch=pair[1]
        )
        answer = self.ask(request, 4)
        if not answer.error_code:
            self.pair = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def produce(self, value: str, partition: tuple[str, int]) -> ErrorCode:
        topic, index = partition
        records = build_batch(
            [NewRecord(b"k", value.encode(), self.time.now_ms())],
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            base_sequence=self.sequences.get(partition, 0),
            is_transactional=True,
        )
        self.sequences[partition] = self.sequences.get(partition, 0) + 1
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=30_000, topic_data=[data])
        return ErrorCode(self.ask(request, 12).responses[0].partition_responses[0].error_code)

    def commit_offset(self, offset: int) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            topics=[TxnOffsetCommitRequestTopic(name="input", partitions=[partition])],
        )
        return ErrorCode(self.ask(request, 5).topics[0].partitions[0].error_code)

    def end(self, *, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.pair[0], producer_epoch=self.pair[1], committed=committed
        )
        answer = self.ask(request, 5)
        if not answer.error_code:
            self.pair = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    # Looking.

    def offset(self) -> int:
        told: list[int] = []
        ask_for_offset(self.broker, GROUP, told.append)
        self.wait(100)
        return told[0]

    def readable(self) -> list[str]:
        """What read_committed consumers see in both partitions."""
        values = []
        for topic, index in (P0, P1):
            log = self.broker.partition(topic, index).log
            end = log.last_stable_offset
            assert end == log.high_watermark, f"{topic}-{index} is stuck"
            data = b"".join(log.scan(0, end))
            values += [value.decode() for _, value in committed_records(data, log.aborted_transactions(0, end))]
        return sorted(values)

    def states(self) -> set[str]:
        return {each.transaction_state for each in self.broker.transactions.list_transactions(Filter())}


# What leads to a transition, and the transition itself; a step returns whether it was answered with success.


def nothing(stage: Stage) -> None:
    return None


def initialised(stage: Stage) -> None:
    assert stage.init() is E.NONE


def open_in_one(stage: Stage) -> None:
    initialised(stage)
    assert stage.produce("a", P0) is E.NONE


def open_everywhere(stage: Stage) -> None:
    open_in_one(stage)
    assert stage.produce("b", P1) is E.NONE
    assert stage.commit_offset(7) is E.NONE


def committed_once(stage: Stage) -> None:
    open_everywhere(stage)
    assert stage.end(committed=True) is E.NONE


def open_at_the_last_epoch(stage: Stage) -> None:
    record = Txn(ID, 5_000_000, LAST_USABLE_EPOCH - 1, TIMEOUT_MS, updated_ms=NOW_MS)
    partition = stage.broker.partition(TRANSACTION_STATE, stage.broker.transactions.partition_for(ID))
    batch = build_batch([NewRecord(*encode_record(record, 2), NOW_MS)])
    partition.append_now(batch, origin=Origin.COORDINATOR, now_ms=NOW_MS)
    stage.broker.kill()
    stage.disk = stage.disk.after_kill()
    again = Stage(stage.disk, stage.time.now_ms())
    stage.broker, stage.time = again.broker, again.time
    open_everywhere(stage)
    assert stage.pair == (5_000_000, LAST_USABLE_EPOCH)


def init(stage: Stage) -> bool:
    return stage.init() is E.NONE


def fence(stage: Stage) -> bool:
    assert stage.init() is E.CONCURRENT_TRANSACTIONS
    return True


def add_first(stage: Stage) -> bool:
    return stage.produce("a", P0) is E.NONE


def add_another(stage: Stage) -> bool:
    return stage.produce("b", P1) is E.NONE


def add_offsets(stage: Stage) -> bool:
    return stage.commit_offset(7) is E.NONE


def commit(stage: Stage) -> bool:
    return stage.end(committed=True) is E.NONE


def abort(stage: Stage) -> bool:
    return stage.end(committed=False) is E.NONE


def time_out(stage: Stage) -> bool:
    stage.wait(TIMEOUT_MS + 2_000)
    return True


def expire(stage: Stage) -> bool:
    stage.wait(3 * EXPIRATION_MS)
    return True


@dataclass(frozen=True, slots=True)
class Transition:
    """`record`: the how-manieth of `__transaction_state` in this step it is. `readable`: afterwards, if it happened."""

    name: str
    given: Callable[[Stage], None]
    step: Callable[[Stage], bool]
    record: int
    has_markers: bool = False
    is_commit: bool = False
    before: tuple[str, ...] = ()


AB = ("a", "b")
TRANSITIONS = [
    Transition("a new id → Empty", nothing, init, 1),
    Transition("Empty → Empty", initialised, init, 1),
    Transition("CompleteCommit → Empty", committed_once, init, 1, before=AB),
    Transition("Empty → Ongoing", initialised, add_first, 1),
    Transition("CompleteCommit → Ongoing", committed_once, add_first, 1, before=AB),
    Transition("Ongoing → Ongoing", open_in_one, add_another, 1),
    Transition("Ongoing → Ongoing, offsets", open_in_one, add_offsets, 1),
    Transition("Ongoing → PrepareCommit", open_everywhere, commit, 1, True, True),
    Transition("PrepareCommit → CompleteCommit", open_everywhere, commit, 2, True, True),
    Transition("Ongoing → PrepareCommit, last epoch", open_at_the_last_epoch, commit, 1, True, True),
    Transition("PrepareCommit → CompleteCommit, last epoch", open_at_the_last_epoch, commit, 2, True, True),
    Transition("Ongoing → PrepareAbort", open_everywhere, abort, 1, True),
    Transition("PrepareAbort → CompleteAbort", open_everywhere, abort, 2, True),
    Transition("Ongoing → PrepareAbort, by another producer", open_everywhere, fence, 1, True),
    Transition("Ongoing → PrepareAbort, by time", open_everywhere, time_out, 1, True),
    Transition("PrepareAbort → CompleteAbort, by time", open_everywhere, time_out, 2, True),
    Transition("Empty → PrepareAbort, of nothing", initialised, abort, 1),
    Transition("CompleteCommit → PrepareAbort, of nothing", committed_once, abort, 1, before=AB),
    Transition("CompleteCommit → Dead", committed_once, expire, 1, before=AB),
]
CASES = [
    pytest.param(transition, point, id=f"{transition.name}, {point.value}")
    for transition in TRANSITIONS
    for point in Point
    if transition.has_markers or point is not Point.BETWEEN_MARKERS
]


def call_of(transition: Transition, point: Point) -> int | None:
    """After how many calls to the disk, of those in the step, the process dies; None: after them all.

    Seen in a step that nothing happens to, since steps are the same every time.
    """
    stage = Stage()
    transition.given(stage)
    start = len(stage.disk.log)
    assert transition.step(stage)
    calls = stage.disk.log[start:]
    stage.broker.kill()
    append = calls_among(calls, "write", TRANSACTION_STATE)[transition.record - 1]
    match point:
        case Point.BEFORE_APPEND:
            return append
        case Point.APPENDED:
            return append + 1
        case Point.SYNCED:
            return next(at for at in calls_among(calls, "sync", TRANSACTION_STATE) if at > append) + 1
        case Point.BETWEEN_MARKERS:
            return calls_among(calls, "write", "orders")[0] + 1
        case Point.ANSWERED:
            return None


def calls_among(calls: list[str], name: str, topic: str) -> list[int]:
    """Of logs of this topic: positions in `calls`."""
    return [
        at for at, call in enumerate(calls) if call.startswith(name) and f"/{topic}-" in call and call.endswith(".log")
    ]


@pytest.mark.parametrize(("transition", "point"), CASES)
def test_a_crash_loses_nothing_that_was_answered_and_tears_nothing(transition: Transition, point: Point) -> None:
    call = call_of(transition, point)
    stage = Stage()
    transition.given(stage)
    if call is not None and point is Point.SYNCED:
        stage.die_after(call)
    elif call is not None:
        stage.disk.crash_before(call + 1)
    is_answered = False
    try:
        is_answered = transition.step(stage)
        assert call is None, "it did not crash where it should"
    except Crashed:
        pass
    stage.broker.kill()
    states = [("kill", stage.disk.after_kill())]
    states += [(state.name, state.disk) for state in stage.disk.after_power_failure(seed=1)]
    for name, disk in states:
        check_restart(transition, is_answered, name, disk, stage.time.now_ms())


def check_restart(transition: Transition, is_answered: bool, name: str, disk: FakeDisk, now_ms: int) -> None:
    again = Stage(disk, now_ms)
    again.wait(3 * TIMEOUT_MS)  # what is open is aborted, what is decided is carried out
    assert again.states() <= {"Empty", "CompleteCommit", "CompleteAbort"}, name
    is_done = again.offset() == 7
    happened = is_done and transition.is_commit
    expected = sorted(transition.before + (AB if happened else ()))
    assert again.readable() == expected, name
    assert is_done == (happened or bool(transition.before)), name
    assert happened or not (is_answered and transition.is_commit), f"{name}: the commit was acknowledged"
    # The id goes on.
    assert again.init() is E.NONE, name
    assert again.produce("next", P0) is E.NONE, name
    assert again.end(committed=True) is E.NONE, name
    again.wait(100)
    assert again.readable() == sorted([*expected, "next"]), name
    again.broker.kill()
