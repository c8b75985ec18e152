"""CreateTopics (key 19), versions 2-7: creates topics, or only validates the request.

v4: partition count and replication factor may be -1, the broker's default. v5: flexible; answers count, factor and
settings. v6: a quota may refuse topics. v7: answers the topic id. Needs CREATE on the cluster or on each topic, and
DESCRIBE_CONFIGS on a topic to be told its settings. Answered when the topics can be written to.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit
from odradek.broker.configuration.config_description import Described, effective_topic_settings
from odradek.broker.metadata.topics import NewTopic, TopicResult, charge_of
from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest

BROKER_DEFAULT = -1
SETTINGS_SINCE = 5
STRICT_SINCE = 6  # quotas: THROTTLING_QUOTA_EXCEEDED


def create_topics(
    request: CreateTopicsRequest, context: RequestContext, broker: Broker
) -> Deferred[CreateTopicsResponse]:
    names = {topic.name for topic in request.topics}
    if is_allowed(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE):
        allowed = names
    else:
        allowed = {name for name in names if is_allowed(context, Operation.CREATE, ResourceType.TOPIC, name)}
    refused = [
        TopicResult(name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
        for name in sorted(names - allowed)
    ]
    describable = {
        name for name in names if is_allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, Audit.PROBE)
    }
    wanted = [_new_topic(topic) for topic in request.topics if topic.name in allowed]
    answer: Deferred[CreateTopicsResponse] = Deferred()

    def done(created: Deferred[list[TopicResult]]) -> None:
        try:
            results = created.outcome()
        except KafkaError as error:
            answer.fail(error)
            return
        assert isinstance(results, list)
        answer.resolve(_response(results + refused, describable, context, broker))

    charge = charge_of(context, STRICT_SINCE)
    broker.auto_creation.create(wanted, validate_only=request.validate_only, charge=charge).when_done(done)
    return answer


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        None if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions,
        None if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _response(
    results: list[TopicResult], describable: Container[str], context: RequestContext, broker: Broker
) -> CreateTopicsResponse:
    """describable: the topics whose settings the client may know"""
    without_settings: list[CreatableTopicConfigs] | None = None  # shared by all topics that have none of their own
    topics = []
    for result in results:
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
        if context.api_version >= SETTINGS_SINCE:
            if result.configs:
                configs = _configs(effective_topic_settings(broker.config, result.configs))
            else:
                without_settings = without_settings or _configs(effective_topic_settings(broker.config, {}))
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


def _configs(described: list[Described]) -> list[CreatableTopicConfigs]:
    return [CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.source.value) for one in described]
