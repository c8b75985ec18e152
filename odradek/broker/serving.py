"""Runs a broker that clients can connect to, with its sockets, request dispatch and HTTP pages.

start: bind the ports → open the broker → apply a seed → listen → HTTP pages → background work
stop:  housekeeping → HTTP pages → no more requests, answer the requests in flight → close the broker
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.broker import OFFERED, Broker
from odradek.broker.client_limits import ClientLimits
from odradek.broker.configuration.listener_settings import SASL_PROTOCOLS
from odradek.broker.handlers.by_api_key import fast_path_of, handler_of
from odradek.broker.http.listener import ControlListener, bind_pages, listen
from odradek.broker.http.measures import Traffic
from odradek.broker.network.addresses import client_addresses
from odradek.broker.network.admission import Admissions
from odradek.broker.network.connection import Connection
from odradek.broker.network.listening import bind_listener, connection_limits
from odradek.broker.network.server import Server
from odradek.broker.runtime.slices import work_in_slices
from odradek.broker.security.authorization import authorizer_of
from odradek.broker.security.listeners import load_certificates, tls_handshakes

if TYPE_CHECKING:
    import socket

    from odradek.broker.api.served import OfferedVersions
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.coordinators.steps import BrokerSteps
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.http.connections import AddRoutes
    from odradek.broker.network.addresses import ClientAddresses
    from odradek.broker.network.connection_host import FrameReceiver, RequestReceiver
    from odradek.broker.registry.serving import RunningRegistry
    from odradek.broker.runtime.controlled_time import ControlledTime
    from odradek.broker.security.sasl.setup import SaslListeners
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.storage.disk import Disk
    from odradek.storage.log_state import CopiedLogState

Prepare: TypeAlias = Callable[[Broker], Awaitable[None]]


class ServingBroker:
    dispatcher: Dispatcher[HandlerBroker]  # set by `start`, like `traffic`
    traffic: Traffic

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        time: ControlledTime | None = None,
        add_routes: AddRoutes | None = None,
        is_alone: bool = True,
        make_connection: Callable[[Server], Connection] = Connection,
        disk: Disk | None = None,
        steps: BrokerSteps | None = None,
        offered: OfferedVersions = OFFERED,
        copied_states: Mapping[TopicPartition, CopiedLogState] | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        """Creates a broker that does not accept clients yet.

        time             the broker's clock and timers; None for the system's clock and timers
        add_routes       adds pages to the HTTP port
        make_connection  creates an instance of `Connection` or of a subclass
        is_alone         whether the process runs only this broker, so that this broker also monitors the loop
        disk             the disk that holds the data directory; None for the system's disk
        prepare          called with the opened broker before it accepts clients

        steps, offered, copied_states: see `Broker`
        """
        steady_clock = None if time is None else time.steady
        self.broker = Broker(
            config,
            loop,
            clock=time,
            timers=time,
            steady_clock=steady_clock,
            is_alone=is_alone,
            disk=disk,
            steps=steps,
            offered=offered,
            copied_states=copied_states,
        )
        self.control: ControlListener | None = None  # serves metrics and health checks
        self.registry: RunningRegistry | None = None  # the schema registry
        self.servers: list[Server] = []
        self.connection_ids = count(1)
        self._add_routes = add_routes
        self.make_connection = make_connection
        self._prepare = prepare

    async def start(self) -> None:
        """Starts the broker and accepts clients. If starting fails, everything is rolled back before CannotStart,
        OSError or KafkaError is raised."""
        broker = self.broker
        config = broker.config
        # Opening the directory removes its mark of a clean shutdown. The settings and ports are checked first, so that
        # an invalid setting or a port in use does not remove the mark.
        sasl = self._sasl_listeners()
        async with AsyncExitStack() as undo:
            sockets = {one.name: undo.enter_context(bind_listener(one, config)) for one in config.serving}
            http_socket = bind_pages(config)
            if http_socket is not None:
                undo.enter_context(http_socket)
            registry_socket = self._registry_socket()
            if registry_socket is not None:
                undo.enter_context(registry_socket)
            ports = {name: bound.getsockname()[1] for name, bound in sockets.items()}
            if broker.is_alone:
                broker.open(ports)
            else:
                await work_in_slices(broker.opening(ports))  # other brokers in the process are served between the steps
            undo.push_async_callback(self.stop, 0)
            broker.certificates = load_certificates(config, broker.timers, broker.workers)
            if sasl is not None:
                sasl.refresh()  # the metadata log may contain SASL settings
            broker.sasl_listeners = sasl
            authorizer = authorizer_of(config, broker.metadata.image.acls, broker.rules)
            dispatcher: Dispatcher[HandlerBroker] = Dispatcher(
                broker,
                broker.clock,
                handler_of,
                fast_path_of=fast_path_of,
                served=broker.offered.apis,
                authorizer=authorizer,
            )
            dispatcher.workers = broker.codec_thread
            admissions = Admissions(connection_limits(config), broker.timers)
            limits = ClientLimits(broker, dispatcher, admissions)
            limits.apply()
            addresses = client_addresses(config)
            if self._prepare is not None:
                await self._prepare(broker)
            for listener in config.serving:
                server = self.new_server(listener, self.behind_login(listener, dispatcher), addresses, admissions)
                self.servers.append(server)
                await server.listen(sockets[listener.name])
            self.dispatcher = dispatcher
            self.traffic = Traffic(dispatcher, self.servers, broker.clock.now_ms(), limits)
            if http_socket is not None:
                self.control = listen(broker, self.traffic, http_socket, self._add_routes)
            if broker.is_alone:
                watch = broker.watch
                dispatcher.on_long_request = lambda api_key, time_s: watch.record_duration(api_key.kafka_name, time_s)
                watch.start(lambda: sum(route.requests for route in dispatcher.routes))
            broker.begin()
            if registry_socket is not None:
                from odradek.broker.registry.serving import RunningRegistry

                self.registry = RunningRegistry(broker, registry_socket, authorizer)
                await self.registry.start()
            undo.pop_all()  # everything has started, so nothing has to be undone

    def _registry_socket(self) -> socket.socket | None:
        """Binds the schema registry's port. Returns None if the registry is disabled. Raises CannotStart if the port
        cannot be bound."""
        if not self.broker.config.odradek_schema_registry_enable:
            return None
        from odradek.broker.registry.serving import bind_registry  # imported here because most brokers have no registry

        return bind_registry(self.broker.config)

    def new_server(
        self,
        listener: Listener,
        requests: FrameReceiver,
        addresses: ClientAddresses | None,
        admissions: Admissions | None = None,
    ) -> Server:
        """Creates a server for the listener's protocol. The server does not listen yet.

        requests    handles the requests; use `behind_login` to put the listener's logins in front of a dispatcher
        addresses   chooses the broker addresses that are sent to clients; None for the registered addresses
        admissions  connection limits that are shared with other servers; None if the server has its own limits
        """
        broker, config = self.broker, self.broker.config
        is_sasl = broker.sasl_listeners is not None and listener.name in broker.sasl_listeners
        return Server(
            requests,
            connection_limits(config),
            broker.timers,
            broker.loop,
            listener_name=listener.name,
            addresses=addresses,
            handshakes=tls_handshakes(listener, broker.certificates, config, broker.loop),
            authentication_timeout_ms=config.odradek_authentication_timeout_ms if is_sasl else None,
            admissions=admissions,
            connection_ids=self.connection_ids,
            make_connection=self.make_connection,
        )

    def behind_login(self, listener: Listener, requests: RequestReceiver) -> FrameReceiver:
        """Returns `requests`, with SASL in front of it if the listener uses SASL."""
        sasl = self.broker.sasl_listeners
        if sasl is None or listener.name not in sasl:
            return requests
        return self._sasl(requests, listener, sasl)

    def _sasl_listeners(self) -> SaslListeners | None:
        """Returns the SASL listeners, or None if the configuration has no SASL listener. Raises CannotStart."""
        broker = self.broker
        names = [one.name for one in broker.config.serving if one.security_protocol in SASL_PROTOCOLS]
        if not names:
            return None
        from odradek.broker.security.sasl.setup import (
            Accounts,
            SaslListeners,  # imported here because most brokers have no SASL listener
        )
        from odradek.broker.security.tokens.decisions import token_rules

        accounts = Accounts(
            lambda: broker.metadata.image.scram_credentials,
            lambda: broker.metadata.image.delegation_tokens,
            token_rules(broker.config),
            lambda: broker.metadata.node.directory_id,
            broker.workers,
            broker.timers,
            broker.rules,
        )
        return SaslListeners(broker.config, names, accounts)

    def _sasl(self, requests: RequestReceiver, listener: Listener, sasl: SaslListeners) -> FrameReceiver:
        from odradek.broker.security.sasl.setup import sasl_requests

        broker, name = self.broker, listener.name
        settings = broker.config.listener_settings(name)
        return sasl_requests(
            settings,
            broker.config,
            lambda: sasl.offers(name),
            requests,
            broker.clock,
            broker.timers,
            broker.steady_clock,
        )

    async def stop(self, in_flight_timeout_s: float, *, keeps_data: bool = True) -> None:
        """Answers the requests in flight and stops the broker.

        `keeps_data` is true if the directory will be used for another start. Raises LogFailed or OSError if the log
        could not be closed cleanly. In that case, the next start re-reads the log.
        """
        self.broker.end_housekeeping()
        if self.broker.certificates is not None:
            self.broker.certificates.stop()
        if self.control is not None:
            await self.control.stop()
        if self.registry is not None:
            await self.registry.stop()
        await asyncio.gather(*(server.stop(in_flight_timeout_s) for server in self.servers))
        await self.broker.close(keeps_data=keeps_data)

    def release_parts(self) -> None:
        """Drops the references to the broker's parts. Called some time after `stop`; see `Broker.release_parts`."""
        for route in self.dispatcher.routes:
            route.fast_path = None
        self.broker.release_parts()
