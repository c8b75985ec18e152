"""The brokers of a cluster and its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import odradek
from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """`host` and `port` are the advertised ones, by which clients connect."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`features`: the finalised level of each, by name."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    features: Mapping[str, int]


async def describe_cluster(asking: Asking) -> ClusterDescription:
    answer = await asking.any_broker(DescribeClusterRequest(), DescribeClusterResponse)
    check(answer.error_code, "the cluster", answer.error_message)
    versions = await asking.any_broker(
        ApiVersionsRequest(client_software_name="odradek", client_software_version=odradek.__version__),
        ApiVersionsResponse,
    )
    check(versions.error_code, "the versions of the cluster")
    return ClusterDescription(
        answer.cluster_id,
        answer.controller_id if answer.controller_id >= 0 else None,
        tuple(
            BrokerDescription(each.broker_id, each.host, each.port, each.rack)
            for each in sorted(answer.brokers, key=lambda broker: broker.broker_id)
        ),
        {each.name: each.max_version_level for each in versions.finalized_features},
    )
