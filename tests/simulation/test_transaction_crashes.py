"""Tests that a crash during a transition of a transactional id undoes no confirmed outcome and leaves no request half
executed. The broker crashes at every point of every transition that makes a difference.

    before append → appended → synced → … markers … → answered

Each crash is tried with a kill, and with every state that a power failure may leave. A confirmed outcome holds. A
request without a response was executed in all partitions or in none. Nothing remains blocked, and the transactional id
can be used again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pytest

from odradek.broker.coordinators.transaction_coordinator import COMPLETION_DELAY_MS
from odradek.broker.transactions.entry import LAST_USABLE_EPOCH, Txn
from odradek.broker.transactions.records import encode_record
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.topic_partition import TRANSACTION_STATE
from odradek.storage.log import Origin
from tests.simulation.stage import EXPIRATION_MS, ID, P0, P1, TIMEOUT_MS, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk, ProcessCrashed

E = ErrorCode


class Point(Enum):
    BEFORE_APPEND = "before append"
    APPENDED = "appended"
    SYNCED = "synced"
    BETWEEN_MARKERS = "between markers"
    ANSWERED = "answered"


# --- Steps that lead to a transition, followed by the transitions, which return whether they succeeded.


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
    """A transition of a transactional id.

    record  number of the record of `__transaction_state` within the step that causes the transition
    before  values that were readable before the step
    waits   whether the last record of the transaction is delayed, at most until the next record of the transactional id
    """

    name: str
    given: Callable[[Stage], None]
    step: Callable[[Stage], bool]
    record: int
    has_markers: bool = False
    is_commit: bool = False
    before: tuple[str, ...] = ()
    waits: bool = False

    def wait(self, stage: Stage) -> None:
        if self.waits:
            stage.wait(2 * COMPLETION_DELAY_MS)


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
    Transition("PrepareCommit → CompleteCommit", open_everywhere, commit, 2, True, True, waits=True),
    Transition("Ongoing → PrepareCommit, last epoch", open_at_the_last_epoch, commit, 1, True, True),
    Transition("PrepareCommit → CompleteCommit, last epoch", open_at_the_last_epoch, commit, 2, True, True, waits=True),
    Transition("Ongoing → PrepareAbort", open_everywhere, abort, 1, True),
    Transition("PrepareAbort → CompleteAbort", open_everywhere, abort, 2, True, waits=True),
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
    """Returns the number of disk calls that the step makes before the process dies, or None if it makes all of them.

    The number comes from an undisturbed run of the step, which makes the same calls every time.
    """
    stage = Stage()
    transition.given(stage)
    start = len(stage.disk.log)
    assert transition.step(stage)
    transition.wait(stage)
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
    """Returns the positions of the calls with this name on logs of this topic."""
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
        transition.wait(stage)
        assert call is None, "it did not crash where it should"
    except ProcessCrashed:
        pass
    stage.broker.kill()
    states = [("kill", stage.disk.after_kill())]
    states += [(state.name, state.disk) for state in stage.disk.after_power_failure(seed=1)]
    for name, disk in states:
        check_restart(transition, is_answered, name, disk, stage.time.now_ms())


def check_restart(transition: Transition, is_answered: bool, name: str, disk: FakeDisk, now_ms: int) -> None:
    again = Stage(disk, now_ms)
    again.wait(3 * TIMEOUT_MS)  # By then an open transaction is aborted, and a decided one is completed.
    assert again.states() <= {"Empty", "CompleteCommit", "CompleteAbort"}, name
    is_done = again.offset() == 7
    happened = is_done and transition.is_commit
    expected = sorted(transition.before + (AB if happened else ()))
    assert again.readable() == expected, name
    assert is_done == (happened or bool(transition.before)), name
    assert happened or not (is_answered and transition.is_commit), f"{name}: the commit was acknowledged"
    # The transactional id can be used again.
    assert again.init() is E.NONE, name
    assert again.produce("next", P0) is E.NONE, name
    assert again.end(committed=True) is E.NONE, name
    again.wait(100)
    assert again.readable() == sorted([*expected, "next"]), name
    again.broker.kill()
