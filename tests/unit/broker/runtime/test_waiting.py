"""Tests deferred answers and the coroutines waiting for them. A coroutine that never has to wait returns its own answer
immediately."""

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


def test_an_error_before_the_first_wait_is_raised_directly() -> None:
    with pytest.raises(KafkaError):
        start_coroutine(doubled(refused()))


def test_a_coroutine_that_waits_goes_on_when_the_answer_is_there() -> None:
    answer: Deferred[int] = Deferred()
    reply = start_coroutine(doubled(answer))
    assert isinstance(reply, Deferred)
    assert not reply.is_done
    answer.resolve(21)
    assert reply.outcome() == 42


def test_a_coroutine_may_await_many_resolved_and_pending_answers() -> None:
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


def test_an_error_after_a_wait_fails_the_deferred() -> None:
    answer: Deferred[int] = Deferred()
    reply = start_coroutine(doubled(answer))
    answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert isinstance(reply, Deferred)
    with pytest.raises(KafkaError):
        reply.outcome()


@pytest.mark.parametrize("ends_with_client", [True, False])
def test_a_disconnect_cancels_a_coroutine_only_if_requested(ends_with_client: bool) -> None:
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


def test_a_coroutine_may_await_the_event_loop_too() -> None:
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


def test_wait_for_all_returns_each_answer_or_its_error() -> None:
    later: Deferred[int] = Deferred()
    answers: list[NowOrLater[int]] = [1, refused(), later]
    reply = start_coroutine(wait_for_all(answers))
    later.resolve(3)
    assert isinstance(reply, Deferred)
    first, second, third = reply.outcome()
    assert (first, third) == (1, 3)
    assert isinstance(second, KafkaError)


def test_wait_for_all_ends_with_the_last_answer_and_keeps_the_order() -> None:
    first, last = Deferred[str](), Deferred[str]()
    answers: list[NowOrLater[str]] = [first, "b", last]
    reply = start_coroutine(wait_for_all(answers))
    assert isinstance(reply, Deferred)
    last.resolve("c")
    assert not reply.is_done
    first.resolve("a")
    assert reply.outcome() == ["a", "b", "c"]


def test_wait_for_all_raises_an_unexpected_exception() -> None:
    broken: Deferred[str] = Deferred()
    answers: list[NowOrLater[str]] = [broken]
    reply = start_coroutine(wait_for_all(answers))
    assert isinstance(reply, Deferred)
    broken.fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        reply.outcome()


def test_wait_for_answer_returns_a_value_at_once_and_waits_for_a_deferred() -> None:
    later: Deferred[int] = Deferred()
    answer: NowOrLater[int] = later
    assert start_coroutine(wait_for_answer(2)) == 2
    reply = start_coroutine(wait_for_answer(answer))
    later.resolve(3)
    assert isinstance(reply, Deferred)
    assert reply.outcome() == 3


def test_start_deferred_returns_a_deferred_in_every_state_of_the_coroutine() -> None:
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


def test_when_done_calls_back_when_the_answer_arrives() -> None:
    deferred: Deferred[str] = Deferred()
    outcomes: list[object] = []
    deferred.when_done(lambda done: outcomes.append(done.outcome()))
    assert outcomes == []
    deferred.resolve("answer")
    assert outcomes == ["answer"]


def test_when_done_calls_back_at_once_if_the_answer_is_there() -> None:
    deferred: Deferred[NoResponse] = Deferred()
    deferred.resolve(NO_RESPONSE)
    outcomes: list[object] = []
    deferred.when_done(lambda done: outcomes.append(done.outcome()))
    assert outcomes == [NO_RESPONSE]


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


def test_a_disconnect_is_reported_once_and_the_deferred_may_still_be_resolved() -> None:
    deferred: Deferred[str] = Deferred()
    heard: list[int] = []
    deferred.on_disconnect(lambda: heard.append(1))
    deferred.abandon()
    deferred.abandon()
    assert heard == [1]
    deferred.resolve("for nobody")


def test_a_disconnect_after_the_answer_is_not_reported() -> None:
    deferred: Deferred[str] = Deferred()
    heard: list[int] = []
    deferred.on_disconnect(lambda: heard.append(1))
    deferred.resolve("answer")
    deferred.abandon()
    assert heard == []


def test_complete_fails_with_an_error_and_resolves_with_any_other_value() -> None:
    refused, answered = Deferred[str](), Deferred[str]()
    refused.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
    answered.complete("fine")
    assert answered.outcome() == "fine"
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        refused.outcome()


def test_now_or_later_returns_the_value_once_it_is_resolved() -> None:
    waits: Deferred[str] = Deferred()
    assert waits.now_or_later() is waits
    waits.resolve("now")
    assert waits.now_or_later() == "now"
