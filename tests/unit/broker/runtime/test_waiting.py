"""Tests deferred answers, and the coroutines that wait for them. A coroutine that never has to wait returns its own
answer immediately."""

import asyncio

import pytest

from odradek.broker.runtime.replies import NO_RESPONSE, CloseConnection, NoResponse
from odradek.broker.runtime.waiting import (
    Deferred,
    NowOrLater,
    in_thread,
    sleep,
    start_coroutine,
    start_deferred,
    start_unattended,
    wait_for_all,
    wait_for_answer,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.clock import ManualTimers
from tests.support.manual_loop import ManualWorkers


def refused() -> Deferred[int]:
    answer: Deferred[int] = Deferred()
    answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    return answer


async def doubled(answer: Deferred[int]) -> int:
    return 2 * await answer


def test_a_coroutine_that_does_not_wait_gives_its_answer_at_once() -> None:
    answer: Deferred[int] = Deferred()
    answer.resolve(21)
    assert start_coroutine(doubled(answer)) == 42


def test_what_it_raises_before_it_waits_is_raised() -> None:
    with pytest.raises(KafkaError):
        start_coroutine(doubled(refused()))


def test_a_coroutine_that_waits_goes_on_when_the_answer_is_there() -> None:
    answer: Deferred[int] = Deferred()
    reply = start_coroutine(doubled(answer))
    assert isinstance(reply, Deferred)
    assert not reply.is_done
    answer.resolve(21)
    assert reply.outcome() == 42


def test_it_may_wait_many_times_for_answers_that_are_there_or_not() -> None:
    answers: list[Deferred[int]] = [Deferred() for _ in range(1_000)]
    for answer in answers[::2]:
        answer.resolve(1)

    async def total() -> int:
        return sum([await answer for answer in answers])

    reply = start_coroutine(total())
    for answer in answers[1::2]:
        answer.resolve(1)
    assert isinstance(reply, Deferred)
    assert reply.outcome() == 1_000


def test_an_error_after_a_wait_is_the_answers() -> None:
    answer: Deferred[int] = Deferred()
    reply = start_coroutine(doubled(answer))
    answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert isinstance(reply, Deferred)
    with pytest.raises(KafkaError):
        reply.outcome()


@pytest.mark.parametrize("ends_with_client", [True, False])
def test_a_client_that_goes_away_ends_a_coroutine_only_if_asked_to(ends_with_client: bool) -> None:
    answer: Deferred[int] = Deferred()
    left = []

    async def wait() -> None:
        try:
            await answer
            left.append("came to its end")
        finally:
            left.append("cleaned up")

    reply = start_coroutine(wait(), ends_with_client=ends_with_client)
    assert isinstance(reply, Deferred)
    reply.abandon()
    assert left == (["cleaned up"] if ends_with_client else [])
    answer.resolve(1)
    assert left == (["cleaned up"] if ends_with_client else ["came to its end", "cleaned up"])


def test_it_may_wait_for_the_event_loop_too() -> None:
    async def read() -> int:
        await asyncio.sleep(0)
        return await asyncio.get_running_loop().run_in_executor(None, lambda: 42)

    async def answered() -> int:
        reply = start_coroutine(read())
        assert isinstance(reply, Deferred)
        done = asyncio.get_running_loop().create_future()
        reply.when_done(lambda answer: done.set_result(answer.outcome()))
        found: int = await done
        return found

    assert asyncio.run(answered()) == 42


def test_of_several_answers_each_is_there_or_is_its_refusal() -> None:
    later: Deferred[int] = Deferred()
    answers: list[NowOrLater[int]] = [1, refused(), later]
    reply = start_coroutine(wait_for_all(answers))
    later.resolve(3)
    assert isinstance(reply, Deferred)
    first, second, third = reply.outcome()
    assert (first, third) == (1, 3)
    assert isinstance(second, KafkaError)


def test_the_last_answer_to_come_ends_the_wait_and_the_order_is_that_of_the_questions() -> None:
    first, last = Deferred[str](), Deferred[str]()
    answers: list[NowOrLater[str]] = [first, "b", last]
    reply = start_coroutine(wait_for_all(answers))
    assert isinstance(reply, Deferred)
    last.resolve("c")
    assert not reply.is_done
    first.resolve("a")
    assert reply.outcome() == ["a", "b", "c"]


def test_a_bug_is_nobodys_answer_and_does_not_leave_the_question_open() -> None:
    broken: Deferred[str] = Deferred()
    answers: list[NowOrLater[str]] = [broken]
    reply = start_coroutine(wait_for_all(answers))
    assert isinstance(reply, Deferred)
    broken.fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        reply.outcome()


def test_what_is_there_has_arrived_and_what_is_not_is_waited_for() -> None:
    later: Deferred[int] = Deferred()
    answer: NowOrLater[int] = later
    assert start_coroutine(wait_for_answer(2)) == 2
    reply = start_coroutine(wait_for_answer(answer))
    later.resolve(3)
    assert isinstance(reply, Deferred)
    assert reply.outcome() == 3


def test_a_coroutine_may_be_had_as_a_deferred_whether_it_waits_is_done_or_has_failed() -> None:
    there, later = Deferred[int](), Deferred[int]()
    there.resolve(1)
    assert start_deferred(doubled(there)).outcome() == 2
    waits = start_deferred(doubled(later))
    assert not waits.is_done
    later.resolve(2)
    assert waits.outcome() == 4
    with pytest.raises(KafkaError):
        start_deferred(doubled(refused())).outcome()


@pytest.mark.traceback("RuntimeError: a bug")
def test_work_for_which_nobody_waits_logs_the_bug_that_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    later: Deferred[int] = Deferred()
    start_unattended(doubled(later))
    later.fail(RuntimeError("a bug"))
    assert "a bug" in caplog.text
    with pytest.raises(KafkaError):  # an error before the first wait is raised to the caller
        start_unattended(doubled(refused()))


def test_a_thread_can_be_waited_for() -> None:
    workers = ManualWorkers()

    def failing() -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    done, failed = start_coroutine(in_thread(workers, lambda: 42)), start_deferred(in_thread(workers, failing))
    assert isinstance(done, Deferred)
    assert not done.is_done
    workers.finish_all()
    assert done.outcome() == 42
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        failed.outcome()


def test_time_can_be_waited_for() -> None:
    timers = ManualTimers()

    async def wait() -> bool:
        await sleep(timers, 20)
        return True

    reply = start_coroutine(wait())
    assert isinstance(reply, Deferred)
    timers.advance(19)
    assert not reply.is_done
    timers.advance(1)
    assert reply.outcome()


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
    with pytest.raises(RuntimeError, match="already been answered"):
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
    refused.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
    answered.complete("fine")
    assert answered.outcome() == "fine"
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        refused.outcome()


def test_an_answer_that_is_there_can_be_had_now() -> None:
    waits: Deferred[str] = Deferred()
    assert waits.now_or_later() is waits
    waits.resolve("now")
    assert waits.now_or_later() == "now"
