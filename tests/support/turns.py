"""Runs coroutines that await nothing but their next turn, without a loop."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from itertools import count
from types import coroutine as from_generator
from typing import Any, TypeVar

from odradek.broker.runtime.waiting import NowOrLater, start_coroutine

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    outcome(coroutine)


def outcome(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to completion and returns its result."""
    return outcome_and_turns(coroutine)[0]


def outcome_and_turns(coroutine: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Like `outcome`, but also returns the number of event loop turns."""
    for turn in count(1):
        try:
            assert coroutine.send(None) is None, "it waits for more than its turn"
        except StopIteration as end:
            return end.value, turn
    raise AssertionError


def answered(coroutine: Coroutine[Any, Any, T]) -> NowOrLater[T]:
    """Starts a handler's coroutine as the dispatcher does, except that turns for other work take no time."""
    return start_coroutine(_without_turns(coroutine))


async def _without_turns(coroutine: Coroutine[Any, Any, T]) -> T:
    result: T = await _awaited(coroutine)
    return result


@from_generator
def _awaited(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, None, T]:
    while True:
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        if awaited is not None:
            yield awaited
