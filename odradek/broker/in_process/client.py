"""A client that sends requests to its own broker without a socket. Used by the HTTP port, the schema registry, seeds
and the control interface's presets.

The dispatcher handles these requests like requests from any other client, so authorization, checks and errors are the
same. The page has no login. If an authorizer is configured, the page can do whatever the ACLs allow User:ANONYMOUS to
do.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.broker.api.context import AllowAll, AllowBroker, ConnectionInfo
from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.exchange import read_answer
from odradek.protocol.file_slice import Chunk, in_memory
from odradek.protocol.frames import LENGTH_BYTES, request_bytes
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.runtime.replies import ParkedRequest

M = TypeVar("M", bound=Message)
CLIENT_ID = "odradek-page"


class Ask(Protocol):
    async def __call__(self, request: Message, response_class: type[M], *, max_version: int | None = None) -> M:
        """Sends a request in the newest version, or in `max_version` if that is older. Returns the response."""


class InProcessClient:
    """A client that does not use a socket.

    client_host  address of the HTTP client on whose behalf the requests are sent; ACLs may refer to this address
    """

    def __init__(
        self, dispatcher: Dispatcher[HandlerBroker], client_host: str, client_port: int, principal: str | None = None
    ) -> None:
        """Creates a client.

        principal  the user that the client acts as, or None for User:ANONYMOUS
        """
        self._dispatcher = dispatcher
        self._connection = ConnectionInfo(
            connection_id=next(CONNECTION_IDS),
            client_host=client_host,
            client_port=client_port,
            listener=dispatcher.broker.advertised_listeners[
                0
            ].name,  # FindCoordinator returns the address of this listener
            client_software_name=CLIENT_ID,
        )
        if principal is not None:
            self._connection.principal = principal

    async def ask(self, request: Message, response_class: type[M], *, max_version: int | None = None) -> M:
        version = self.version_of(request, max_version)
        reply = self.begin(request, version)
        if not isinstance(reply, list):
            answered = asyncio.Event()
            reply.when_done(lambda _: answered.set())
            await answered.wait()
            reply = reply.chunks()
        answer = read_answer(request.API_KEY, version, b"".join(in_memory(reply))).message
        assert isinstance(answer, response_class)
        return answer

    def begin(self, request: Message, version: int) -> list[Chunk] | ParkedRequest:
        """Sends a request. Returns the response or a parked request, which the caller can ignore."""
        frame = memoryview(request_bytes(request, version, 0, CLIENT_ID))[LENGTH_BYTES:]
        return self._dispatcher.start(frame, self._connection)

    def version_of(self, request: Message, max_version: int | None) -> int:
        """Returns the version to use. Raises KafkaError (UNSUPPORTED_VERSION) if the broker does not support the
        API."""
        served = self._dispatcher.broker.offered.apis.get(ApiKey(request.API_KEY))
        if served is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{ApiKey(request.API_KEY).kafka_name} is not supported by this broker"
            )
        return served.max_version if max_version is None else min(served.max_version, max_version)

    def close(self) -> None:
        self._connection.notify_closed()


def client_of_the_broker(broker: Broker) -> InProcessClient:
    """Returns a client with all permissions, because the client acts for the broker itself. ACLs do not apply to this
    client."""
    dispatcher: Dispatcher[HandlerBroker] = Dispatcher(
        broker,
        broker.clock,
        handler_of,
        fast_path_of=fast_path_of,
        served=broker.offered.apis,
        authorizer=AllowBroker() if broker.config.authorizer_class_name else AllowAll(),
    )
    dispatcher.workers = broker.codec_thread
    return InProcessClient(dispatcher, "127.0.0.1", 0)


CONNECTION_IDS = count(-1, -1)  # negative, because the ids of network connections are positive
