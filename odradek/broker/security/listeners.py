"""Sets up TLS for the listeners that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.configuration.listener_settings import SSL_PROTOCOLS
from odradek.broker.runtime.starting import CannotStart

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.configuration.listeners import Listener
    from odradek.broker.runtime.clock import Timers
    from odradek.broker.runtime.workers import Workers
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.broker.security.tls.handshake import TlsHandshakes


def load_certificates(config: BrokerConfig, timers: Timers, workers: Workers) -> ListenerCertificates | None:
    """Loads the certificates of all listeners and reloads them when their files change. Returns None if no listener
    uses TLS. Raises CannotStart."""
    protocols = {listener.security_protocol for listener in config.serving} | {config.odradek_http_security_protocol}
    if not protocols & SSL_PROTOCOLS:
        return None
    from odradek.broker.security.tls.certificates import ListenerCertificates
    from odradek.broker.security.tls.settings import UnusableTls

    try:
        certificates = ListenerCertificates(config)
    except UnusableTls as error:
        raise CannotStart(str(error)) from None
    interval_ms = config.odradek_ssl_reload_interval_ms
    if interval_ms > 0:
        certificates.watch(timers, workers, interval_ms)
    return certificates


def tls_handshakes(
    listener: Listener, certificates: ListenerCertificates | None, config: BrokerConfig, loop: asyncio.AbstractEventLoop
) -> TlsHandshakes | None:
    """Returns an object that performs a listener's TLS handshakes, or None if the listener does not use TLS."""
    if certificates is None or listener.security_protocol not in SSL_PROTOCOLS:
        return None
    from odradek.broker.security.tls.handshake import TlsHandshakes

    return TlsHandshakes(
        listener,
        certificates,
        loop,
        max_in_flight=config.odradek_ssl_handshakes_max,
        timeout_ms=config.odradek_authentication_timeout_ms,
    )
