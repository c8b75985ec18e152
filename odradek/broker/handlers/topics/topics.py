"""Handlers that create and delete topics and add partitions: CreateTopics, CreatePartitions and DeleteTopics."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext, authorization_error
from odradek.broker.configuration.config_description import DescribedConfig, effective_topic_settings
from odradek.broker.metadata import topics as decisions
from odradek.broker.metadata.records import Decision
from odradek.broker.metadata.topics import DeletedTopic, NewTopic, PartitionIncrease, TopicResult
from odradek.broker.runtime.slices import Steps, done_in_slices, made_of_each
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_facts import facts_of
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from odradek.protocol.struct import ZERO_UUID

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest
    from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
    from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest

BROKER_DEFAULT = -1
FIRST_VERSION_WITH_SETTINGS = 5
FIRST_VERSION_WITH_TOPIC_IDS = 6

Result = tuple[str, KafkaError | None]
Wish = tuple[str | None, bytes]


async def create_topics(
    request: CreateTopicsRequest, context: RequestContext, broker: HandlerBroker
) -> CreateTopicsResponse:
    """Handles CreateTopics (key 19), versions 2-7, which creates topics or only validates the request.

    Since v4, the partition count and the replication factor may be -1, which means the broker's default. v5 is
    flexible, and its response contains the partition count, the replication factor and the settings. Since v6, topics
    may be refused because of a quota. v7 adds the topic id to the response. Needs CREATE on the cluster or on each
    topic, and DESCRIBE_CONFIGS on a topic to receive its settings. The response is sent once the topics are writable.
    """
    requested, refusals, describable = await done_in_slices(_requested_topics(request, context))
    results = await broker.auto_creation.create(requested, validate_only=request.validate_only, charge=_charge(context))
    return await done_in_slices(_create_response(results + refusals, describable, context, broker))


def _requested_topics(
    request: CreateTopicsRequest, context: RequestContext
) -> Steps[tuple[list[NewTopic], list[TopicResult], Container[str]]]:
    """Returns the topics that the client may create, refusals for the other topics, and the names of topics whose
    settings the client may see."""
    may_create_all = is_allowed(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE)
    allowed: set[str] = set()
    describable: set[str] = set()
    names = {topic.name for topic in request.topics}
    for name in names:
        if may_create_all or is_allowed(context, Operation.CREATE, ResourceType.TOPIC, name):
            allowed.add(name)
        if is_allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, Audit.PROBE):
            describable.add(name)
        yield
    refusals = [
        TopicResult(name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
        for name in sorted(names - allowed)
    ]
    requested: list[NewTopic] = []
    for topic in request.topics:
        if topic.name in allowed:
            requested.append(_new_topic(topic))
        yield
    return requested, refusals, describable


def _charge(context: RequestContext) -> Callable[[int], None]:
    """Returns a function that charges partitions to the client's quota. Since version `mutation_refused_from` of the
    API (see `api_facts`), the function raises THROTTLING_QUOTA_EXCEEDED when the quota is used up. Source:
    docs/spec/security.md#s4-3, row 147"""
    if context.meter is None:
        return decisions.unlimited
    refused_from = facts_of(context.api_key).mutation_refused_from
    is_strict = refused_from is not None and context.api_version >= refused_from
    return partial(context.meter.take_partitions, is_strict=is_strict)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        None if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions,
        None if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _create_response(
    results: list[TopicResult], describable: Container[str], context: RequestContext, broker: HandlerBroker
) -> Steps[CreateTopicsResponse]:
    without_settings: list[CreatableTopicConfigs] | None = None  # shared by all topics that have no settings
    topics = []
    for result in results:
        yield
        if result.error is not None:
            error = result.error
            topics.append(
                CreatableTopicResult(name=result.name, error_code=error.code.value, error_message=error.message)
            )
            continue
        if result.name not in describable:
            topics.append(
                CreatableTopicResult(
                    name=result.name,
                    topic_id=result.topic_id,
                    error_message=None,
                    topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.value,
                )
            )
            continue
        configs: list[CreatableTopicConfigs] = []
        if context.api_version >= FIRST_VERSION_WITH_SETTINGS:
            if result.configs:
                configs = _configs(effective_topic_settings(broker.config, result.configs, broker.rules))
            else:
                without_settings = without_settings or _configs(
                    effective_topic_settings(broker.config, {}, broker.rules)
                )
                configs = without_settings
        topics.append(
            CreatableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_message=None,
                num_partitions=result.partition_count,
                replication_factor=result.replication_factor,
                configs=configs,
            )
        )
    return CreateTopicsResponse(topics=topics)


