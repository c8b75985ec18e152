"""A broker that clients can reach: its sockets, the dispatch of their requests, and its HTTP pages.

start: bind the ports → open the broker → listen → HTTP pages → what runs of its own accord
stop:  housekeeping → HTTP pages → no more requests, answer what is in flight → close the broker
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.broker import Broker
from odradek.broker.control.listener import ControlListener, listen
from odradek.broker.control.measures import Traffic
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.network.addresses import client_addresses
from odradek.broker.network.listening import bind_listener, connection_limits
from odradek.broker.network.server import Server
from odradek.broker.security.authorization import authorizer_of

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig


class ServingBroker:
    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = Broker(config, loop)
        self.control: ControlListener | None = None  # metrics and health
        self._servers: list[Server] = []

    async def start(self) -> None:
        """Raises CannotStart, OSError, KafkaError; nothing of it is left running then."""
        broker = self.broker
        config = broker.config
        # Before the directory is touched: a port that is taken must not cost it the mark of its clean shutdown.
        sockets = {listener.name: bind_listener(listener, config) for listener in config.serving}
        broker.open({name: bound.getsockname()[1] for name, bound in sockets.items()})
        authorizer = authorizer_of(config, broker.metadata.image.acls)
        dispatcher = Dispatcher(broker, broker.clock, handler_of, fast_path_of=fast_path_of, authorizer=authorizer)
        addresses = client_addresses(config)
        for name, bound in sockets.items():
            server = Server(
                dispatcher,
                connection_limits(config),
                broker.timers,
                broker.loop,
                listener_name=name,
                addresses=addresses,
            )
            self._servers.append(server)
            await server.listen(bound)
        self.control = listen(broker, Traffic(dispatcher, self._servers, broker.clock.now_ms()))
        broker.begin()

    async def stop(self, in_flight_timeout_s: float) -> None:
        """Raises LogWriteFailed, OSError where the log could not be left clean; the next start then reads it again."""
        self.broker.end_housekeeping()
        if self.control is not None:
            await self.control.stop()
        await asyncio.gather(*(server.stop(in_flight_timeout_s) for server in self._servers))
        await self.broker.close()
