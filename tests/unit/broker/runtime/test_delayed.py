"""A deferred answer is given once and read once; combinators make one answer of others."""

import pytest

from odradek.broker.runtime.delayed import NO_RESPONSE, CloseConnection, Deferred, NoResponse, all_of, once
from odradek.protocol.errors import ErrorCode, KafkaError


def test_who_waits_is_told_when_the_answer_comes() -> None:
    deferred: Deferred[str] = Deferred()
    told: list[object] = []
    deferred.when_done(lambda done: told.append(done.outcome()))
    assert told == []
    deferred.resolve("answer")
    assert told == ["answer"]


def test_who_comes_after_the_answer_is_told_at_once() -> None:
    deferred: Deferred[NoResponse] = Deferred()
    deferred.resolve(NO_RESPONSE)
    told: list[object] = []
    deferred.when_done(lambda done: told.append(done.outcome()))
    assert told == [NO_RESPONSE]


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_COORDINATOR), CloseConnection("why"), ValueError("bug")])
def test_a_failure_is_raised_where_the_answer_is_read(error: Exception) -> None:
    deferred: Deferred[str] = Deferred()
    deferred.fail(error)
    with pytest.raises(type(error)) as caught:
        deferred.outcome()
    assert caught.value is error


def test_a_second_answer_is_a_bug() -> None:
    deferred: Deferred[str] = Deferred()
    deferred.resolve("one")
    with pytest.raises(RuntimeError, match="answered once"):
        deferred.resolve("two")


def test_a_client_that_goes_away_is_heard_of_once_and_the_answer_may_still_be_given() -> None:
    deferred: Deferred[str] = Deferred()
    heard: list[int] = []
    deferred.on_disconnect(lambda: heard.append(1))
    deferred.abandon()
    deferred.abandon()
    assert heard == [1]
    deferred.resolve("for nobody")


def test_a_client_that_goes_away_after_the_answer_is_not_heard_of() -> None:
    deferred: Deferred[str] = Deferred()
    heard: list[int] = []
    deferred.on_disconnect(lambda: heard.append(1))
    deferred.resolve("answer")
    deferred.abandon()
    assert heard == []


def test_then_makes_another_answer_and_passes_failures_on() -> None:
    asked: Deferred[int] = Deferred(overlaps=True)
    made = asked.then(lambda number: f"{number} of them")
    assert not made.is_done
    assert made.overlaps
    asked.resolve(3)
    assert made.outcome() == "3 of them"
    refused: Deferred[int] = Deferred()
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        refused.then(str).outcome()


def test_then_waits_for_an_answer_that_is_deferred_itself() -> None:
    first, second = Deferred[int](), Deferred[str]()
    made = first.then(lambda _: second)
    first.resolve(1)
    assert not made.is_done
    second.resolve("at last")
    assert made.outcome() == "at last"


def test_a_bug_in_then_is_the_failure_of_what_it_makes() -> None:
    asked: Deferred[int] = Deferred()
    made = asked.then(lambda number: 1 // number)
    asked.resolve(0)
    with pytest.raises(ZeroDivisionError):
        made.outcome()


def test_otherwise_answers_a_refusal_and_leaves_answers_and_bugs_alone() -> None:
    refused, answered, broken = Deferred[str](), Deferred[str](), Deferred[str]()
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    answered.resolve("fine")
    broken.fail(RuntimeError("a bug"))
    assert refused.otherwise(lambda error: error.code.name).outcome() == "NOT_COORDINATOR"
    assert answered.otherwise(lambda error: error.code.name).outcome() == "fine"
    with pytest.raises(RuntimeError, match="a bug"):
        broken.otherwise(lambda error: error.code.name).outcome()


def test_otherwise_may_raise_another_refusal() -> None:
    def spelled_differently(error: KafkaError) -> str:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    refused: Deferred[str] = Deferred()
    made = refused.otherwise(spelled_differently)
    refused.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        made.outcome()


def test_once_makes_an_answer_of_what_is_there_or_will_be() -> None:
    assert once(2, str) == "2"
    later: Deferred[int] = Deferred()
    made = once(later, str)
    later.resolve(3)
    assert isinstance(made, Deferred)
    assert made.outcome() == "3"


def test_an_answer_that_is_there_can_be_had_now() -> None:
    waits: Deferred[str] = Deferred()
    assert waits.now_or_later() is waits
    waits.resolve("now")
    assert waits.now_or_later() == "now"


def failed(index: int, error: KafkaError) -> str:
    return f"{index}: {error.code.name}"


def test_answers_that_are_all_there_are_made_into_one_at_once() -> None:
    there: Deferred[str] = Deferred()
    there.resolve("b")
    answers: list[str | Deferred[str]] = ["a", there]
    assert all_of(answers, failed, "".join) == "ab"


def test_the_last_to_come_completes_it_and_the_order_is_that_of_the_questions() -> None:
    first, last = Deferred[str](), Deferred[str]()
    answers: list[str | Deferred[str]] = [first, "b", last]
    together = all_of(answers, failed, "".join)
    assert isinstance(together, Deferred)
    last.resolve("c")
    assert not together.is_done
    first.resolve("a")
    assert together.outcome() == "abc"


def test_one_that_fails_is_spoken_for_and_the_others_count() -> None:
    late, early = Deferred[str](), Deferred[str]()
    early.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    together = all_of([early, late], failed, " ".join)
    late.resolve("fine")
    assert isinstance(together, Deferred)
    assert together.outcome() == "0: NOT_COORDINATOR fine"


def test_a_bug_is_nobodys_answer() -> None:
    broken: Deferred[str] = Deferred()
    broken.fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        all_of([broken], failed, "".join)


def test_a_bug_that_comes_last_does_not_leave_the_question_open() -> None:
    broken: Deferred[str] = Deferred()
    together = all_of([broken], failed, "".join)
    broken.fail(RuntimeError("a bug"))
    assert isinstance(together, Deferred)
    with pytest.raises(RuntimeError, match="a bug"):
        together.outcome()
