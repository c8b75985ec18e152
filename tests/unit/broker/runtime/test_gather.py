"""Several answers, some of them deferred, combined into one."""

import pytest

from odradek.broker.runtime.delayed import Deferred
from odradek.broker.runtime.gather import gather
from odradek.protocol.errors import ErrorCode, KafkaError


def failed(index: int, error: KafkaError) -> str:
    return f"{index}: {error.code.name}"


def test_answers_that_are_all_there_are_made_into_one_at_once() -> None:
    there: Deferred[str] = Deferred()
    there.resolve("b")
    answers: list[str | Deferred[str]] = ["a", there]
    assert gather(answers, failed, "".join) == "ab"


def test_the_last_to_come_completes_it_and_the_order_is_that_of_the_questions() -> None:
    first, last = Deferred[str](), Deferred[str]()
    answers: list[str | Deferred[str]] = [first, "b", last]
    together = gather(answers, failed, "".join)
    assert isinstance(together, Deferred)
    last.resolve("c")
    assert not together.is_done
    first.resolve("a")
    assert together.outcome() == "abc"


def test_one_that_fails_is_spoken_for_and_the_others_count() -> None:
    late, early = Deferred[str](), Deferred[str]()
    early.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    together = gather([early, late], failed, " ".join)
    late.resolve("fine")
    assert isinstance(together, Deferred)
    assert together.outcome() == "0: NOT_COORDINATOR fine"


def test_a_bug_is_nobodys_answer() -> None:
    broken: Deferred[str] = Deferred()
    broken.fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        gather([broken], failed, "".join)


def test_a_bug_that_comes_last_does_not_leave_the_question_open() -> None:
    broken: Deferred[str] = Deferred()
    together = gather([broken], failed, "".join)
    broken.fail(RuntimeError("a bug"))
    assert isinstance(together, Deferred)
    with pytest.raises(RuntimeError, match="a bug"):
        together.outcome()
