"""CON: throttling, logins and the lifetime of connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.protocol.api_facts import client_waits
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.testing.judge.exchanges import AnswerFate, Exchange, knows
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
        "a driver: the client's time-out is not on the wire"),
)
# fmt: on


@dataclass(slots=True)
class ThrottledConnection:
    by: Exchange | None = None
    throttle_us: int = 0


@dataclass(slots=True)
class SaslSession:
    """The login of a connection. `since` is the last successful login. `is_raw` means that bare tokens follow
    SaslHandshake v0, which are not recorded."""

    since: Exchange | None = None
    lifetime_us: int = 0
    again: Exchange | None = None  # the handshake of a re-authentication in progress
    is_raw: bool = False


def throttled(exchange: Exchange, scene: Scene) -> None:
    told = scene.at(ThrottledConnection, exchange.connection.number)
    by = told.by
    if by is None or by.written_us is None or not knows(exchange, by):
        return
    passed_us = exchange.received_us - by.answered_us
    why = f"the request came {passed_us // 1000} ms after an answer with throttle_time_ms {told.throttle_us // 1000}"
    scene.decide("CON.2", passed_us >= told.throttle_us - TOLERANCE_US, exchange, why, by)
    told.by = None


def throttles(exchange: Exchange, scene: Scene) -> None:
    throttle_ms = getattr(exchange.answer, "throttle_time_ms", 0)
    if throttle_ms <= 0 or exchange.api is None or exchange.fate is not AnswerFate.ANSWERED:
        return
    if client_waits(exchange.api.value, exchange.version):
        told = scene.at(ThrottledConnection, exchange.connection.number)
        told.by, told.throttle_us = exchange, throttle_ms * 1000


def logging_in(exchange: Exchange, scene: Scene) -> None:
    if not exchange.connection.is_sasl:
        return
    login = scene.at(SaslSession, exchange.connection.number)
    if exchange.api is ApiKey.SASL_HANDSHAKE:
        login.is_raw = exchange.version == 0
        if login.since is not None:
            login.again = exchange
        return
    if exchange.api is None or exchange.api in LOGIN or login.is_raw:
        return
    name = exchange.api.kafka_name
    scene.decide(
        "CON.5", login.since is not None, exchange, f"{name} before the login succeeded", exchange.connection.previous
    )
    if login.since is None or login.since.written_us is None or not login.lifetime_us:
        return
    late_us = exchange.earliest_us - login.since.written_us - login.lifetime_us
    if login.again is not None:
        scene.broken("CON.6", exchange, f"{name} during a re-authentication", login.since, login.again)
    else:
        why = f"{name} {late_us // 1000} ms after the session ended"
        scene.decide("CON.6", late_us <= 0, exchange, why, login.since)


def logged_in(exchange: Exchange, scene: Scene) -> None:
    login, answer = scene.at(SaslSession, exchange.connection.number), exchange.answer
    if isinstance(answer, SaslAuthenticateResponse) and answer.error_code == 0:
        login.since, login.lifetime_us, login.again = exchange, answer.session_lifetime_ms * 1000, None


FAMILY = Family(
    RULES,
    answered={ApiKey.SASL_AUTHENTICATE: (logged_in,)},
    all_sent=(throttled, logging_in),
    all_answered=(throttles,),
)
