"""Wraps the asynchronous form of `odradek.testing` in the interface of the blocking form, so that the same tests cover
both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from odradek.testing import Clock, Cluster, Odradek

WRAPPED = (Odradek, Cluster, Clock)


class Blocking:
    """Wraps an object of the asynchronous form and runs its coroutines on a loop in another thread."""

    def __init__(self, one: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.one = one
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.one, name)
        if not inspect.iscoroutinefunction(value):
            return self.settled(value)

        def call(*args: Any, **kwargs: Any) -> Any:
            own = {key: value.one if isinstance(value, Blocking) else value for key, value in kwargs.items()}
            return self.settled(value(*args, **own))

        return call

    def settled(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            value = asyncio.run_coroutine_threadsafe(value, self.loop).result()
        return Blocking(value, self.loop) if isinstance(value, WRAPPED) else value

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.settled(self.one.__aexit__(*failure))


@contextmanager
def blocking() -> Iterator[Any]:
    """Yields a started `Odradek` with the interface of `odradek.testing.sync.Odradek`."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        with Blocking(asyncio.run_coroutine_threadsafe(Odradek.start(), loop).result(), loop) as started:
            yield started
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
