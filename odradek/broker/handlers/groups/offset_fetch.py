"""Handles OffsetFetch (key 9), versions 1-10, which returns the committed offsets of groups.

v2 allows null for all topics, and adds an error code for the group. v5 adds leader epochs. v6 is flexible. v7 adds
`require_stable`; if it is set, partitions with an offset in an open transaction get UNSTABLE_OFFSET_COMMIT. v8 accepts
several groups, each with its own error. v9 adds the member id and epoch of consumer groups. v10 uses topic ids instead
of names. Needs DESCRIBE on the groups and topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.api.long_requests import AnswerEntries
from odradek.broker.runtime.slices import Steps, sliced
from odradek.broker.runtime.waiting import Deferred, NowOrLater, start_coroutine, wait_for_all, wait_for_answer
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.struct import ZERO_UUID

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage

FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
TOPICS_AT_ONCE = 100
FIRST_VERSION_WITH_TOPIC_IDS = 10
FIRST_VERSION_WITH_GROUP_ERROR = 2


@sliced
def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[NowOrLater[OffsetFetchResponse]]:
    """Handles an OffsetFetch request in pieces of several topics, because a request can name a very large number of
    topics for one group."""
    version, answers = context.api_version, list[NowOrLater[OffsetFetchResponse]]()
    requested: list[OffsetFetchRequestGroup] = []
    places: list[int] = []  # for each piece, the position of its group in the request
    entries = AnswerEntries()
    groups = (
        request.groups
        if version >= FIRST_VERSION_WITH_SEVERAL_GROUPS
        else [OffsetFetchRequestGroup(group_id=request.group_id)]
    )
    for place, group in enumerate(groups):
        for piece in pieces(group, group.topics if version >= FIRST_VERSION_WITH_SEVERAL_GROUPS else request.topics):
            requested.append(piece)
            places.append(place)
            answer = fetch_group(piece, request.require_stable, context, broker)
            answers.append(start_coroutine(count_entries(answer, entries, version)))
            found = 0 if isinstance(answer, Deferred) else len(answer.topics)
            for _ in range(1 + max(found, len(piece.topics or ()))):
                yield
    return start_coroutine(merge_when_answered(answers, requested, places, version))


async def count_entries(
    answer: NowOrLater[OffsetFetchResponseGroup], entries: AnswerEntries, version: int
) -> OffsetFetchResponse:
    """Waits for the response to a piece and counts its entries. Raises INVALID_REQUEST if the total is too high."""
    group = await wait_for_answer(answer)
    for topic in group.topics:
        metadata_bytes = sum(len(partition.metadata or "") for partition in topic.partitions)
        entries.add(1 + len(topic.partitions), metadata_bytes)
    entries.add(1)
    return in_version(group, version)


async def merge_when_answered(
    answers: list[NowOrLater[OffsetFetchResponse]],
    requested: list[OffsetFetchRequestGroup],
    places: list[int],
    version: int,
) -> OffsetFetchResponse:
    """Waits for the responses to all pieces and merges them. If a piece is refused, its error applies to the whole
    group."""
    arrived: list[OffsetFetchResponse | KafkaError] = await wait_for_all(answers)
    found: list[OffsetFetchResponse] = []
    for piece, answer in zip(requested, arrived, strict=True):
        if isinstance(answer, KafkaError):
            found.append(in_version(group_error(piece, answer.code, version), version))
        else:
            found.append(answer)
    return merge_responses(found, places)


def pieces(
    group: OffsetFetchRequestGroup, topics: Sequence[OffsetFetchRequestTopics | OffsetFetchRequestTopic] | None
) -> Iterator[OffsetFetchRequestGroup]:
    """Yields a group's request in pieces of TOPICS_AT_ONCE topics. A request for all topics, or for no topics, is a
    single piece."""
    for start in range(0, max(1, len(topics or ())), TOPICS_AT_ONCE):
        piece = None if topics is None else topics[start : start + TOPICS_AT_ONCE]
        yield OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=None if piece is None else [as_of_a_group(topic) for topic in piece],
        )


def as_of_a_group(topic: OffsetFetchRequestTopics | OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    if isinstance(topic, OffsetFetchRequestTopics):
        return topic
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def merge_responses(answers: list[OffsetFetchResponse], places: list[int]) -> OffsetFetchResponse:
    """Merges the responses to all pieces into one response."""
    response = answers[0] if answers else OffsetFetchResponse()
    for place, before, answer in zip(places[1:], places, answers[1:], strict=False):
        if place != before:
            response.groups += answer.groups
        elif answer.groups:
            add(response.groups[-1], answer.groups[0])
        else:
            add(response, answer)
    return response


Part = TypeVar("Part", OffsetFetchResponse, OffsetFetchResponseGroup)


def add(so_far: Part, more: Part) -> None:
    """Merges the response to a piece into the group's response. An error in one piece, such as a changed member epoch,
    becomes the group's error."""
    so_far.error_code = so_far.error_code or more.error_code
    if so_far.error_code:
        so_far.topics = []
    else:
        so_far.topics += more.topics


