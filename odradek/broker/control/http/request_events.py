"""Sends each exchange of a cluster as a server-sent event when the exchange has completed.

The only buffer is the ring of recent exchanges. A reader that is too slow receives an event with the number of
exchanges that it missed.

Exchanges can complete out of order. An event's id is therefore the highest number up to which all exchanges have been
sent, not the number of its own exchange. A reader that reconnects with this id misses no exchange that is still in the
ring, but may receive some of them twice.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiohttp import web

from odradek.broker.control.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from odradek.broker.control.recording.exchanges import Exchanges

POLL_INTERVAL_S: Final = 0.02
MAX_READERS: Final = 16  # maximum number of readers per cluster
MAX_EVENTS: Final = 100  # maximum number of events that are sent to a reader each time the ring is read


class EventCursor:
    """Tracks which exchanges have been sent to one reader."""

    def __init__(self, exchanges: Exchanges, since: int, api: str | None, client_id: str | None) -> None:
        """Creates a tracker for one reader.

        since  the number of an exchange; only exchanges with higher numbers are sent
        """
        self._exchanges = exchanges
        self._api = api
        self._client_id = client_id
        self._all_to = since
        self._others: set[int] = set()  # numbers above `_all_to` whose exchanges have already been sent

    def next_events(self) -> Iterator[bytes]:
        """Yields an event for each completed exchange that has not been sent yet. Raises Problem."""
        dropped = self._exchanges.dropped
        if self._all_to < dropped:
            missed = dropped - self._all_to - sum(each <= dropped for each in self._others)
            self._all_to = dropped
            self._others = {each for each in self._others if each > dropped}
            if missed:
                yield self._event({"missed": missed}, "missed")
        for number, exchange in self._exchanges.completed():
            if number <= self._all_to or number in self._others:
                continue
            self._others.add(number)
            while self._all_to + 1 in self._others:
                self._all_to += 1
                self._others.discard(self._all_to)
            fields = self._exchanges.decoded(number, exchange, self._api, self._client_id)
            if fields is not None:
                yield self._event(fields)

    def _event(self, fields: Mapping[str, object], kind: str | None = None) -> bytes:
        named = "" if kind is None else f"event: {kind}\n"
        return f"{named}id: {self._all_to}\ndata: {json.dumps(fields)}\n\n".encode()


async def send_requests(
    exchanges: Exchanges,
    cursor: EventCursor,
    request: web.Request,
    headers: Mapping[str, str],
    is_there: Callable[[], bool],
) -> web.StreamResponse:
    """Answers a request with events until the reader disconnects or the cluster is removed. Raises Problem."""
    exchanges.require()
    if exchanges.readers >= MAX_READERS:
        raise Problem(
            409, f"at most {MAX_READERS} readers can follow the requests of a cluster: disconnect one of them first"
        )
    exchanges.readers += 1
    try:
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        with suppress(ConnectionResetError):
            await response.prepare(request)
            while request.transport is not None and not request.transport.is_closing():
                for number, event in enumerate(cursor.next_events()):
                    await response.write(event)
                    if number == MAX_EVENTS:
                        break
                if not is_there():
                    break
                await asyncio.sleep(POLL_INTERVAL_S)
        return response
    finally:
        exchanges.readers -= 1
