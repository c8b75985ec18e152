"""Runs a complete broker on a directory in this process, on its own loop. Tests send it requests as any principal,
without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from odradek.broker.api.context import ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.broker import Broker
from odradek.broker.configuration.config import BrokerConfig
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.handlers.handler_broker import HandlerBroker
from odradek.broker.network.connection_host import FrameReceiver
from odradek.broker.runtime.replies import CloseConnection
from odradek.broker.security.authorization import authorizer_of
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import in_memory
from odradek.protocol.frames import request_bytes, response_has_tags
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message

LENGTH_AND_CORRELATION_ID = 8
CLIENT_ID = "probe"
ANSWER_WITHIN_S = 30.0
TURN_S = 0.002
M = TypeVar("M", bound=Message)


class ConnectionClosed(Exception):
    """Raised when the broker closes the connection instead of answering."""


class InProcessBroker:
    """A broker, used as a context manager. It has no sockets, but uses the real clock."""

    listener = "PLAINTEXT"

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.loop = asyncio.new_event_loop()
        config = BrokerConfig({"log.dirs": str(directory), "odradek.http.port": "-1", **settings})
        self.broker = Broker(config, self.loop)
        self._connections = 0

    def __enter__(self) -> InProcessBroker:
        self.loop.run_until_complete(self._open())
        return self

    async def _open(self) -> None:
        broker = self.broker
        broker.open({self.listener: 9092})
        self.dispatcher: Dispatcher[HandlerBroker] = Dispatcher(
            broker,
            broker.clock,
            handler_of,
            fast_path_of=fast_path_of,
            authorizer=authorizer_of(broker.config, broker.metadata.image.acls),
        )
        self.dispatcher.workers = broker.workers
        self.requests: FrameReceiver = self.dispatcher
        broker.begin()

    def __exit__(self, *_: object) -> None:
        self.broker.end_housekeeping()
        self.loop.run_until_complete(self.broker.close())
        self.loop.close()

    def connection(self, principal: str, host: str = "127.0.0.1") -> ConnectionInfo:
        self._connections += 1
        return ConnectionInfo(self._connections, host, 40_000, self.listener, principal)

    def ask(self, connection: ConnectionInfo, request: Message, version: int) -> Message:
        """Returns the response to a request. Raises ConnectionClosed if the broker closes the connection instead."""
        return self.loop.run_until_complete(self.ask_on_loop(connection, request, version))

    def answer(self, connection: ConnectionInfo, request: Message, version: int, answer: type[M]) -> M:
        """Like `ask`, but fails if the response is not of type `answer`."""
        found = self.ask(connection, request, version)
        assert isinstance(found, answer)
        return found

    def go_on(self) -> None:
        """Lets the broker do its other work for a moment. Tests waiting for the effect of this work then repeat their
        request."""
        self.loop.run_until_complete(asyncio.sleep(TURN_S))

    async def ask_on_loop(self, connection: ConnectionInfo, request: Message, version: int) -> Message:
        """Like `ask`, for tests that send several requests concurrently."""
        frame = memoryview(bytearray(request_bytes(request, version, 1, CLIENT_ID)))[4:]
        try:
            reply = self.requests.start(frame, connection)
            if not isinstance(reply, list):
                done = asyncio.Event()
                reply.when_done(lambda _: done.set())
                await asyncio.wait_for(done.wait(), ANSWER_WITHIN_S)
                reply = reply.chunks()
        except (CloseConnection, MalformedMessage) as error:
            raise ConnectionClosed(str(error)) from error
        data = b"".join(in_memory(reply))
        message_class = response_class(request.API_KEY)
        skipped = LENGTH_AND_CORRELATION_ID + response_has_tags(request.API_KEY, message_class, version)
        return decode(message_class, version, data, skipped)
