"""Rules CON, about throttling, logins, and connection lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_facts import client_waits
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.testing.judge.exchanges import AnswerStatus, Exchange, knows_response
from odradek.testing.judge.rule import Family, I, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene

LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
TOLERANCE_US: Final = 20_000
DRIVER: Final = "a driver that stops and starts nodes: a recording does not contain refused connections"

# fmt: off
RULES = (
    undecided("CON.1", S, "The client waits before it reconnects or retries, longer each time and with jitter", DRIVER),
    ProtocolRule("CON.2", S, "The client sends nothing to a node until throttle_time_ms has passed",
        "a request after an answer with a throttle time, in a version in which the client has to wait"),
    undecided("CON.3", S, "If no known node can be reached, the client returns to its bootstrap servers", DRIVER),
    undecided("CON.4", I, "The client opens at most one connection per node and purpose, and no storm of connections",
        "a driver: traffic shows neither the purpose of a connection nor the number of processes"),
    ProtocolRule("CON.5", M,
        "Before a SASL login succeeds, the client sends only ApiVersions, SaslHandshake and SaslAuthenticate",
        "another request on a SASL listener"),
    ProtocolRule("CON.6", M,
        "The client authenticates again before session_lifetime_ms ends, and sends no other request meanwhile",
        "a request after a login with a lifetime"),
    undecided("CON.7", S,
        "The client does not reconnect because a response is slow, unless the request timeout has passed",
        "a driver: traffic does not show the timeout of the client"),
)
# fmt: on


@dataclass(slots=True)
class ThrottledConnection:
    response: Exchange | None = None
    throttle_us: int = 0


@dataclass(slots=True)
class SaslSession:
    """The login state of a connection.

    login             the exchange of the last successful login
    reauthentication  the handshake of a re-authentication that is in progress
    is_raw            whether SaslHandshake v0 was sent; the bare tokens that follow it are not recorded
    """

    login: Exchange | None = None
    lifetime_us: int = 0
    reauthentication: Exchange | None = None
    is_raw: bool = False


def check_throttle_time(exchange: Exchange, scene: Scene) -> None:
    connection = scene.state(ThrottledConnection, exchange.connection.number)
    response = connection.response
    if response is None or response.written_us is None or not knows_response(exchange, response):
        return
    passed_us, throttle_ms = exchange.received_us - response.answered_us, connection.throttle_us // 1000
    why = f"the request came only {passed_us // 1000} ms after an answer with throttle_time_ms {throttle_ms}"
    scene.decide("CON.2", passed_us >= connection.throttle_us - TOLERANCE_US, exchange, why, response)
    connection.response = None


def note_throttle_time(exchange: Exchange, scene: Scene) -> None:
    throttle_ms = getattr(exchange.answer, "throttle_time_ms", 0)
    if throttle_ms <= 0 or exchange.api is None or exchange.status is not AnswerStatus.ANSWERED:
        return
    if client_waits(exchange.api.value, exchange.version):
        connection = scene.state(ThrottledConnection, exchange.connection.number)
        connection.response, connection.throttle_us = exchange, throttle_ms * 1000


def check_login(exchange: Exchange, scene: Scene) -> None:
    if not exchange.connection.is_sasl:
        return
    session = scene.state(SaslSession, exchange.connection.number)
    if exchange.api is ApiKey.SASL_HANDSHAKE:
        session.is_raw = exchange.version == 0
        if session.login is not None:
            session.reauthentication = exchange
        return
    if exchange.api is None or exchange.api in LOGIN or session.is_raw:
        return
    name = exchange.api.kafka_name
    scene.decide(
        "CON.5",
        session.login is not None,
        exchange,
        f"the client sent {name} before the login succeeded",
        exchange.connection.previous,
    )
    if session.login is None or session.login.written_us is None or not session.lifetime_us:
        return
    late_us = exchange.earliest_us - session.login.written_us - session.lifetime_us
    if session.reauthentication is not None:
        scene.record_broken(
            "CON.6",
            exchange,
            f"the client sent {name} during a re-authentication",
            session.login,
            session.reauthentication,
        )
    else:
        why = f"the client sent {name} {late_us // 1000} ms after the session ended"
        scene.decide("CON.6", late_us <= 0, exchange, why, session.login)


def on_sasl_authenticate_response(exchange: Exchange, scene: Scene) -> None:
    session, answer = scene.state(SaslSession, exchange.connection.number), exchange.answer
    if isinstance(answer, SaslAuthenticateResponse) and answer.error_code == 0:
        session.login, session.lifetime_us, session.reauthentication = exchange, answer.session_lifetime_ms * 1000, None


FAMILY = Family(
    RULES,
    on_response={ApiKey.SASL_AUTHENTICATE: (on_sasl_authenticate_response,)},
    on_every_request=(check_throttle_time, check_login),
    on_every_response=(note_throttle_time,),
)
