"""Handlers that describe topics: Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.api.authorized_operations import (
    NOT_ASKED_FOR,
    authorized_operations,
    cluster_operations,
    is_allowed,
)
from odradek.broker.api.context import Audit, RequestContext
from odradek.broker.metadata.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from odradek.broker.metadata.topic_names import is_valid_topic_name
from odradek.broker.runtime.slices import Steps, in_order, made_of_each, sliced
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.struct import ZERO_UUID
from odradek.protocol.topic_partition import INTERNAL_TOPICS

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
    from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_OFFLINE_REPLICAS = 1
FIRST_VERSION_WITH_TOPIC_IDS = 12
Described: TypeAlias = Callable[[TopicImage], MetadataResponseTopic]


@sliced
def metadata(request: MetadataRequest, context: RequestContext, broker: HandlerBroker) -> Steps[MetadataResponse]:
    """Handles Metadata (key 3), versions 0-13, which returns the brokers and the leaders of partitions.

    In v0, an empty list means all topics; later versions use null instead. v1 adds the controller, racks and internal
    topics. v2 adds the cluster id. v4 adds a flag that permits the creation of missing topics. v5 adds offline
    replicas. v7 adds leader epochs. v8 adds authorized operations on topics and, up to v10, on the cluster. v9 is
    flexible. v10 adds topic ids to responses, and v12 to requests. v13 adds an error for the whole request. Needs
    DESCRIBE on each topic. A response for all topics omits those that the client may not DESCRIBE.

    While a missing topic is being created, its error is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, so clients retry.
    """
    image = broker.metadata.image
    controller_id = image.controller_for_clients(broker.config.node_id)
    response = MetadataResponse(cluster_id=broker.cluster_id, controller_id=controller_id)
    for registration, (host, port) in reachable_brokers(context, broker):
        response.brokers.append(
            MetadataResponseBroker(node_id=registration.broker_id, host=host, port=port, rack=registration.rack)
        )
    response.topics = yield from described_topics(request, context, broker)
    if request.include_topic_authorized_operations:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.value
        for topic in response.topics:  # including topics that do not exist or are being created
            if topic.error_code != refused and topic.name is not None:
                topic.topic_authorized_operations = authorized_operations(context, ResourceType.TOPIC, topic.name)
            yield
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def reachable_brokers(context: RequestContext, broker: HandlerBroker) -> Iterator[tuple[BrokerImage, tuple[str, int]]]:
    """Yields the unfenced brokers that have the client's listener, each with its address."""
    for registration in broker.metadata.image.brokers.values():
        endpoint = context.connection.endpoint(registration.endpoints)
        if endpoint is not None and not registration.is_fenced:
            yield registration, endpoint


def described_topics(
    request: MetadataRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[list[MetadataResponseTopic]]:
    requested = request.topics
    described = partial(
        described_topic,
        alive={each.broker_id for each, _ in reachable_brokers(context, broker)},
        includes_offline_replicas=context.api_version >= FIRST_VERSION_WITH_OFFLINE_REPLICAS,
    )
    if requested is None or (not requested and context.api_version < FIRST_VERSION_WITH_NULL_FOR_ALL):
        topics = []
        for topic in list(broker.metadata.image.topics.values()):
            if is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name, Audit.PROBE):
                topics.append(described(topic))
            yield
        return topics
    names: dict[str, None] = {}  # the requested names in order, without duplicates
    topic_ids: dict[bytes, None] = {}
    for entry in requested:
        check_names(entry, context.api_version)
        if entry.topic_id != ZERO_UUID:
            topic_ids[entry.topic_id] = None
        elif entry.name is not None:
            names[entry.name] = None
        yield
    if topic_ids:  # as in Kafka, names are ignored if there are topic ids
        return (yield from made_of_each(topic_ids, lambda topic_id: topic_by_id(topic_id, context, broker, described)))
    return (yield from topics_by_name(names, request, context, broker, described))


def check_names(topic: MetadataRequestTopic, version: int) -> None:
    if topic.name is None and (version < FIRST_VERSION_WITH_TOPIC_IDS or topic.topic_id == ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST)  # in v12 and later, Kafka returns UNKNOWN_SERVER_ERROR
    if topic.topic_id != ZERO_UUID and version < FIRST_VERSION_WITH_TOPIC_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def topic_by_id(
    topic_id: bytes, context: RequestContext, broker: HandlerBroker, described: Described
) -> MetadataResponseTopic:
    topic = broker.metadata.image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID.value, name=None, topic_id=topic_id)
    if not is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code.value, name=None, topic_id=topic_id)
    return described(topic)


