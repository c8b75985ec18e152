"""Tests two-phase commits with a kill or a power failure before every disk call in each step.

No flush setting requires an fsync here. The broker must sync records because an external coordinator relies on them.
The test plays this coordinator: it has noted the transaction's producer id and epoch and its decision and acts on these
notes after the crash. Scenarios: docs/spec/transactions.md#s8-8.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.simulation.stage import NO_PAIR, P0, P1, Pair, Stage
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk, ProcessCrashed

E = ErrorCode
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
# The broker's default intervals. With the shorter intervals of other simulations, simulating several days would take
# too long.
UNHURRIED = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "10000",
    "log_cleaner_backoff_ms": "15000",
    "log_flush_offset_checkpoint_interval_ms": "60000",
}


@dataclass(slots=True)
class Notes:
    """The external coordinator's notes: everything that it has learned, and its decision. The coordinator's disk does
    not fail."""

    ongoing: Pair = NO_PAIR
    written: tuple[str, ...] = ()
    has_offset: bool = False
    decision: bool | None = None
    is_answered: bool = False  # whether the broker has confirmed the end of the transaction
    # producer ids and epochs that newer ones have replaced
    replaced: tuple[Pair, ...] = ()


def stage_on(disk: FakeDisk | None = None, now_ms: int = NOW_MS, *, is_loading: bool = False) -> Stage:
    """Returns a stage for two-phase commits.

    is_loading  whether the first request arrives before the broker's coordinators have read their logs
    """
    return Stage(disk, now_ms, is_durable=False, is_two_phase=True, begins_after_ms=0 if is_loading else 500)


# --- Steps. Each step records the responses in the notes.


def begin(stage: Stage, notes: Notes) -> None:
    code, ongoing = stage.init6(keep=False)
    assert (code, ongoing) == (E.NONE, NO_PAIR)


def write_first(stage: Stage, notes: Notes) -> None:
    assert stage.produce("a", P0) is E.NONE
    notes.ongoing = stage.pair
    notes.written += ("a",)


def write_another(stage: Stage, notes: Notes) -> None:
    assert stage.produce("b", P1) is E.NONE
    notes.written += ("b",)


def write_again(stage: Stage, notes: Notes) -> None:
    assert stage.produce("c", P0) is E.NONE
    notes.written += ("c",)


def commit_offset(stage: Stage, notes: Notes) -> None:
    assert stage.commit_offset(7) is E.NONE
    notes.has_offset = True


def keep(stage: Stage, notes: Notes) -> None:
    before = stage.pair
    code, ongoing = stage.init6(keep=True)
    assert (code, ongoing) == (E.NONE, notes.ongoing)
    assert stage.pair == (before[0], before[1] + 1)
    notes.replaced += (before,)


def write_as_those_before(stage: Stage, notes: Notes) -> None:
    """Checks that the broker refuses writes of every replaced producer to the transaction's partitions, with each
    protocol."""
    owner, sequences = stage.pair, stage.sequences
    for pair in notes.replaced:
        for produce_version, commit_version in ((11, 3), (12, 5)):
            stage.pair, stage.sequences = pair, {P0: 2}
            code = stage.produce("late", P0, version=produce_version)
            assert code in (E.INVALID_PRODUCER_EPOCH, E.NOT_ENOUGH_REPLICAS), code
            code = stage.commit_offset(8, version=commit_version)
            assert code in (E.INVALID_PRODUCER_EPOCH, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR), code
    stage.pair, stage.sequences = owner, sequences


def commit(stage: Stage, notes: Notes) -> None:
    notes.decision = True
    assert stage.end(committed=True) is E.NONE
    notes.is_answered = True


def abort(stage: Stage, notes: Notes) -> None:
    notes.decision = False
    assert stage.end(committed=False) is E.NONE
    notes.is_answered = True


def begin_ordinary(stage: Stage, notes: Notes) -> None:
    stage.is_two_phase = False
    begin(stage, notes)


def make_two_phase(stage: Stage, notes: Notes) -> None:
    """Turns the transaction into a two-phase commit. After the response, the earlier records are durable too."""
    stage.is_two_phase = True
    keep(stage, notes)


Step = Callable[[Stage, Notes], None]
PREPARED: list[Step] = [begin, write_first, write_another, write_again, commit_offset]
MADE_TWO_PHASE: list[Step] = [begin_ordinary, *PREPARED[1:], make_two_phase]
UNPROMISED = [begin_ordinary, make_two_phase]  # Before these steps are answered, written records may be lost.
STORIES: list[list[Step]] = [
    PREPARED,
    [*PREPARED, keep, keep, commit],
    [*PREPARED, abort],
    [*PREPARED, commit],
    [*MADE_TWO_PHASE, commit],
    [*MADE_TWO_PHASE, keep, abort],
    [*PREPARED, keep, write_as_those_before, commit],
    [*MADE_TWO_PHASE, write_as_those_before, keep, commit],
]
CASES = [
    pytest.param(story, number, id=f"{' '.join(step.__name__ for step in story[: number + 1][-2:])} of {len(story)}")
    for story in STORIES
    for number in range(len(story))
    if story is PREPARED or story[number] not in [*PREPARED, *UNPROMISED, write_as_those_before]
]


def crashes(story: list[Step], number: int) -> Iterator[tuple[Stage, Notes]]:
    """Yields the stage and the notes after the broker has died in this step, before each disk call and after the last
    one."""
    for call in count(1):
        stage, notes = stage_on(), Notes()
        for step in story[:number]:
            step(stage, notes)
        stage.disk.crash_before(call)
        try:
            story[number](stage, notes)
        except ProcessCrashed:
            stage.broker.kill()
            yield stage, notes
            continue
        stage.broker.kill()
        yield stage, notes
        return


@pytest.mark.parametrize(("story", "number"), CASES)
def test_acknowledged_state_survives_a_power_failure_and_only_the_noted_decision_takes_effect(
    story: list[Step], number: int
) -> None:
    tried = 0
    for stage, notes in crashes(story, number):
        states = [("kill", stage.disk.after_kill())]
        states += [(state.name, state.disk) for state in stage.disk.after_power_failure(seed=tried, random_states=2)]
        for name, disk in states:
            check_recovery(disk, stage, notes, f"before call {tried + 1}, {name}")
        tried += 1
    assert tried > 1, "the step does nothing with the disk"


def check_recovery(disk: FakeDisk, before: Stage, notes: Notes, when: str) -> None:
    """Restarts the broker one day after the crash and checks that no decision is lost. Then recovers the transaction,
    as the restarted application does, and checks its state, producer id and epoch."""
    again = stage_on(disk, before.time.now_ms() + DAY_MS, is_loading=True)
    write_as_those_before(again, notes)
    again.wait(2_000)
    write_as_those_before(again, notes)
    if notes.is_answered:
        assert "Ongoing" not in again.states(), f"{when}: a decision is forgotten"
        again.wait(1_000)
        assert_decided(again, notes, when)
    if before.pair == NO_PAIR:
        return  # The broker had not sent a response.
    code, ongoing = again.init6(keep=True)
    assert code is E.NONE, when
    is_open = ongoing != NO_PAIR
    if is_open:
        notes = replace(notes, replaced=(*notes.replaced, ongoing))
        write_as_those_before(again, notes)
    if notes.written:
        assert ongoing in (notes.ongoing, NO_PAIR), when
        assert is_open or notes.decision is not None, f"{when}: what was prepared has been decided by nobody"
    assert again.pair > before.pair, f"{when}: a pair is given for the second time"
    if is_open:
        assert again.end(committed=bool(notes.decision)) is E.NONE, when
    again.wait(1_000)
    if notes.decision is not None:
        assert_decided(again, notes, when)
    if notes.decision is None:
        assert again.readable() == [], when
    # The transactional id can be used again.
    assert again.produce("next", P0) is E.NONE, when
    assert again.end(committed=True) is E.NONE, when
    assert "next" in again.readable(), when
    again.broker.kill()


def assert_decided(stage: Stage, notes: Notes, when: str) -> None:
    assert stage.readable() == sorted(notes.written if notes.decision else ()), when
    assert (stage.offset() == 7) is (notes.has_offset and notes.decision), when


# --- The fsyncs of each step, and the requests that wait for them.


def synced(stage: Stage, step: Step) -> list[str]:
    """Returns the topics whose logs a step has synced, in the order of the syncs and without duplicates."""
    start = len(stage.disk.log)
    step(stage, Notes(ongoing=stage.pair))
    calls = [call for call in stage.disk.log[start:] if call.startswith("sync") and call.endswith(".log")]
    return list(dict.fromkeys(call.split("/")[-2].rpartition("-")[0] for call in calls))


def test_every_answer_is_synced_the_decision_before_its_markers_and_these_before_the_end() -> None:
    stage, notes = stage_on(), Notes()
    begin(stage, notes)
    assert synced(stage, write_first) == ["__transaction_state", "orders"]
    assert synced(stage, write_again) == ["orders"]
    assert sorted(synced(stage, commit_offset)) == [GROUP_OFFSETS, "__transaction_state"]
    assert synced(stage, keep) == ["__transaction_state"]
    decision, *markers = synced(stage, commit)
    assert decision == "__transaction_state"
    assert sorted(markers) == [GROUP_OFFSETS, "orders"]


def test_a_transaction_that_becomes_a_two_phase_commit_is_recorded_as_such_before_its_records_are_synced() -> None:
    stage, notes = stage_on(), Notes()
    begin_ordinary(stage, notes)
    for step in MADE_TWO_PHASE[1:-1]:
        assert synced(stage, step) == [], step.__name__
    first, *records = synced(stage, make_two_phase)
    assert first == "__transaction_state"
    assert sorted(records) == [GROUP_OFFSETS, "orders"]


@pytest.mark.parametrize("call", [2, 3])
def test_after_a_crash_between_the_two_phase_record_and_the_response_the_next_recovery_syncs(call: int) -> None:
    stage, notes = stage_on(), Notes()
    for step in MADE_TWO_PHASE[:-1]:
        step(stage, notes)
    stage.is_two_phase = True
    stage.disk.crash_before(call)
    with pytest.raises(ProcessCrashed):
        stage.init6(keep=True)
    stage.broker.kill()
    again = stage_on(stage.disk.after_kill(), stage.time.now_ms() + 10)
    again.wait(2_000)
    records = synced(again, keep_whatever_is_open)
    assert "orders" in records


def keep_whatever_is_open(stage: Stage, notes: Notes) -> None:
    code, ongoing = stage.init6(keep=True)
    assert code is E.NONE
    assert ongoing != NO_PAIR


def test_other_transactions_are_synced_no_more_than_the_settings_ask() -> None:
    stage = Stage(is_durable=False)
    assert stage.init() is E.NONE
    for step in (write_first, write_again, commit_offset, commit):
        assert synced(stage, step) == []


def test_two_phase_commits_do_not_cause_syncs_for_later_ordinary_transactions() -> None:
    stage, notes = stage_on(), Notes()
    begin(stage, notes)
    write_first(stage, notes)
    abort(stage, notes)
    stage.is_two_phase = False
    assert stage.init6(keep=False)[0] is E.NONE  # The next transactions of this transactional id are ordinary.
    assert synced(stage, write_first) == []
    assert synced(stage, commit) == []


# --- Time.


def in_doubt() -> tuple[Stage, Notes]:
    stage = Stage(is_durable=False, is_two_phase=True, settings=UNHURRIED)
    notes = Notes()
    for step in PREPARED:
        step(stage, notes)
    return stage, notes


def test_scenario_111_a_day_in_doubt_changes_nothing() -> None:
    stage, notes = in_doubt()
    written_before = stage.broker.partition(*P0).log.log_end_offset
    stage.wait(DAY_MS)
    assert stage.states() == {"Ongoing"}
    assert stage.broker.partition(*P0).log.log_end_offset == written_before
    keep(stage, notes)
    stage.wait(DAY_MS)
    commit(stage, notes)
    assert_decided(stage, notes, "after two days")


def test_scenario_129_a_month_in_doubt_with_a_restart_every_week_changes_nothing() -> None:
    stage, notes = in_doubt()
    for _ in range(4):
        stage.broker.kill()
        now_ms = stage.time.now_ms() + 7 * DAY_MS
        stage = Stage(stage.disk.after_kill(), now_ms, is_durable=False, is_two_phase=True, settings=UNHURRIED)
        stage.wait(HOUR_MS)
        assert stage.states() == {"Ongoing"}
    code, ongoing = stage.init6(keep=True)
    assert (code, ongoing) == (E.NONE, notes.ongoing)
    commit(stage, notes)
    assert_decided(stage, notes, "after a month")
