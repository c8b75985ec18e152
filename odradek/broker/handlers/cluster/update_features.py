"""UpdateFeatures (key 57), versions 0-2: sets the finalised level of each feature of the cluster.

v1: upgrade types instead of a flag (which Kafka does not heed: version 0 cannot downgrade), validation only. v2: no
results by feature. Needs ALTER on the cluster. All updates are made or none; answered when they are durable. Before
share.version goes below the level of markers in its log, what they said is recorded for readers that do not know them;
before transaction.version is lowered, which transactions are complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.decision import Decision
from odradek.broker.metadata.features import FeatureUpdate
from odradek.broker.metadata.features import update_features as decide
from odradek.broker.metadata.supported_features import (
    SHARE_VERSION,
    SHARE_VERSION_TRANSACTIONS,
    TRANSACTION_VERSION,
)
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import KafkaError
from odradek.protocol.internal_topics import SHARE_GROUP_STATE
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
    from odradek.protocol.struct import Message

RESULTS_UNTIL = 1


def update_features(
    request: UpdateFeaturesRequest, context: RequestContext, broker: Broker
) -> Deferred[UpdateFeaturesResponse]:
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
            staged_count=lambda: staged_count(broker),
        )
        if request.validate_only:
            return Decision(response)
        if any(ends_staging(each) for each in made.records):
            broker.shares.is_draining = True  # until it is recorded, which takes an fsync
        return Decision(response, made.records)

    reply: Deferred[UpdateFeaturesResponse] = Deferred()

    def recorded(answer: Deferred[UpdateFeaturesResponse]) -> None:
        if broker.has_started("shares"):
            broker.shares.is_draining = False
        try:
            reply.resolve(answer.outcome())
        except KafkaError as error:
            reply.fail(error)

    def told(answer: Deferred[bool]) -> None:
        try:
            answer.outcome()
        except KafkaError as error:
            broker.shares.is_draining = False
            reply.fail(error)
            return
        broker.metadata.submit(decision).when_done(recorded)

    if broker.has_started("transactions") and lowers(TRANSACTION_VERSION, updates, broker):
        broker.transactions.record_completions()
    tell_markers(updates, broker, validate_only=request.validate_only).when_done(told)
    return reply


def tell_markers(updates: list[FeatureUpdate], broker: Broker, *, validate_only: bool) -> Deferred[bool]:
    """Where these updates end staging, and will not be refused since something is staged: nothing more is from now on,
    and what markers have ended is recorded for readers that do not know them."""
    done: Deferred[bool] = Deferred()
    if (
        validate_only
        or not lowers(SHARE_VERSION, updates, broker)
        or SHARE_GROUP_STATE not in broker.metadata.image.topics
        or staged_count(broker) != 0
    ):
        done.resolve(True)
        return done
    broker.shares.is_draining = True
    try:
        answer = broker.share_coordinator.tell_durably()
    except KafkaError as error:
        done.fail(error)
        return done
    if isinstance(answer, Deferred):
        return answer
    done.resolve(True)
    return done


def lowers(feature: str, updates: list[FeatureUpdate], broker: Broker) -> bool:
    current = broker.metadata.image.features.get(feature, 0)
    return any(each.feature == feature and each.level < current for each in updates)


def ends_staging(record: Message) -> bool:
    """Whether with this record acknowledgements can no longer be part of transactions."""
    return (
        isinstance(record, FeatureLevelRecord)
        and record.name == SHARE_VERSION
        and record.feature_level < SHARE_VERSION_TRANSACTIONS
    )


def staged_count(broker: Broker) -> int | None:
    """Of all share partitions: stored, or on their way to being stored. None while their coordinator loads."""
    if SHARE_GROUP_STATE not in broker.metadata.image.topics:
        return 0
    try:
        stored = broker.share_coordinator.staged_count()
    except KafkaError:
        return None
    return max(stored, broker.shares.staged_count) if broker.has_started("shares") else stored