def topics_by_name(
    names: Iterable[str],
    request: MetadataRequest,
    context: RequestContext,
    broker: HandlerBroker,
    described: Described,
) -> Steps[list[MetadataResponseTopic]]:
    image = broker.metadata.image
    answers: list[MetadataResponseTopic] = []
    creates = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    may_create_all = not creates or is_allowed(
        context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, Audit.PROBE
    )
    creatable: list[str] = []
    for name in names:
        topic = image.topics.get(name)
        if not is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            answers.append(failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is not None:
            answers.append(described(topic))
        elif not (may_create_all or is_allowed(context, Operation.CREATE, ResourceType.TOPIC, name)):
            answers.append(failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not is_valid_topic_name(name):
            answers.append(failed_topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            answers.append(failed_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            creatable.append(name)
        yield
    if creates and creatable:
        charge = None if context.meter is None else partial(context.meter.take_partitions, is_strict=True)
        broker.auto_creation.start_creating(creatable, charge)
    return answers


def failed_topic(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code.value, name=name, is_internal=name in INTERNAL_TOPICS)


def described_topic(
    topic: TopicImage, alive: Collection[int], includes_offline_replicas: bool
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[described_partition(partition, alive, includes_offline_replicas) for partition in topic.partitions],
    )


def described_partition(
    partition: PartitionImage, alive: Collection[int], includes_offline_replicas: bool
) -> MetadataResponsePartition:
    """Describes a partition. If `includes_offline_replicas` is false, only replicas on live brokers are included, and
    an error code indicates that other replicas exist. Source: KRaftMetadataCache."""
    leader, replicas, isr = partition.leader, partition.replicas, partition.isr
    offline = [replica for replica in replicas if replica not in alive]
    code = ErrorCode.NONE
    if offline and not includes_offline_replicas:
        code = ErrorCode.REPLICA_NOT_AVAILABLE
        replicas, isr = ([each for each in listed if each in alive] for listed in (replicas, isr))
    return MetadataResponsePartition(
        error_code=(ErrorCode.LEADER_NOT_AVAILABLE if leader is None else code).value,
        partition_index=partition.partition_id,
        leader_id=NO_LEADER if leader is None else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


@sliced
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeTopicPartitionsResponse]:
    """Handles DescribeTopicPartitions (key 75), version 0, which describes topics page by page, sorted by name
    (KIP-966).

    Needs DESCRIBE on each topic. An empty list of topics means all topics. A partition without a leader is not an
    error. A page contains `response_partition_limit` partitions, but at least one and at most
    `max.request.partition.size.limit`. Topics that cannot be described do not count towards the limit. The cursor is
    the first partition of the next page.
    """
    image = broker.metadata.image
    first_topic, first_partition = "", 0
    names: set[str] = set()
    for topic_asked in request.topics:
        names.add(topic_asked.name)
        yield
    if not request.topics:
        names.update(image.topics)
    cursor = request.cursor
    if cursor is not None:
        first_topic, first_partition = cursor.topic_name, cursor.partition_index
        if first_partition < 0 or (request.topics and first_topic not in names):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    limit = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))

    alive_ids = {each.broker_id for each, _ in reachable_brokers(context, broker)}
    response = DescribeTopicPartitionsResponse()
    for name in (yield from in_order(name for name in names if name >= first_topic)):
        yield
        first = first_partition if name == first_topic else 0
        if not is_allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                response.topics.append(page_failure(context, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = image.topics.get(name)
        if topic is None:
            valid = is_valid_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(page_failure(context, name, code))
            continue
        partitions = topic.partitions[first : first + limit]
        response.topics.append(page_topic(context, topic, partitions, alive_ids))
        limit -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(partitions))
            break
    return response


def page_failure(context: RequestContext, name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    is_hidden = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeTopicPartitionsResponseTopic(
        error_code=code.value,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=NOT_ASKED_FOR
        if is_hidden
        else authorized_operations(context, ResourceType.TOPIC, name),
    )


def page_topic(
    context: RequestContext, topic: TopicImage, partitions: list[PartitionImage], alive: Collection[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.partition_id,
                leader_id=NO_LEADER if partition.leader is None else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.eligible_leader_replicas,
                last_known_elr=partition.last_known_elr,
                offline_replicas=[replica for replica in partition.replicas if replica not in alive],
            )
            for partition in partitions
        ],
        topic_authorized_operations=authorized_operations(context, ResourceType.TOPIC, topic.name),
    )
