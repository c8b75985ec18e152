"""Handlers that commit and delete group offsets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.broker.runtime.slices import Steps, in_slices
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.broker.runtime.waiting import NowOrLater


FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
# A topic is identified by its name or, since version FIRST_VERSION_WITH_TOPIC_IDS, by its id.
RefusedTopics: TypeAlias = dict[str | bytes, OffsetCommitResponseTopic]


def offset_commit(
    request: OffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[OffsetCommitResponse]:
    """Handles OffsetCommit (key 8), versions 2-10, which stores a group's offsets.

    v5 removes the retention time. v6 adds leader epochs. v7 adds static members. v8 is flexible. v9 adds member epochs
    of consumer groups, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH. v10 uses topic ids instead of names. Needs READ on
    the group and each topic. The response is sent once the offsets are recorded.
    """
    return in_slices(_offset_commit(request, context, broker))


def _offset_commit(
    request: OffsetCommitRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[OffsetCommitResponse]]:
    context.require(Operation.READ, ResourceType.GROUP, request.group_id)
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    image = broker.metadata.image
    checked_at = image.topics_version
    refused: RefusedTopics = {}
    accepted_topics = []
    for topic in request.topics:
        accepted = check_topic(topic, context, image, refused, by_id=by_id)
        if accepted is not None:
            accepted_topics.append(accepted)
        yield
    if image.topics_version != checked_at:  # a deleted topic's offsets must not be stored
        again = (check_topic(topic, context, image, refused, by_id=by_id) for topic in accepted_topics)
        accepted_topics = [topic for topic in again if topic is not None]
    if not accepted_topics:
        return OffsetCommitResponse(topics=list(refused.values()))
    version = context.api_version
    accepted_request = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=accepted_topics,
    )
    try:
        return broker.groups.shard_for(request.group_id).submit(
            lambda core, now_ms: core.commit_offsets(accepted_request, version=version, now_ms=now_ms),
            finish=partial(merged, refused, by_id=by_id),
        )
    except KafkaError as error:
        # The group's error applies to the remaining partitions. Partitions that have already been refused keep their
        # error codes.
        return merged(refused, all_refused(accepted_request, error.code), by_id=by_id)


def check_topic(
    topic: OffsetCommitRequestTopic,
    context: RequestContext,
    image: MetadataImage,
    refused: RefusedTopics,
    *,
    by_id: bool,
) -> OffsetCommitRequestTopic | None:
    """Returns the topic with its name, its id and its existing partitions. Returns None if the topic is refused or has
    no existing partition. Refused partitions are added to `refused`."""
    topic_image = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    key = topic.topic_id if by_id else topic.name
    if by_id and topic_image is None:
        refuse(refused, key, refusals(topic, topic.partitions, ErrorCode.UNKNOWN_TOPIC_ID))
        return None
    try:
        context.require(Operation.READ, ResourceType.TOPIC, topic.name if topic_image is None else topic_image.name)
    except KafkaError as error:
        refuse(refused, key, refusals(topic, topic.partitions, error.code))
        return None
    count = 0 if topic_image is None else len(topic_image.partitions)
    existing = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    if len(existing) < len(topic.partitions):
        missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        refuse(refused, key, refusals(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if topic_image is None or not existing:
        return None
    return OffsetCommitRequestTopic(name=topic_image.name, topic_id=topic_image.topic_id, partitions=existing)


def refusals(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            for partition in partitions
        ],
    )


def refuse(refused: RefusedTopics, key: str | bytes, topic: OffsetCommitResponseTopic) -> None:
    """Adds a topic's refused partitions to `refused`, in the topic's existing entry if there is one."""
    earlier = refused.setdefault(key, topic)
    if earlier is not topic:
        earlier.partitions += topic.partitions


def all_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[refusals(topic, topic.partitions, code) for topic in request.topics])


def merged(refused: RefusedTopics, answered: OffsetCommitResponse, *, by_id: bool) -> OffsetCommitResponse:
    """Merges the refusals into the response, as Kafka does. If any partition was refused, the merged response has one
    entry for each topic, and refused topics come first. Otherwise it has one entry for each entry in the request."""
    if not refused:
        return answered
    for topic in answered.topics:
        refuse(refused, topic.topic_id if by_id else topic.name, topic)
    return OffsetCommitResponse(topics=list(refused.values()))


def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[OffsetDeleteResponse]:
    """Handles OffsetDelete (key 47), version 0, which deletes a group's offsets for some partitions.

    Needs DELETE on the group and READ on each topic. While a consumer group has members, the offsets of subscribed
    topics cannot be deleted (GROUP_SUBSCRIBED_TO_TOPIC). The response is sent once the tombstones are recorded.
    """
    return in_slices(_offset_delete(request, context, broker))


def _offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[OffsetDeleteResponse]]:
    context.require(Operation.DELETE, ResourceType.GROUP, request.group_id)
    accepted = OffsetDeleteRequest(group_id=request.group_id)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        image = broker.metadata.image.topics.get(topic.name)
        count = 0 if image is None else len(image.partitions)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            context.require(Operation.READ, ResourceType.TOPIC, topic.name)
        except KafkaError as error:
            count, code = 0, error.code
        existing = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        missing = [
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code.value)
            for partition in topic.partitions
            if not 0 <= partition.partition_index < count
        ]
        if missing:
            refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name)).partitions += missing
        if existing:
            accepted.topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=existing))
        yield
    # The group is checked even if no partitions are left, because a group error applies to the whole response.
    if request.group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return broker.groups.shard_for(request.group_id).submit(
        lambda core, _: core.delete_offsets(accepted), finish=partial(merged_deletion, refused)
    )


def merged_deletion(
    refused: dict[str, OffsetDeleteResponseTopic], answered: OffsetDeleteResponse
) -> OffsetDeleteResponse:
    """Merges the refusals into the response, as Kafka does. If any partition was refused, the merged response has one
    entry for each topic, and refused topics come first. Otherwise it has one entry for each entry in the request."""
    if not refused:
        return answered
    for topic in answered.topics:
        earlier = refused.get(topic.name)
        if earlier is None:
            refused[topic.name] = topic
        else:
            earlier.partitions += topic.partitions
    return OffsetDeleteResponse(error_code=answered.error_code, topics=list(refused.values()))
