"""Rules VER, about the versions and headers of requests, and the client software's name and version."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.scene import Scene

NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SASL: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
TRANSACTION_VERSION: Final = "transaction.version"
TV2_PRODUCE, TV2_END_TXN = 12, 5

# fmt: off
RULES = (
    ProtocolRule("VER.1", S,
        "ApiVersions is the first request of a connection, apart from a SASL login", "a connection"),
    ProtocolRule("VER.2", M,
        "After UNSUPPORTED_VERSION the client sends ApiVersions again, with a version that the node supports",
        "an ApiVersions after one that failed with UNSUPPORTED_VERSION"),
    ProtocolRule("VER.3", M, "Every request has a version that the connection's node advertised",
        "a request after an answer to ApiVersions that the client had received"),
    ProtocolRule("VER.4", M, "Software name and version match the allowed pattern", "ApiVersions v3 or later"),
    ProtocolRule("VER.5", M,
        "Requests of flexible versions can be parsed, including their tagged fields", "a flexible request"),
    ProtocolRule("VER.6", M, "Requests in flight on a connection have distinct correlation ids",
        "a request that was sent while an earlier one was in flight"),
    ProtocolRule("VER.7", M,
        "Below transaction.version 2 a client sends no transactional Produce v12+ and no EndTxn v5+",
        "a transactional Produce or an EndTxn after an answer with a transaction.version below 2"),
    undecided("VER.8", S, "The client works with a node that does not advertise old versions",
        "a driver: only the application sees whether the client works"),
    ProtocolRule("VER.9", M, "Fields are null only if the version allows null", "a request"),
)
# fmt: on


@dataclass(slots=True)
class AdvertisedVersions:
    """A connection's ApiVersions responses. `response` is the last response without an error, and `refusal` is a
    response with UNSUPPORTED_VERSION."""

    response: Exchange | None = None
    refusal: Exchange | None = None
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    transaction_version: int | None = None


def check_version(exchange: Exchange, scene: Scene) -> None:
    connection, advertised = exchange.connection, scene.state(AdvertisedVersions, exchange.connection.number)
    if connection.requests == 0 and exchange.api is not None:
        if exchange.api in SASL:
            connection.requests = -1  # the request after the login is judged instead
        else:
            api = exchange.api.kafka_name
            scene.decide(
                "VER.1", exchange.api is ApiKey.API_VERSIONS, exchange, f"{api} is the first request of the connection"
            )
    for other in connection.waiting.values():
        if other.correlation_id == exchange.correlation_id:
            scene.record_broken(
                "VER.6", exchange, f"two requests in flight have the correlation id {exchange.correlation_id}", other
            )
            break
    else:
        before = connection.previous
        if before is not None and (exchange.is_behind or connection.waiting):
            is_same = before.correlation_id == exchange.correlation_id
            scene.decide(
                "VER.6",
                not is_same,
                exchange,
                f"two requests in flight have the correlation id {before.correlation_id}",
                before,
            )
    if exchange.api is None or exchange.api is ApiKey.API_VERSIONS:
        return
    if advertised.response is not None:
        lowest, highest = advertised.ranges.get(exchange.api.value, (0, -1))
        if lowest <= exchange.version <= highest:
            scene.record_kept("VER.3", exchange)
        elif knows_response(exchange, advertised.response):
            advertised_range = f"v{lowest} to v{highest}" if highest >= 0 else "no version"
            what = f"{exchange.api.kafka_name} v{exchange.version}"
            scene.record_broken(
                "VER.3", exchange, f"{what} was sent, but the node advertises {advertised_range}", advertised.response
            )


def check_encoding(exchange: Exchange, scene: Scene) -> None:
    if exchange.api is None or (exchange.request is None and exchange.unreadable is None):
        return
    why = exchange.unreadable
    is_null = why is not None and "null" in why
    if exchange.is_flexible and not is_null:
        scene.decide("VER.5", why is None, exchange, f"the request cannot be read: {why}")
    if why is None or is_null:
        scene.decide("VER.9", why is None, exchange, f"the request cannot be read: {why}")


def check_api_versions(exchange: Exchange, scene: Scene) -> None:
    """Examines ApiVersions requests, including those with an unknown version, which are not decoded."""
    if exchange.api is not ApiKey.API_VERSIONS:
        return
    advertised, request = scene.state(AdvertisedVersions, exchange.connection.number), exchange.request
    refusal = advertised.refusal
    if refusal is not None and exchange.is_after_answer and isinstance(refusal.answer, ApiVersionsResponse):
        lowest, highest = next(
            ((each.min_version, each.max_version) for each in refusal.answer.api_keys if each.api_key == 18), (0, 0)
        )
        is_inside = lowest <= exchange.version <= highest
        scene.decide(
            "VER.2",
            is_inside,
            exchange,
            f"ApiVersions was sent with v{exchange.version}, which is not in v{lowest} to v{highest}",
            refusal,
        )
        advertised.refusal = None
    if isinstance(request, ApiVersionsRequest) and exchange.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        exchange.connection.software, exchange.connection.software_version = name, version
        is_fine = NAME.fullmatch(name) is not None and NAME.fullmatch(version) is not None
        scene.decide("VER.4", is_fine, exchange, f"the software name is {name!r}, and the version is {version!r}")


def on_api_versions_response(exchange: Exchange, scene: Scene) -> None:
    if exchange.api is not ApiKey.API_VERSIONS or not isinstance(exchange.answer, ApiVersionsResponse):
        return
    advertised, answer = scene.state(AdvertisedVersions, exchange.connection.number), exchange.answer
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION.value:
        advertised.refusal = exchange
    elif answer.error_code == 0:
        advertised.response = exchange
        advertised.ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        if exchange.version >= 3 and answer.finalized_features_epoch >= 0:
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            advertised.transaction_version = levels.get(TRANSACTION_VERSION, 0)


def check_transaction_version(exchange: Exchange, scene: Scene) -> None:
    advertised, request = scene.state(AdvertisedVersions, exchange.connection.number), exchange.request
    if advertised.response is None or advertised.transaction_version is None or advertised.transaction_version >= 2:
        return
    if isinstance(request, ProduceRequest) and request.transactional_id is not None:
        is_kept, what = exchange.version < TV2_PRODUCE, f"a transactional Produce v{exchange.version}"
    elif isinstance(request, EndTxnRequest):
        is_kept, what = exchange.version < TV2_END_TXN, f"EndTxn v{exchange.version}"
    else:
        return
    why = f"the client sent {what}, but transaction.version is {advertised.transaction_version}"
    scene.decide("VER.7", is_kept, exchange, why, advertised.response)


FAMILY = Family(
    RULES,
    on_request={ApiKey.PRODUCE: (check_transaction_version,), ApiKey.END_TXN: (check_transaction_version,)},
    on_every_request=(check_api_versions, check_version, check_encoding),
    on_every_response=(on_api_versions_response,),
)
