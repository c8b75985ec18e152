"""Parts of the responses of ShareFetch, ShareAcknowledge and TxnShareAcknowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.protocol.messages import share_acknowledge_response, share_fetch_response, txn_share_acknowledge_response

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.shares.leader.shares import ShareBroker


def lock_timeout_of(broker: ShareBroker, group_id: str) -> int:
    """How long the group's locks last now, in ms."""
    return broker.shares.settings.lock_duration_ms(group_id)


def share_fetch_node_endpoints(
    broker: ShareBroker, leaders: Iterable[int], connection: ConnectionInfo
) -> list[share_fetch_response.NodeEndpoint]:
    return [
        share_fetch_response.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in _endpoints(broker, leaders, connection)
    ]


def share_acknowledge_node_endpoints(
    broker: ShareBroker, leaders: Iterable[int], connection: ConnectionInfo
) -> list[share_acknowledge_response.NodeEndpoint]:
    return [
        share_acknowledge_response.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in _endpoints(broker, leaders, connection)
    ]


def txn_share_acknowledge_node_endpoints(
    broker: ShareBroker, leaders: Iterable[int], connection: ConnectionInfo
) -> list[txn_share_acknowledge_response.NodeEndpoint]:
    return [
        txn_share_acknowledge_response.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in _endpoints(broker, leaders, connection)
    ]


def _endpoints(
    broker: ShareBroker, leaders: Iterable[int], connection: ConnectionInfo
) -> Iterator[tuple[int, str, int, str | None]]:
    for node_id in leaders:
        registration = broker.metadata.image.brokers.get(node_id)
        endpoint = None if registration is None else connection.endpoint(registration.endpoints)
        if registration is not None and endpoint is not None:
            yield node_id, *endpoint, registration.rack
