"""The interface through which a connection uses a pending request, and handler results that are not messages.

The answer itself, and the code that waits for it, are in `odradek.broker.runtime.waiting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from mypy_extensions import mypyc_attr

from odradek.protocol.file_slice import Chunk
from odradek.protocol.quoting import shortened


class NoResponse(Enum):
    """The result of a handler if the protocol has no response, as for Produce with acks=0."""

    NO_RESPONSE = 0


NO_RESPONSE = NoResponse.NO_RESPONSE


class CloseConnection(Exception):
    """Raised by a handler, or passed to `Deferred.fail`, in cases where Kafka closes the connection instead of
    responding.

    last_answer  a response to send before the connection is closed
    """

    def __init__(self, reason: str, last_answer: list[Chunk] | None = None) -> None:
        super().__init__(shortened(reason))  # the reason may quote the request, and is logged
        self.last_answer = last_answer or []


class ParkedRequest(Protocol):
    """A request that has not been answered yet, from the viewpoint of its connection."""

    @property
    def size_bytes(self) -> int:
        """The size of the request's frame."""

    @property
    def overlapping_key(self) -> int | None:
        """The API key of the requests that need not wait for this response; None if all requests must wait for it."""

    @property
    def waits_for_others(self) -> bool:
        """Whether the request is waiting for other clients or for time to pass. A stopping broker need not wait for
        such a request."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, action: Callable[[object], None]) -> None:
        """Calls `action` once, with an arbitrary argument, as soon as the response is ready. The call may happen
        immediately."""

    def abandon(self) -> None:
        """Drops the request, because the client has disconnected."""

    def chunks(self) -> list[Chunk]:
        """Encodes the response, which must be ready. Returns an empty list if the protocol has no response. Raises
        CloseConnection."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WrappedRequest:
    """Base class for wrappers around a `ParkedRequest`. Subclasses implement `is_done`, `when_done` and `chunks`; the
    other members are delegated to the wrapped request."""

    def __init__(self, reply: ParkedRequest) -> None:
        self._reply = reply

    @property
    def size_bytes(self) -> int:
        return self._reply.size_bytes

    @property
    def overlapping_key(self) -> int | None:
        return self._reply.overlapping_key

    @property
    def waits_for_others(self) -> bool:
        return self._reply.waits_for_others

    def abandon(self) -> None:
        self._reply.abandon()


@dataclass(slots=True)
class AnsweredRequest:
    """A response that is ready, but has to wait for earlier responses on its connection."""

    answer: list[Chunk]
    size_bytes: int  # size of the request's frame
