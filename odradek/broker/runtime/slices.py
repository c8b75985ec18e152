"""Looking at very many things on the loop, for somebody who can wait, while clients are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from odradek.broker.runtime.loop_watch import LoopWatch

T = TypeVar("T")

SLICE_S: Final = 0.003


async def visit_in_slices(items: Iterable[T], visit: Callable[[T], None], watch: LoopWatch, name: str) -> None:
    """All that are there now. Whatever else the loop has to do gets its turn after each SLICE_S, so that an item may be
    gone when it is visited.

    name   what the watch calls this work
    """
    monotonic_s = watch.monotonic_s
    began_s = monotonic_s()
    for item in list(items):
        visit(item)
        took_s = monotonic_s() - began_s
        if took_s >= SLICE_S:
            watch.took(name, took_s)
            await asyncio.sleep(0)
            began_s = monotonic_s()
