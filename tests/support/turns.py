"""Coroutines run without a loop: what they wait for is only their turn."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    outcome(coroutine)


def outcome(coroutine: Coroutine[Any, Any, T]) -> T:
    """What it returns; run to its end, here and now."""
    return outcome_and_turns(coroutine)[0]


def outcome_and_turns(coroutine: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The same, and how many turns of the loop it took."""
    for turn in count(1):
        try:
            assert coroutine.send(None) is None, "it waits for more than its turn"
        except StopIteration as end:
            return end.value, turn
    raise AssertionError
