"""Whoever looks at very many things lets others have their turn in between."""

from __future__ import annotations

import asyncio
from itertools import count

from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import SLICE_S, visit_in_slices
from tests.support.clock import ManualClock, ManualTimers

NOW_MS = 1_700_000_000_000


def visited(each_s: float) -> list[str]:
    """What happened while a and b were visited, which took so long, and somebody else had two things to do."""
    happened: list[str] = []

    async def other() -> None:
        for _ in range(2):
            happened.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        watch = LoopWatch(ManualTimers(ManualClock(NOW_MS)), count(0.0, each_s).__next__)
        await asyncio.gather(visit_in_slices(["a", "b"], happened.append, watch, "test"), other())

    asyncio.run(both())
    return happened


def test_others_get_their_turn_after_each_slice() -> None:
    assert visited(SLICE_S * 1.5) == ["a", "other", "b", "other"]


def test_what_fits_into_one_slice_is_one_turn() -> None:
    assert visited(SLICE_S / 3) == ["a", "b", "other", "other"]
