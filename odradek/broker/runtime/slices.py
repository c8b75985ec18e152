"""Splits long work on the loop into slices, so that other clients are served between slices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial, wraps
from heapq import merge
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from odradek.broker.runtime.waiting import Deferred

if TYPE_CHECKING:
    from odradek.broker.runtime.loop_watch import LoopWatch

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

SLICE_S: Final = 0.003


async def work_in_slices(steps: Iterator[None]) -> None:
    """Runs all steps. After each SLICE_S, the loop can do other work before the steps continue. If several calls are
    active, each turn of the loop runs one slice of the call that has waited longest."""
    slices = _slices.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    is_over = False
    while not is_over:
        async with slices:
            is_over = _work_slice(steps)
            # The pause also follows the last slice, because the caller's next piece of work can take as long as a
            # slice.
            await asyncio.sleep(0)


def _work_slice(steps: Iterator[None]) -> bool:
    """Runs one slice. Returns whether all steps are done."""
    until_s = perf_counter() + SLICE_S
    return all(perf_counter() < until_s for _ in steps)


def run_to_end(steps: Steps[A]) -> A:
    """Runs all steps immediately and returns the generator's result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # the return value of the generator


async def visit_in_slices(items: Iterable[T], visit: Callable[[T], None], watch: LoopWatch, name: str) -> None:
    """Calls `visit` for each of the current items. After each SLICE_S, the loop can do other work, so an item may
    already have been removed when it is visited. If several calls are active, each turn runs one slice of the call that
    has waited longest.

    name  the name under which the loop watch reports this work
    """
    left: Iterator[T] | None = None
    is_over = False
    while not is_over:
        async with watch.slices:
            left = iter(list(items)) if left is None else left
            is_over = _visit_slice(left, visit, watch, name)
            if not is_over:
                await asyncio.sleep(0)


async def step_in_slices(steps: Iterator[None], watch: LoopWatch, name: str) -> None:
    """Like `visit_in_slices`, but advances an iterator. Use it if processing a single item can take several steps."""
    is_over = False
    while not is_over:
        async with watch.slices:
            is_over = _visit_slice(steps, _done, watch, name)
            if not is_over:
                await asyncio.sleep(0)


def _done(step: None) -> None:
    """Does nothing, because the iterator has already done the step."""


def _visit_slice(left: Iterator[T], visit: Callable[[T], None], watch: LoopWatch, name: str) -> bool:
    """Visits items for the duration of one slice. Returns whether all items have been visited."""
    began_s = watch.monotonic_s()
    for item in left:
        visit(item)
        took_s = watch.monotonic_s() - began_s
        if took_s >= SLICE_S:
            watch.record_duration(name, took_s)
            return False
    return True


ENTRIES_PER_SLICE: Final = 250
# Size of the first slice of a request that arrives while MAX_LONG_REQUESTS other requests are in progress.
ENTRIES_PER_SLICE_UNDER_LOAD: Final = 50
# Maximum number of long requests in progress. The partial responses of more requests would take too much memory.
MAX_LONG_REQUESTS: Final = 8
NAMES_PER_RUN: Final = 5_000  # number of names sorted without a pause, which takes 2 ms
Steps: TypeAlias = Generator[None, None, A]  # yields after each entry of a request, and finally returns the response
# The steps, the reply, and the size of the request's frame (0 if the frame is not long).
LongRequest: TypeAlias = tuple[Steps[Any], Deferred[Any], int]
# Maximum total size of the frames being handled. Once decoded, they take twenty times as much memory.
MAX_DECODED_BYTES: Final = 2 * 1024 * 1024


def sliced(handler: Callable[P, Steps[A]]) -> Callable[P, A | Deferred[Any]]:
    """Turns a generator into a handler that pauses after every ENTRIES_PER_SLICE entries, so that other clients are
    served.

    If the response is complete within one slice, it is returned immediately. If a request takes longer, state that it
    has not read yet may change between slices. The work ends early if the client disconnects.
    """

    @wraps(handler)
    def answer(*args: P.args, **named: P.kwargs) -> A | Deferred[Any]:
        return in_slices(handler(*args, **named), ends_with_client=True)

    return answer


