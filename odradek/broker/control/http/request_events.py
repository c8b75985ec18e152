"""The exchanges of a cluster as server-sent events, each once it is over.

The ring of the last exchanges is the only buffer: a reader who is slower than the clients is told which numbers it has
missed. The id of an event is the number up to which all have been told, since an exchange that waits may end behind
later ones; a reader that comes back with it misses none that is still there, and may be told some again.
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

LOOK_AGAIN_S: Final = 0.02
MOST_READERS: Final = 16  # of a cluster
MOST_EVENTS: Final = 100  # for a reader, between two looks


class ToldExchanges:
    """Numbers of the exchanges that one reader has been told."""

    def __init__(self, exchanges: Exchanges, since: int, api: str | None, client_id: str | None) -> None:
        """since: up to which number nothing is told"""
        self._exchanges = exchanges
        self._api = api
        self._client_id = client_id
        self._all_to = since
        self._others: set[int] = set()  # behind that one

    def next(self) -> Iterator[bytes]:
        """Yields an event for each exchange that is over and was not told yet. Raises Problem."""
        dropped = self._exchanges.dropped
        if self._all_to < dropped:
            missed = dropped - self._all_to - sum(each <= dropped for each in self._others)
            self._all_to = dropped
            self._others = {each for each in self._others if each > dropped}
            if missed:
                yield self._event({"missed": missed}, "missed")
        for number, exchange in self._exchanges.over():
            if number <= self._all_to or number in self._others:
                continue
            self._others.add(number)
            while self._all_to + 1 in self._others:
                self._all_to += 1
                self._others.discard(self._all_to)
            told = self._exchanges.told(number, exchange, self._api, self._client_id)
            if told is not None:
                yield self._event(told)

    def _event(self, told: Mapping[str, object], kind: str | None = None) -> bytes:
        named = "" if kind is None else f"event: {kind}\n"
        return f"{named}id: {self._all_to}\ndata: {json.dumps(told)}\n\n".encode()


async def send_requests(
    exchanges: Exchanges,
    told: ToldExchanges,
    request: web.Request,
    headers: Mapping[str, str],
    is_there: Callable[[], bool],
) -> web.StreamResponse:
    """Tells them until the reader hangs up, or the cluster is gone. Raises Problem."""
    exchanges.require()
    if exchanges.readers >= MOST_READERS:
        raise Problem(409, f"at most {MOST_READERS} readers of a cluster's requests at a time")
    exchanges.readers += 1
    try:
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        with suppress(ConnectionResetError):
            await response.prepare(request)
            while request.transport is not None and not request.transport.is_closing():
                for number, event in enumerate(told.next()):
                    await response.write(event)
                    if number == MOST_EVENTS:
                        break
                if not is_there():
                    break
                await asyncio.sleep(LOOK_AGAIN_S)
        return response
    finally:
        exchanges.readers -= 1
