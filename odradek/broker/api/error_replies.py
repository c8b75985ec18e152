"""The response of each API to a request that failed as a whole: where the error code goes.

Mirrors the `getErrorResponse` of Kafka 4.3.1's request classes, observed. Errors of single partitions or groups are not
here: they are values in a handler's response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from odradek.broker.api.replica_error_replies import REPLICA_ERROR_REPLIES
from odradek.broker.api.security_error_replies import SECURITY_ERROR_REPLIES
from odradek.broker.api.share_error_replies import SHARE_ERROR_REPLIES
from odradek.broker.api.transaction_error_replies import TRANSACTION_ERROR_REPLIES
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import response_class
from odradek.protocol.struct import Message

# (request, version, code as on the wire, message) -> response
ErrorReply: TypeAlias = Callable[[Any, int, int, str | None], Message]

# A code that is younger than its API → the first version that knows it, and what older ones are told in its place.
# Source: docs/spec/transactions.md#s2-0, #s2-7; DeleteTopics as Kafka 4.3.1 answers it.
YOUNGER_CODES: Mapping[tuple[ApiKey, ErrorCode], tuple[int, ErrorCode]] = {
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED): (4, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED): (2, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): (2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.DELETE_TOPICS, ErrorCode.TOPIC_DELETION_DISABLED): (3, ErrorCode.INVALID_REQUEST),
}


def code_for(api_key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """`code` as this version of the API spells it."""
    since, before = YOUNGER_CODES.get((api_key, code), (0, code))
    return code if version >= since else before


def error_reply(api_key: ApiKey, version: int, request: Message, code: ErrorCode, message: str | None) -> Message:
    """The response that says `code` for all of `request`; `message` where the API has a field for it."""
    reply = ERROR_REPLIES.get(api_key)
    if reply is not None:
        return reply(request, version, code.value, message)
    response: Any = response_class(api_key.value)()
    if "error_code" not in type(response).__slots__:
        raise AssertionError(f"{api_key.name} has no error reply")
    response.error_code = code.value
    if "error_message" in type(response).__slots__:
        response.error_message = message
    return response  # type: ignore[no-any-return]  # it is what response_class made


def _produce(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.produce_response import (
        PartitionProduceResponse,
        ProduceResponse,
        TopicProduceResponse,
    )

    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: Any, version: int, code: int, message: str | None) -> Message:
    """From version 13 on the code stands at the top only: a topic id may mean nothing here."""
    from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData

    topics = request.topics if version < 13 else []
    return FetchResponse(
        error_code=code,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1, records=b"")
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _list_offsets(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.list_offsets_response import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
        ListOffsetsTopicResponse,
    )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _metadata(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic

    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(
                # Before version 10, and in 10 and 11 by mistake, a name cannot be null.
                name=topic.name if topic.name is not None or version >= 12 else "",
                topic_id=topic.topic_id,
                error_code=code,
            )
            for topic in request.topics or ()
        ],
    )


def _offset_commit(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.offset_commit_response import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, code: int, message: str | None) -> Message:
    """Version 1 says it per partition, 2 to 7 at the top, 8 and later per group."""
    from odradek.protocol.messages.offset_fetch_response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartition,
        OffsetFetchResponseTopic,
    )

    if version >= 8:
        groups = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _find_coordinator(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

    if version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


def _join_group(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.join_group_response import JoinGroupResponse

    return JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")


def _describe_groups(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message if version >= 6 else None)
            for group_id in request.groups
        ]
    )


def _consumer_group_describe(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup

    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message) for group_id in request.group_ids
        ]
    )


def _create_topics(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics
        ]
    )


def _delete_topics(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse

    if version >= 6:
        named = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        named = [(name, bytes(16)) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message if version >= 5 else None
            )
            for name, topic_id in named
        ]
    )


def _delete_records(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.delete_records_response import (
        DeleteRecordsPartitionResult,
        DeleteRecordsResponse,
        DeleteRecordsTopicResult,
    )

    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _init_producer_id(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _offset_for_leader_epoch(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.offset_for_leader_epoch_response import (
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderTopicResult,
    )

    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=partition.partition, error_code=code) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_configs(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult

    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _alter_configs(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.alter_configs_response import AlterConfigsResourceResponse, AlterConfigsResponse

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.incremental_alter_configs_response import (
        AlterConfigsResourceResponse,
        IncrementalAlterConfigsResponse,
    )

    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _create_partitions(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.create_partitions_response import (
        CreatePartitionsResponse,
        CreatePartitionsTopicResult,
    )

    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _delete_groups(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


def _describe_producers(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_producers_response import (
        DescribeProducersResponse,
        PartitionResponse,
        TopicResponse,
    )

    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_topic_partitions(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.describe_topic_partitions_response import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseTopic,
    )

    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code) for topic in request.topics]
    )


# The other APIs have one error code for the whole response.
ERROR_REPLIES: Mapping[ApiKey, ErrorReply] = {
    **TRANSACTION_ERROR_REPLIES,
    **SECURITY_ERROR_REPLIES,
    **REPLICA_ERROR_REPLIES,
    **SHARE_ERROR_REPLIES,
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}