def made_of_each(items: Iterable[T], make: Callable[[T], A]) -> Steps[list[A]]:
    """Calls `make` for each item, yields after each call, and finally returns a list of the results."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def in_slices(steps: Steps[A], *, ends_with_client: bool = False) -> A | Deferred[Any]:
    """Runs a handler's steps in slices, as `sliced` describes. Returns the result, or a Deferred if the steps need more
    than one slice.

    ends_with_client  True if the work stops when the client disconnects; False if it is always completed
    """
    crowd = next((each for each in _rotations.values() if each.is_full), None)
    try:
        for _ in range(ENTRIES_PER_SLICE if crowd is None else crowd.take_first_slice()):
            next(steps)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # the return value of the generator
    reply: Deferred[Any] = Deferred()
    if ends_with_client:
        reply.on_disconnect(steps.close)
    rotation().add(steps, reply)
    return reply


async def done_in_slices(steps: Steps[A]) -> A:
    """Runs the generator in slices until it ends and returns its result."""
    answer = in_slices(steps)
    return await answer if isinstance(answer, Deferred) else answer


def in_order(names: Iterable[str]) -> Steps[Iterator[str]]:
    """Sorts names in slices. `sorted` would take a second for 10⁶ names, during which no other client would be
    served."""
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


class Rotation:
    """The long requests of an event loop. Each turn runs one slice of one request, however many requests there are. The
    MAX_LONG_REQUESTS oldest requests take turns.

    While MAX_LONG_REQUESTS requests are in progress, each turn has one additional slice, which all new requests share
    for their first entries. If that slice is used up, a new request begins in a later turn, ahead of waiting requests
    that have already begun.

    Frames are decoded in order of arrival, as soon as there is room in memory for the decoded requests.
    """

    def __init__(self) -> None:
        self._rotating: deque[LongRequest] = deque()
        self._waiting: deque[LongRequest] = deque()
        self._unbegun: deque[LongRequest] = deque()
        # Number of entries left in the slice that new requests share in this turn.
        self._entries_left = ENTRIES_PER_SLICE
        self._is_armed = False
        self._undecoded: deque[tuple[int, Callable[[], None]]] = deque()
        # Total size of frames that are being decoded, or whose entries have not all been processed.
        self._decoded_bytes = 0
        self._called_bytes = 0  # size of the frame whose handler is currently being called

    def decode(
        self, frame_bytes: int, decode: Callable[[Callable[[T], None]], None], handle: Callable[[T], None]
    ) -> None:
        """Decodes a frame, now or later, and passes the result to a handler.

        decode  receives a callback and calls it once with the decoded request, in this turn or a later one
        handle  may leave work to be done in slices; the frame's memory remains reserved until that work is done
        """
        self._undecoded.append((frame_bytes, partial(decode, partial(self._handle, frame_bytes, handle))))
        self._decode_next()

    def _handle(self, frame_bytes: int, handle: Callable[[T], None], decoded: T) -> None:
        self._called_bytes = frame_bytes
        try:
            handle(decoded)
        finally:
            self._release_frame(self._called_bytes)
            self._called_bytes = 0

    def _release_frame(self, frame_bytes: int) -> None:
        self._decoded_bytes -= frame_bytes
        self._decode_next()

    def _decode_next(self) -> None:
        undecoded = self._undecoded
        while undecoded and (not self._decoded_bytes or self._decoded_bytes + undecoded[0][0] <= MAX_DECODED_BYTES):
            frame_bytes, start = undecoded.popleft()
            self._decoded_bytes += frame_bytes
            start()

    @property
    def is_full(self) -> bool:
        return len(self._rotating) == MAX_LONG_REQUESTS

    def take_first_slice(self) -> int:
        """Returns how many entries of a request can be processed before the request is added. Deducts these entries
        from the slice that new requests share in this turn."""
        entries = 0 if self._unbegun else min(ENTRIES_PER_SLICE_UNDER_LOAD, self._entries_left)
        self._entries_left -= entries
        return entries

    def add(self, steps: Steps[Any], reply: Deferred[Any]) -> None:
        request = (steps, reply, self._called_bytes)
        self._called_bytes = 0
        if not self.is_full:
            self._rotating.append(request)
        elif self._entries_left:
            self._waiting.append(request)
        else:
            self._unbegun.append(request)
        self._arm()

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._is_armed = False
        self._entries_left = ENTRIES_PER_SLICE
        while self._unbegun and self._entries_left:
            request = self._unbegun.popleft()
            self._entries_left -= ENTRIES_PER_SLICE_UNDER_LOAD
            if not self._ends_within(ENTRIES_PER_SLICE_UNDER_LOAD, request):
                self._waiting.append(request)
        if self._rotating:
            request = self._rotating.popleft()
            if not self._ends_within(ENTRIES_PER_SLICE, request):
                self._rotating.append(request)
        while self._waiting and not self.is_full:
            self._rotating.append(self._waiting.popleft())
        if self._rotating or self._unbegun:
            self._arm()

    def _ends_within(self, entries: int, request: LongRequest) -> bool:
        steps, reply, frame_bytes = request
        try:
            for _ in range(entries):
                next(steps)
        except StopIteration as done:
            reply.follow(done.value)
        except Exception as error:
            reply.fail(error)
        else:
            return False
        self._release_frame(frame_bytes)
        return True


def rotation() -> Rotation:
    """Returns the `Rotation` of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _rotations:
        _rotations[loop] = Rotation()
    return _rotations[loop]


_slices: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_rotations: WeakKeyDictionary[asyncio.AbstractEventLoop, Rotation] = WeakKeyDictionary()
