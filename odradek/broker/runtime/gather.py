"""Combines several answers, some of them deferred, into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.errors import KafkaError

R = TypeVar("R")
M = TypeVar("M")


def gather(
    answers: Sequence[R | Deferred[R]], on_failure: Callable[[int, KafkaError], R], make: Callable[[list[R]], M]
) -> M | Deferred[M]:
    """`make` of all answers, in their order: now, if all are there, else when the last one has come.

    on_failure  what stands for the answer at this index, which failed; the others still count
    """
    together: Deferred[M] = Deferred()
    pending = [answer for answer in answers if isinstance(answer, Deferred) and not answer.is_done]
    left = len(pending)

    def taken(index: int, answer: R | Deferred[R]) -> R:
        if not isinstance(answer, Deferred):
            return answer
        try:
            return answer.outcome()  # type: ignore[return-value]  # an answer among others is always one
        except KafkaError as error:
            return on_failure(index, error)

    def complete() -> M:
        return make([taken(index, answer) for index, answer in enumerate(answers)])

    def on_done(_: Deferred[R]) -> None:
        nonlocal left
        left -= 1
        if not left:
            try:
                together.resolve(complete())
            except Exception as error:  # a bug of the code that answered; it is logged where the reply is read
                together.fail(error)

    if not pending:
        return complete()
    for answer in pending:
        answer.when_done(on_done)
    return together
