"""A deferred answer is given once and read once; combinators make one answer of others."""

import pytest

from odradek.broker.runtime.delayed import NO_RESPONSE, CloseConnection, Deferred, NoResponse
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


def test_what_is_settled_with_a_refusal_has_failed_with_anything_else_is_resolved() -> None:
    refused, answered = Deferred[str](), Deferred[str]()
    refused.settle(KafkaError(ErrorCode.NOT_COORDINATOR))
    answered.settle("fine")
    assert answered.outcome() == "fine"
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        refused.outcome()


def test_an_answer_that_is_there_can_be_had_now() -> None:
    waits: Deferred[str] = Deferred()
    assert waits.now_or_later() is waits
    waits.resolve("now")
    assert waits.now_or_later() == "now"
