"""The brokers of a cluster, the features that they support, and the finalized feature levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import odradek
from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import check
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker. Clients connect to its advertised address, `host` and `port`."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster. `features` maps the name of each feature to its finalized level."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    features: Mapping[str, int]


async def describe_cluster(requests: AdminRequests) -> ClusterDescription:
    answer = await requests.ask_any_broker(DescribeClusterRequest(), DescribeClusterResponse)
    check(answer.error_code, "the cluster", answer.error_message)
    versions = await requests.ask_any_broker(
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


FIRST_VERSION_WITH_UPGRADE_TYPES = 1  # first version of UpdateFeatures with upgrade types
OFF = 0


class UpgradeType(Enum):
    """How UpdateFeatures may change a feature level. The values are protocol codes."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """A feature. Brokers support its levels from `lowest` to `highest`. `level` is the finalized level, or 0 if the
    feature is off."""

    lowest: int
    highest: int
    level: int


async def describe_features(requests: AdminRequests) -> dict[str, FeatureDescription]:
    answer = await requests.ask_any_broker(
        ApiVersionsRequest(client_software_name="odradek", client_software_version=odradek.__version__),
        ApiVersionsResponse,
    )
    check(answer.error_code, "the features of the cluster")
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return {
        each.name: FeatureDescription(each.min_version, each.max_version, levels.get(each.name, OFF))
        for each in sorted(answer.supported_features, key=lambda feature: feature.name)
    }


async def update_features(
    requests: AdminRequests, levels: Mapping[str, int], kind: UpgradeType, *, validate_only: bool
) -> None:
    request = UpdateFeaturesRequest(
        timeout_ms=requests.request_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind.value)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = await requests.ask_any_broker(
        request, UpdateFeaturesResponse, min_version=FIRST_VERSION_WITH_UPGRADE_TYPES
    )
    check(answer.error_code, "the features", answer.error_message)
    for result in answer.results:
        check(result.error_code, f"the feature {result.feature!r}", result.error_message)
