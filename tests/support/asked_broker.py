"""A whole broker in this process, with its own loop, on a directory; asked without sockets, as any principal."""

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
from odradek.broker.runtime.delayed import CloseConnection
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


class Closed(Exception):
    """The broker hung up instead of answering."""


class AskedBroker:
    """Use it in a `with`. Nothing in it waits for sockets; time passes as it does."""

    listener = "PLAINTEXT"

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.loop = asyncio.new_event_loop()
        config = BrokerConfig({"log.dirs": str(directory), "odradek.http.port": "-1", **settings})
        self.broker = Broker(config, self.loop)
        self._connections = 0

    def __enter__(self) -> AskedBroker:
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
        """Raises Closed."""
        return self.loop.run_until_complete(self.ask_on_loop(connection, request, version))

    def answer(self, connection: ConnectionInfo, request: Message, version: int, answer: type[M]) -> M:
        """As `ask`, for an answer that is known to come."""
        found = self.ask(connection, request, version)
        assert isinstance(found, answer)
        return found

    def go_on(self) -> None:
        """Let happen what happens beside requests: callers that wait for it ask again after this."""
        self.loop.run_until_complete(asyncio.sleep(TURN_S))

    async def ask_on_loop(self, connection: ConnectionInfo, request: Message, version: int) -> Message:
        """As `ask`, beside other requests."""
        frame = memoryview(bytearray(request_bytes(request, version, 1, CLIENT_ID)))[4:]
        try:
            reply = self.requests.start(frame, connection)
            if not isinstance(reply, list):
                done = asyncio.Event()
                reply.when_done(lambda _: done.set())
                await asyncio.wait_for(done.wait(), ANSWER_WITHIN_S)
                reply = reply.chunks()
        except (CloseConnection, MalformedMessage) as error:
            raise Closed(str(error)) from error
        data = b"".join(in_memory(reply))
        message_class = response_class(request.API_KEY)
        skipped = LENGTH_AND_CORRELATION_ID + response_has_tags(request.API_KEY, message_class, version)
        return decode(message_class, version, data, skipped)