def fetch_group(
    requested: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, broker: HandlerBroker
) -> NowOrLater[OffsetFetchResponseGroup]:
    try:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, requested.group_id)
        image, by_id = broker.metadata.image, context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        group, refused = requested, list[OffsetFetchResponseTopics]()
        if requested.topics is not None:
            group, refused = split_refused_topics(requested, requested.topics, context, image, by_id=by_id)
        return broker.groups.shard_for(group.group_id).submit(
            lambda core, _: core.fetch_offsets(group, require_stable=require_stable),
            finish=partial(complete_response, refused=refused, context=context, image=image if by_id else None),
        )
    except KafkaError as error:
        return group_error(requested, error.code, context.api_version)


def split_refused_topics(
    requested: OffsetFetchRequestGroup,
    topics: list[OffsetFetchRequestTopics],
    context: RequestContext,
    image: MetadataImage,
    *,
    by_id: bool,
) -> tuple[OffsetFetchRequestGroup, list[OffsetFetchResponseTopics]]:
    """Returns the group's request without the topics that must be refused, and the refusals for these topics."""
    refused: list[OffsetFetchResponseTopics] = []
    accepted_topics: list[OffsetFetchRequestTopics] = []
    for topic in topics:
        name = topic.name
        if by_id:
            topic_image = image.topics_by_id.get(topic.topic_id)
            if topic_image is None:
                refused.append(topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            name = topic_image.name
        try:
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        except KafkaError as error:
            refused.append(topic_error(topic, error.code))
            continue
        accepted_topics.append(
            OffsetFetchRequestTopics(name=name, topic_id=topic.topic_id, partition_indexes=topic.partition_indexes)
        )
    group = OffsetFetchRequestGroup(
        group_id=requested.group_id,
        member_id=requested.member_id,
        member_epoch=requested.member_epoch,
        topics=accepted_topics,
    )
    return group, refused


def complete_response(
    response: OffsetFetchResponseGroup,
    refused: list[OffsetFetchResponseTopics],
    context: RequestContext,
    image: MetadataImage | None,
) -> OffsetFetchResponseGroup:
    """Removes topics that the client may not see from the response and adds the refused topics. `image` is passed only
    if the client uses topic ids. In that case, missing topic ids are added too."""
    topics = []
    for topic in response.topics:
        try:
            context.require(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        except KafkaError:
            continue
        if image is not None and topic.topic_id == ZERO_UUID:
            topic_image = image.topics.get(topic.name)
            if topic_image is None:
                continue  # the topic no longer exists, so it has no id
            topic.topic_id = topic_image.topic_id
        topics.append(topic)
    response.topics = topics + refused
    return response


def topic_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code.value)
            for index in topic.partition_indexes
        ],
    )


def group_error(requested: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """Builds the response for a group that failed as a whole. Version 1 has error codes only for partitions."""
    if version >= FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=code.value)
    return OffsetFetchResponseGroup(
        group_id=requested.group_id, topics=[topic_error(topic, code) for topic in requested.topics or ()]
    )


def in_version(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    if version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return OffsetFetchResponse(groups=[group])
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
