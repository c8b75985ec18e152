"""Coroutines that are stepped by hand: an answer at once where nothing waits, later where something does."""

import asyncio

import pytest

from odradek.broker.runtime.delayed import Deferred, NowOrLater
from odradek.broker.runtime.waiting import after, each_of, started
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.support.clock import ManualTimers


def refused() -> Deferred[int]:
    answer: Deferred[int] = Deferred()
    answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    return answer


async def doubled(answer: Deferred[int]) -> int:
    return 2 * await answer


def test_a_coroutine_that_does_not_wait_gives_its_answer_at_once() -> None:
    answer: Deferred[int] = Deferred()
    answer.resolve(21)
    assert started(doubled(answer)) == 42


def test_what_it_raises_before_it_waits_is_raised() -> None:
    with pytest.raises(KafkaError):
        started(doubled(refused()))


def test_a_coroutine_that_waits_goes_on_when_the_answer_is_there() -> None:
    answer: Deferred[int] = Deferred()
    reply = started(doubled(answer))
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

    reply = started(total())
    for answer in answers[1::2]:
        answer.resolve(1)
    assert isinstance(reply, Deferred)
    assert reply.outcome() == 1_000


def test_an_error_after_a_wait_is_the_answers() -> None:
    answer: Deferred[int] = Deferred()
    reply = started(doubled(answer))
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

    reply = started(wait(), ends_with_client=ends_with_client)
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
        reply = started(read())
        assert isinstance(reply, Deferred)
        done = asyncio.get_running_loop().create_future()
        reply.when_done(lambda answer: done.set_result(answer.outcome()))
        found: int = await done
        return found

    assert asyncio.run(answered()) == 42


def test_of_several_answers_each_is_there_or_is_its_refusal() -> None:
    later: Deferred[int] = Deferred()
    answers: list[NowOrLater[int]] = [1, refused(), later]
    reply = started(each_of(answers))
    later.resolve(3)
    assert isinstance(reply, Deferred)
    first, second, third = reply.outcome()
    assert (first, third) == (1, 3)
    assert isinstance(second, KafkaError)


def test_time_can_be_waited_for() -> None:
    timers = ManualTimers()

    async def wait() -> bool:
        await after(timers, 20)
        return True

    reply = started(wait())
    assert isinstance(reply, Deferred)
    timers.advance(19)
    assert not reply.is_done
    timers.advance(1)
    assert reply.outcome()
