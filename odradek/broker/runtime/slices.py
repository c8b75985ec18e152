"""Work on very many things, on the loop and for somebody who can wait, while other clients are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import wraps
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from odradek.broker.runtime.delayed import Deferred

if TYPE_CHECKING:
    from odradek.broker.runtime.loop_watch import LoopWatch

A = TypeVar("A")
P = ParamSpec("P")
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


ENTRIES_PER_SLICE: Final = 250
NAMES_PER_RUN: Final = 5_000  # sorted at once, in 2 ms
Steps: TypeAlias = Generator[None, None, A]  # yields after each entry of a request, and returns the answer


def sliced(handler: Callable[P, Steps[A]]) -> Callable[P, A | Deferred[Any]]:
    """Makes a handler of a generator: other clients are served after every ENTRIES_PER_SLICE of its entries.

    An answer that takes one slice is given at once. What a longer one has not looked at yet may change meanwhile. It
    ends early when the client has gone.
    """

    @wraps(handler)
    def answer(*args: P.args, **named: P.kwargs) -> A | Deferred[Any]:
        steps = handler(*args, **named)
        reply = in_slices(steps)
        if isinstance(reply, Deferred):
            reply.on_disconnect(steps.close)
        return reply

    return answer


def in_slices(steps: Steps[A]) -> A | Deferred[Any]:
    """Does a handler's work as `sliced` does, and all of it, whether the client is there or not."""
    try:
        for _ in range(ENTRIES_PER_SLICE):
            next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # what the generator returns
    reply: Deferred[Any] = Deferred()
    asyncio.get_running_loop().call_soon(_go_on, steps, reply)
    return reply


def in_order(names: Iterable[str]) -> Steps[Iterator[str]]:
    """Sorts in slices: `sorted` would take a second for 10⁶ names, during which nobody else is served."""
    runs: list[list[str]] = []
    run: list[str] = []
    for name in names:
        run.append(name)
        if len(run) == NAMES_PER_RUN:
            run.sort()
            runs.append(run)
            run = []
        yield
    run.sort()
    return merge(*runs, run)


def _go_on(steps: Steps[Any], reply: Deferred[Any]) -> None:
    try:
        for _ in range(ENTRIES_PER_SLICE):
            next(steps)
    except StopIteration as done:
        reply.follow(done.value)
    except Exception as error:
        reply.fail(error)
    else:
        asyncio.get_running_loop().call_soon(_go_on, steps, reply)