def _configs(described: list[DescribedConfig]) -> list[CreatableTopicConfigs]:
    return [CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.source.value) for one in described]


async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, broker: HandlerBroker
) -> CreatePartitionsResponse:
    """Handles CreatePartitions (key 37), versions 0-3, which adds partitions to topics. Partitions cannot be removed.

    v2 is flexible. Since v3, topics may be refused because of a quota. Needs ALTER on each topic. The response is sent
    once the partitions are writable.
    """
    wishes, refusals = await done_in_slices(_requested_increases(request, context))
    charge = _charge(context)

    def turn(image: MetadataImage) -> Steps[Decision[list[Result]]]:
        decision = yield from decisions.create_partitions(
            image, wishes, node=broker.metadata.node, charge=charge, rules=broker.rules
        )
        return Decision(decision.response) if request.validate_only else decision

    results = await broker.metadata.submit(turn)
    entries = await done_in_slices(made_of_each(refusals + results, _increase_result))
    return CreatePartitionsResponse(results=entries)


def _requested_increases(
    request: CreatePartitionsRequest, context: RequestContext
) -> Steps[tuple[list[PartitionIncrease], list[Result]]]:
    """Returns the topics to which the client may add partitions, and refusals for the other topics."""
    wishes: list[PartitionIncrease] = []
    refusals: list[Result] = []
    for topic in request.topics:
        yield
        if is_allowed(context, Operation.ALTER, ResourceType.TOPIC, topic.name):
            assignments = topic.assignments
            chosen = None if assignments is None else [assignment.broker_ids for assignment in assignments]
            wishes.append(PartitionIncrease(topic.name, topic.count, chosen))
        else:
            refusals.append((topic.name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    return wishes, refusals


def _increase_result(result: Result) -> CreatePartitionsTopicResult:
    name, error = result
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_message=None)
    return CreatePartitionsTopicResult(name=name, error_code=error.code.value, error_message=error.message)


async def delete_topics(
    request: DeleteTopicsRequest, context: RequestContext, broker: HandlerBroker
) -> DeleteTopicsResponse:
    """Handles DeleteTopics (key 20), versions 1-6, which deletes topics by name or, since v6, by topic id.

    v4 is flexible. v5 adds an error message to the response. Needs DELETE on the cluster, or DESCRIBE and DELETE on
    each topic. If the client lacks DESCRIBE, the response hides the names of topics that the request identifies by id.
    Only a client with DESCRIBE is informed that a topic does not exist. The response is sent once the topics are no
    longer reachable. Their files are removed later.
    """
    if not broker.config.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    wishes: list[Wish]
    if context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        wishes = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wishes = [(name, ZERO_UUID) for name in request.topic_names]
    allowed, refusals = await done_in_slices(_sorted_by_permission(wishes, context, broker))
    charge = _charge(context)
    results = await broker.metadata.submit(lambda image: decisions.delete_topics(image, allowed, charge=charge))
    entries = await done_in_slices(made_of_each(refusals + results, _delete_result))
    return DeleteTopicsResponse(responses=entries)


def _sorted_by_permission(
    wishes: list[Wish], context: RequestContext, broker: HandlerBroker
) -> Steps[tuple[list[Wish], list[DeletedTopic]]]:
    if is_allowed(context, Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE):
        return wishes, []
    image = broker.metadata.image
    allowed: list[Wish] = []
    refusals: list[DeletedTopic] = []
    for name, topic_id in wishes:
        yield
        topic_image = image.topics_by_id.get(topic_id)
        actual_name = name if topic_image is None else topic_image.name
        if actual_name is None:
            allowed.append((name, topic_id))  # the response will report that the id does not exist
            continue
        may_describe = is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, actual_name)
        may_delete = is_allowed(context, Operation.DELETE, ResourceType.TOPIC, actual_name)
        if may_describe and (may_delete or actual_name not in image.topics):
            allowed.append((name, topic_id))
        else:
            shown = actual_name if name is not None or may_describe else None
            refusals.append(DeletedTopic(shown, topic_id, authorization_error(ResourceType.TOPIC, context.api_key)))
    return allowed, refusals


def _delete_result(each: DeletedTopic) -> DeletableTopicResult:
    result = DeletableTopicResult(name=each.name, topic_id=each.topic_id)
    if each.error is not None:
        result.error_code, result.error_message = each.error.code.value, each.error.message
    return result
