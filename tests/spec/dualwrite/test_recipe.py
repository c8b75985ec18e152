"""Tests the dual write's tables, which define the permitted order of its steps, including after failures."""

from collections.abc import Iterator

import pytest

from odradek.dualwrite import recipe
from odradek.dualwrite.recipe import NEXT, End, Fate, Phase, Result, Step

Walk = tuple[tuple[tuple[Step, Result], ...], End]


def walks(step: Step, before: tuple[tuple[Step, Result], ...] = ()) -> Iterator[Walk]:
    """Yields every path from `step` to an end state, with the result of each step on the path."""
    for result, following in NEXT[step].items():
        way = (*before, (step, result))
        if isinstance(following, End):
            yield way, following
        else:
            yield from walks(following, way)


RECOVERY = (
    Step.TAKE_OVER_DATABASE,
    Step.TAKE_OVER_KAFKA,
    Step.READ_STATE,
    Step.COMPLETE_KAFKA,
    Step.FORGET_STATE,
)
TRANSACTIONS = list(walks(recipe.FIRST_TRANSACTION_STEP))
RECOVERIES = list(walks(recipe.FIRST_RECOVERY_STEP))


def test_every_step_has_a_row_and_is_reached() -> None:
    assert set(NEXT) == set(Step)
    assert {step for way, _ in (*TRANSACTIONS, *RECOVERIES) for step, _ in way} == set(Step)


def test_without_failures_the_steps_are_those_of_the_kip() -> None:
    done = [way for way, _ in (*TRANSACTIONS, *RECOVERIES) if all(result is Result.DONE for _, result in way)]
    assert [[step for step, _ in way] for way in done] == [
        [
            Step.BEGIN_DATABASE,
            Step.APPLICATION,
            Step.PREPARE_KAFKA,
            Step.WRITE_STATE,
            Step.COMMIT_DATABASE,
            Step.COMMIT_KAFKA,
        ],
        list(RECOVERY),
    ]


@pytest.mark.parametrize("walk", TRANSACTIONS, ids=str)
def test_kafka_commits_only_if_the_database_is_known_to_have_committed(walk: Walk) -> None:
    way, end = walk
    is_known = (Step.COMMIT_DATABASE, Result.DONE) in way or (Step.READ_BACK, Result.DONE) in way
    assert (Step.COMMIT_KAFKA in dict(way)) == is_known
    is_known |= (Step.COMMIT_ROWS, Result.DONE) in way
    assert (end.rows is Fate.COMMITTED) == is_known


@pytest.mark.parametrize("walk", TRANSACTIONS, ids=str)
def test_kafka_aborts_only_if_the_database_is_known_not_to_have_committed(walk: Walk) -> None:
    way, end = walk
    if Step.ABORT_KAFKA in dict(way):
        was_tried = Step.COMMIT_DATABASE in dict(way)
        assert not was_tried or (Step.READ_BACK, Result.OTHER_STATE) in way
        assert end.rows is Fate.ROLLED_BACK


@pytest.mark.parametrize("walk", TRANSACTIONS, ids=str)
def test_the_two_sides_never_end_differently(walk: Walk) -> None:
    _, end = walk
    decided = {Fate.COMMITTED, Fate.ROLLED_BACK}
    assert end.rows == end.messages or not {end.rows, end.messages} <= decided


@pytest.mark.parametrize("walk", TRANSACTIONS + RECOVERIES, ids=str)
def test_the_next_transaction_waits_for_recovery_where_messages_are_pending(walk: Walk) -> None:
    _, end = walk
    assert (end.messages is Fate.PENDING) == (end.phase is Phase.UNRECOVERED)
    assert (end.messages is Fate.OTHERS) == (end.phase is Phase.FENCED)


def test_recovery_decides_only_after_it_has_taken_over_both_sides() -> None:
    for way, _ in RECOVERIES:
        steps = [step for step, _ in way]
        if Step.COMPLETE_KAFKA in steps:
            assert tuple(steps[:4]) == RECOVERY[:4]
            assert {result for _, result in way[:3]} == {Result.DONE}


@pytest.mark.parametrize(
    ("stored", "generation", "result"),
    [
        ("1000:7", 3, Result.DONE),
        ("1000:7", 4, Result.DONE),  # The new owner will reach the same result.
        ("1000:6", 3, Result.OTHER_STATE),
        ("", 3, Result.OTHER_STATE),
        ("1000:9", 4, Result.FENCED),  # The broker may already have received this instance's request.
        ("", 4, Result.FENCED),
    ],
)
def test_the_row_decides_the_outcome_of_a_commit_without_a_response(
    stored: str, generation: int, result: Result
) -> None:
    assert recipe.read_back(stored, generation, own_state="1000:7", own_generation=3) is result
