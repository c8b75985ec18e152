"""What a connection needs of its server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.broker.api.context import Addresses
from odradek.broker.network.limits import Admission, ConnectionLimits, RequestMemory
from odradek.broker.runtime.clock import Timers

if TYPE_CHECKING:
    from odradek.broker.network.requests import Handshake, Requests


C = TypeVar("C", contravariant=True)  # the connection


class Handshakes(Protocol[C]):
    def accepted(self, connection: C) -> Handshake: ...


class ConnectionHost(Protocol[C]):
    @property
    def requests(self) -> Requests: ...
    @property
    def handshakes(self) -> Handshakes[C] | None:
        """None where frames come in the clear."""

    @property
    def limits(self) -> ConnectionLimits: ...
    @property
    def memory(self) -> RequestMemory | None:
        """Taken by requests; None where there is no limit."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def now_s(self) -> Callable[[], float]:
        """Times what a connection uses of a turn of the loop."""

    @property
    def timers(self) -> Timers: ...
    @property
    def listener_name(self) -> str: ...
    @property
    def addresses(self) -> Addresses | None:
        """None: clients are told what is registered."""

    @property
    def receive_buffer(self) -> memoryview:
        """Shared by all connections."""

    @property
    def received(self) -> memoryview:
        """The same, read-only: frames in it belong to nobody, and are overwritten by the next ones."""

    @property
    def sweep_count(self) -> int:
        """Of idle connections, so far."""

    def next_connection_id(self) -> int: ...
    def admit(self, connection: C) -> Admission: ...
    def forget(self, connection: C, admission: Admission, owed_bytes: int) -> None: ...
    def give_back(self, size_bytes: int) -> None:
        """Memory of requests that are done with."""
