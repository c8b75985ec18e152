"""As `error_replies`, for elections of leaders and for replicas that move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.struct import Message


def _alter_replica_log_dirs(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.alter_replica_log_dirs_response import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: int, message: str | None) -> Message:
    """In version 0 there is a code for each partition only."""
    from odradek.protocol.messages.elect_leaders_response import (
        ElectLeadersResponse,
        PartitionResult,
        ReplicaElectionResult,
    )

    return ElectLeadersResponse(
        error_code=code if version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_partition_reassignments(request: Any, version: int, code: int, message: str | None) -> Message:
    from odradek.protocol.messages.alter_partition_reassignments_response import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


REPLICA_ERROR_REPLIES: Mapping[ApiKey, Callable[[Any, int, int, str | None], Message]] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
}
