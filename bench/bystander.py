"""A client that sends a small request every 2 ms, to measure the delay that other work on the broker causes.

The elapsed time of a delay depends on everything running on the machine, whereas the CPU time that the broker uses
during the delay hardly does. On an idle machine, a broker with a single event loop would delay the client by exactly
that CPU time.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue
from pathlib import Path
from typing import Any, Final, Protocol

from bench.process_usage import cpu_seconds
from bench.subjects import Subject, maker
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from tests.support.long_requests import KNOWN_PARTITIONS, KNOWN_TOPIC
from tests.support.wire import ClosedByBroker, Wire

PATIENCE_S: Final = 120.0  # response timeout, after which the broker is considered unresponsive
PAUSE_S: Final = 0.002  # pause between two requests
MAX_WAITS: Final = 3_000_000  # capacity for more than an hour
API_VERSIONS: Final = 3
ASKING: Final = request_bytes(
    ApiVersionsRequest(client_software_name="a", client_software_version="1"), API_VERSIONS, 1, "w"
)


class NoAnswer(Exception):
    """The client did not get a response in time."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The times spent waiting for responses, as sorted lists.

    wall  seconds until the response
    cpu   the broker's CPU seconds until the response
    """

    wall: list[float]
    cpu: list[float]


class HasProcess(Protocol):
    """A broker's address, and the process whose CPU time is measured."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...


class Bystander:
    """A client that sends a request every PAUSE_S. It runs in a separate process between `__enter__` and `__exit__`."""

    def __init__(self, subject: HasProcess, used_s: Callable[[int], float] = cpu_seconds) -> None:
        """`used_s` accepts a process id and returns the CPU seconds of that process or one of its threads."""
        fork = multiprocessing.get_context("fork")
        self._wall: Any = RawArray("d", MAX_WAITS)
        self._cpu: Any = RawArray("d", MAX_WAITS)
        self._count: Any = RawValue("l", 0)
        self._process = fork.Process(target=self._ask, args=(subject.bootstrap, subject.pid, used_s), daemon=True)

    def __enter__(self) -> Bystander:
        self._process.start()
        self._wait_for_one()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def count(self) -> int:
        """The number of responses so far."""
        return int(self._count.value)

    def since(self, count: int) -> Waits:
        """Waits for one more response and returns the waits after response number `count`. Raises NoAnswer if no
        response arrives."""
        self._wait_for_one()
        end = self.count
        return Waits(sorted(self._wall[count:end]), sorted(self._cpu[count:end]))

    def _wait_for_one(self) -> None:
        count, deadline = self.count, time.monotonic() + PATIENCE_S
        while self.count == count:
            if not self._process.is_alive() or time.monotonic() > deadline:
                raise NoAnswer("another client got no answer")
            time.sleep(PAUSE_S)

    def _ask(self, bootstrap: str, pid: int, used_s: Callable[[int], float]) -> None:
        with suppress(OSError, ClosedByBroker), Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
            while True:
                begun, used = time.perf_counter(), used_s(pid)
                wire.send_bytes(ASKING)
                wire.receive_bytes()
                self._cpu[self.count] = used_s(pid) - used
                self._wall[self.count] = time.perf_counter() - begun
                self._count.value += 1
                time.sleep(PAUSE_S)


def quantile(share: float, values: list[float]) -> float:
    """Returns the `share` quantile of sorted values. With 0.99, one value in a hundred is higher."""
    return values[int(len(values) * share)]


@contextmanager
def with_known_topic(name: str, work: Path) -> Iterator[Subject]:
    """Yields a broker that has the topic KNOWN_TOPIC. Raises NotThere if the broker is not available."""
    subject = Subject(name, maker(name), work)
    try:
        topic = CreatableTopic(name=KNOWN_TOPIC, num_partitions=KNOWN_PARTITIONS, replication_factor=1)
        with Wire(subject.bootstrap) as wire:
            wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
        yield subject
    finally:
        subject.end()
