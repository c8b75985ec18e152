"""Runs the event loop that all blocking clients of a process share. The loop runs in a separate thread, and other
threads call it.

The blocking classes do not duplicate the asynchronous classes. `blocking(Producer.flush)` turns a coroutine function
into a method that waits for the result, with the same parameters and documentation.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from odradek.client.common.errors import IllegalState
from odradek.client.metrics.values import Metrics
from odradek.client.network.connected import ConnectedClient

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=ConnectedClient)
S = TypeVar("S", bound="Blocking[Any]")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0  # how long an exiting process waits for the loop to stop

ThreadCall = Callable[[], None]
Work = Callable[[], Coroutine[Any, Any, R]]


class BackgroundLoop:
    def __init__(self) -> None:
        """Starts the thread and returns once its loop is running."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over: asyncio.Event | None = None
        self._is_ready = threading.Event()
        self.was_forked = False  # True in the child process after a fork, where the loop's thread does not exist
        self._thread = threading.Thread(target=self._run, name="odradek-client", daemon=True)
        self._thread.start()
        self._is_ready.wait(START_TIMEOUT_S)

    def run(self, work: Work[R], thread_calls: SimpleQueue[ThreadCall | None]) -> R:
        """Runs `work()` on the loop and returns its result. Interrupting the wait (Ctrl-C) cancels the work. Raises
        IllegalState after a fork, and in the loop's own thread.

        thread_calls   functions that the calling thread runs while it waits; `work` puts them into the queue
        """
        self._check()
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        future.add_done_callback(lambda _: thread_calls.put(None))
        try:
            while (thread_call := thread_calls.get()) is not None:
                thread_call()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Schedules `function` on the loop without waiting. Raises IllegalState after a fork, and in the loop's own
        thread."""
        self._check()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Stops the loop and cancels everything that is still running on it."""
        if self._thread.is_alive() and self._loop is not None and self._is_over is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join(STOP_TIMEOUT_S)

    def _check(self) -> None:
        if self.was_forked:
            raise IllegalState("this client was created before the process forked: create a new client in the child")
        if threading.current_thread() is self._thread:
            raise IllegalState("a blocking call in the client's own thread would wait for itself")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._until_over())

    async def _until_over(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self._is_ready.set()
        await self._is_over.wait()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


_lock = threading.Lock()
_shared: BackgroundLoop | None = None


def background_loop() -> BackgroundLoop:
    """Returns this process's loop. The first call starts it."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = BackgroundLoop()
        return _shared


def _stop_at_exit() -> None:
    if _shared is not None and not _shared.was_forked:
        _shared.stop()


def _clear_in_child() -> None:
    global _shared, _lock
    _lock = threading.Lock()
    if _shared is not None:
        _shared.was_forked = True
        _shared = None


atexit.register(_stop_at_exit)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_clear_in_child)


class Blocking(ABC, Generic[A]):
    """Base class of the blocking clients. Each class wraps an asyncio client so that threads can call it.

    Only one thread at a time may use a client, unless its class or the method documents otherwise.
    """

    def __init__(self, make: Callable[[], A]) -> None:
        self._background = background_loop()
        # Functions to be run by the thread that made the current call.
        self._thread_calls: SimpleQueue[ThreadCall | None] | None = None
        self._client = self._wait(partial(run_in_coroutine, make))

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def metrics(self) -> Metrics:
        """Returns the metrics of this client, with the names, groups and units of Kafka's Java clients.

        Measurements start when the client is created and can still be read after the client is closed. Thread-safe;
        never waits.
        """
        return self._client.metrics()

    def _wait(self, work: Work[R]) -> R:
        thread_calls: SimpleQueue[ThreadCall | None] = SimpleQueue()
        before, self._thread_calls = self._thread_calls, thread_calls
        try:
            return self._background.run(work, thread_calls)
        finally:
            self._thread_calls = before


async def run_in_coroutine(function: Callable[[], R]) -> R:
    return function()


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Blocking[A], P], R]:
    """Turns a coroutine method of the asyncio client into a method that waits for its result."""

    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(lambda: method(self._client, *args, **kwargs))

    functools.update_wrapper(call, method)  # copies the method's documentation and signature
    return call


def on_the_loop(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Blocking[A], P], R]:
    """Like `blocking`, but for a method that is not a coroutine and must nevertheless run on the loop."""

    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._wait(partial(run_in_coroutine, lambda: method(self._client, *args, **kwargs)))

    functools.update_wrapper(call, method)
    return call


def with_parameters_of(
    made: Callable[P, A],
) -> Callable[[Callable[[S, Callable[[], A]], None]], Callable[Concatenate[S, P], None]]:
    """Gives a decorated `__init__` the signature of `made`. The decorated function itself receives a factory that calls
    `made` with the caller's arguments."""

    def decorate(init: Callable[[S, Callable[[], A]], None]) -> Callable[Concatenate[S, P], None]:
        def construct(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, lambda: made(*args, **kwargs))

        functools.update_wrapper(construct, made.__init__)
        return construct

    return decorate
