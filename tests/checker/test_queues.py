"""Tests that the checker of queues finds each kind of fault and finds none in correct histories."""

import pytest

from tests.checker.queues import LATE_NS, Fault, JobsFinished, JobsTaken, QueueHistory, faults

JOBS = ("a", "b", "c")


def test_a_correct_history_has_no_faults() -> None:
    taken = [JobsTaken(0, ("a", "b")), JobsTaken(5, ("b", "c")), JobsTaken(10, ("a",))]
    finished = [JobsFinished(15, ("a",)), JobsFinished(20, ("b", "c"))]
    assert faults(QueueHistory(JOBS, ("b", "c", "a"), ("a", "b"), taken, finished)) == []


@pytest.mark.parametrize(
    ("results", "seen", "left", "fault"),
    [
        (("a", "b"), (), (), Fault.LOST),
        (("a", "b", "c", "b"), (), (), Fault.REPEATED),
        (("a", "b", "c", "d"), (), (), Fault.MADE_UP),
        (JOBS, ("a", "a"), (), Fault.MADE_UP),
        (JOBS, JOBS, ("the transaction worker-1 is open",), Fault.LEFT),
    ],
)
def test_each_fault_is_found(
    results: tuple[str, ...], seen: tuple[str, ...], left: tuple[str, ...], fault: Fault
) -> None:
    assert [kind for kind, _ in faults(QueueHistory(JOBS, results, seen, left=left))] == [fault]


def test_a_job_that_is_taken_long_after_it_was_finished_is_redelivered() -> None:
    finished = [JobsFinished(0, ("a",))]
    history = QueueHistory(
        JOBS, JOBS, (), [JobsTaken(LATE_NS, ("a", "b")), JobsTaken(LATE_NS + 1, ("a", "c"))], finished
    )
    assert faults(history) == [(Fault.REDELIVERED, "a")]
