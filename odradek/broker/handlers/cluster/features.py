"""Handlers for versions and features: ApiVersions and UpdateFeatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.api.context import RequestContext
from odradek.broker.metadata.features import FeatureUpdate, levels_with
from odradek.broker.metadata.features import update_features as decide
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.supported_features import TRANSACTION_VERSION, may_have_pending
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from odradek.protocol.topic_partition import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest

ANY_NODE = -1  # node id that a client sends in ApiVersions before it knows which node it is connected to
RESULTS_UNTIL = 1  # last version of UpdateFeatures whose response has a result for each feature
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(request: ApiVersionsRequest, context: RequestContext, broker: HandlerBroker) -> ApiVersionsResponse:
    """Handles ApiVersions (key 18), versions 0-5, which returns the APIs and features that this broker supports.

    v1 adds the throttle time. v3 is flexible; the client sends its name and version, and the response contains
    features. v4 (KIP-1022) lists features whose lowest level is 0, which are omitted in older versions because older
    clients cannot read them. v5 (KIP-1242) lets the client send the cluster id and node id that it expects. Requests
    with an unknown version are answered in `odradek.broker.api.dispatch` (KIP-511). Needs no permission.
    """
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (SOFTWARE.fullmatch(name) and SOFTWARE.fullmatch(version)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        check_node(request.cluster_id, request.node_id, broker)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    image = broker.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key.value, min_version=served.min_version, max_version=served.max_version)
            for key, served in sorted(broker.offered.apis.items(), key=lambda row: row[0].value)
            if key is not ApiKey.TXN_SHARE_ACKNOWLEDGE or image.acknowledges_in_transactions
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in broker.offered.features.items()
            if lowest > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=image.next_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in image.features.items()
            if name in broker.offered.features
        ],
    )


def check_node(cluster_id: str | None, node_id: int, broker: HandlerBroker) -> None:
    """Refuses a client that expects another cluster or node, or that sends only one of the two ids. Source:
    docs/spec/kafka-4.4.md#s1-2.

    Requests up to version 4 contain neither id and are never refused.

    raises  KafkaError INVALID_REQUEST, REBOOTSTRAP_REQUIRED
    """
    if cluster_id is None and node_id == ANY_NODE:
        return
    if cluster_id is None or node_id == ANY_NODE:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if cluster_id != broker.cluster_id or node_id != broker.node_id:
        raise KafkaError(ErrorCode.REBOOTSTRAP_REQUIRED)


async def update_features(
    request: UpdateFeaturesRequest, context: RequestContext, broker: HandlerBroker
) -> UpdateFeaturesResponse:
    """Handles UpdateFeatures (key 57), versions 0-2, which sets the finalised levels of the cluster's features.

    v1 adds a flag to only validate the request, and replaces the downgrade flag with an upgrade type. (Kafka ignores
    the downgrade flag, so version 0 cannot downgrade.) v2 removes the results of individual features. Needs ALTER on
    the cluster. Either all of the updates are made or none of them. The response is sent once they are durable. Before
    odradek.share.transactions is lowered, the effects of share group markers are recorded for readers that do not
    understand markers. Before transaction.version is lowered, the completion of transactions is recorded.
    """
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type) for each in request.feature_updates
    ]
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= RESULTS_UNTIL:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_message="NONE") for each in request.feature_updates
        ]

    def decision(image: MetadataImage) -> Decision[UpdateFeaturesResponse]:
        made = decide(
            image,
            updates,
            node_id=broker.metadata.node.node_id,
            min_insync_replicas=str(broker.config.min_insync_replicas),
            pending_count=lambda: pending_count(broker),
            supported=broker.offered.features,
        )
        if request.validate_only:
            return Decision(response)
        if made.records and disables_share_transactions(updates, image):
            broker.shares.is_draining = True  # set until the new level has been recorded and synced
        return Decision(response, made.records)

    if broker.has_started("transactions") and lowers(TRANSACTION_VERSION, updates, broker):
        broker.transactions.record_completions()
    try:
        await record_marker_effects(updates, broker, validate_only=request.validate_only)
        return await broker.metadata.submit(decision)
    finally:
        if broker.has_started("shares"):
            broker.shares.is_draining = False


async def record_marker_effects(updates: list[FeatureUpdate], broker: HandlerBroker, *, validate_only: bool) -> None:
    """Prepares for updates that disable acknowledgements in transactions. Stops new acknowledgements, and records the
    effects of markers for readers that do not understand markers.

    Does nothing if the updates will be refused because of pending acknowledgements.
    """
    if (
        validate_only
        or not disables_share_transactions(updates, broker.metadata.image)
        or SHARE_GROUP_STATE not in broker.metadata.image.topics
        or pending_count(broker) != 0
    ):
        return
    broker.shares.is_draining = True
    await broker.share_coordinator.repeat_markers_durably()


def lowers(feature: str, updates: list[FeatureUpdate], broker: HandlerBroker) -> bool:
    current = broker.metadata.image.features.get(feature, 0)
    return any(each.feature == feature and each.level < current for each in updates)


def disables_share_transactions(updates: Sequence[FeatureUpdate], image: MetadataImage) -> bool:
    """Returns whether these updates disable acknowledgements in transactions."""
    return may_have_pending(image.features) and not may_have_pending(levels_with(image.features, updates))


def pending_count(broker: HandlerBroker) -> int | None:
    """Returns the total number of pending acknowledgements in all share partitions, including acknowledgements that are
    still being stored. Returns None while the share coordinator is loading."""
    if SHARE_GROUP_STATE not in broker.metadata.image.topics:
        return 0
    try:
        stored = broker.share_coordinator.pending_count()
    except KafkaError:
        return None
    return max(stored, broker.shares.held_count) if broker.has_started("shares") else stored
