"""Starts and stops a broker's schema registry. Imported only if `odradek.schema.registry.enable` is set."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.configuration.listener_settings import HTTP_LISTENER, SSL_PROTOCOLS
from odradek.broker.in_process.client import client_of_the_broker
from odradek.broker.network.server import bind
from odradek.broker.registry.service import RegistryService
from odradek.broker.registry.topic import SchemaTopic
from odradek.broker.registry.values import RegistryValues
from odradek.broker.runtime.starting import CannotStart
from odradek.broker.runtime.workers import in_thread
from odradek.registry.core import Registry

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    from odradek.broker.api.context import Authorizer
    from odradek.broker.broker import Broker
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.http.connections import Stop

log = logging.getLogger("odradek.registry")


def bind_registry(config: BrokerConfig) -> socket.socket:
    """Binds the registry's port. Raises CannotStart.

    The socket already listens, because the registry starts after the Kafka listeners. A client that has just found the
    broker then waits for the registry, instead of being refused.
    """
    host, port = registry_host(config), config.odradek_schema_registry_port
    try:
        bound = bind(host, port)
        bound.listen()
        return bound
    except OSError as error:
        raise CannotStart(
            f"the schema registry cannot listen on port {port} of {host or 'every interface'}: {error.strerror}; choose"
            " another port with odradek.schema.registry.port (0 takes any free port)"
        ) from None


def registry_host(config: BrokerConfig) -> str:
    """Returns the configured address. The default is the address of the first Kafka listener, because clients need both
    ports."""
    given = config.odradek_schema_registry_host
    return config.serving[0].host if given is None else given


Serve: TypeAlias = "Callable[[Broker, RegistryService, Authorizer, socket.socket, SSLContext | None], Awaitable[Stop]]"


def import_http() -> Serve:
    """Imports aiohttp. Call this in a thread, because the import takes longer than starting the broker."""
    from odradek.broker.registry.routes import serve

    return serve


class RunningRegistry:
    """The schema registry of one broker, with its topic, its service and its HTTP port."""

    def __init__(self, broker: Broker, bound: socket.socket, authorizer: Authorizer) -> None:
        self._broker = broker
        self._bound = bound
        self.port: int = bound.getsockname()[1]
        self._authorizer = authorizer
        # This client needs no permissions, because the registry checks the permissions of its own clients.
        self._client = client_of_the_broker(broker)
        registry = Registry(level=broker.config.odradek_schema_registry_compatibility_level)
        self._topic = SchemaTopic(broker, self._client, registry.state.replay)
        self.service = RegistryService(registry, self._topic, broker.workers)
        self._following: asyncio.Task[None] | None = None
        self._end: Stop | None = None

    @property
    def url(self) -> str:
        host = registry_host(self._broker.config) or "localhost"
        return f"{'http' if self._tls() is None else 'https'}://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self) -> None:
        """Replays the topic and serves HTTP. Raises CannotStart."""
        try:
            serve = await in_thread(self._broker.workers, import_http)
        except ImportError as error:
            raise CannotStart(f"the schema registry needs a package that cannot be imported: {error}") from error
        await self._topic.open()
        self._following = asyncio.get_running_loop().create_task(self._topic.follow(self.service.lock))
        broker = self._broker
        broker.schema_values = RegistryValues(self.service, self._authorizer, broker.clock)
        self._end = await serve(broker, self.service, self._authorizer, self._bound, self._tls())

    async def stop(self) -> None:
        self._broker.schema_values = None
        if self._end is not None:
            await self._end()
        else:
            self._bound.close()
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        self._client.close()

    def _tls(self) -> SSLContext | None:
        certificates = self._broker.certificates
        if certificates is None or self._broker.config.odradek_http_security_protocol not in SSL_PROTOCOLS:
            return None
        return certificates.tls_of(HTTP_LISTENER).context
