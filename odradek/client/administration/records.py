"""Looks up the offsets and the sizes of partitions and deletes records from the start of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import ClientError, RetriableError, check, code_of, refusal
from odradek.client.common.values import TopicPartition, blocks, grouped
from odradek.client.consuming.offset_lookup import OffsetAndTimestamp, leaders_of, list_offsets
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse

EARLIEST = -2  # like LATEST and MAX_TIMESTAMP, passed in place of a timestamp
LATEST = -1
MAX_TIMESTAMP = -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


async def offsets(
    requests: AdminRequests, timestamps_ms: Mapping[TopicPartition, int], *, is_committed: bool
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    return await list_offsets(
        requests.cluster,
        timestamps_ms,
        isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        timeout_ms=requests.timeout_s * 1000,
    )


async def delete_records(requests: AdminRequests, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    remaining = dict(before)
    found: dict[TopicPartition, int] = {}

    async def ask() -> None:
        leaders = await leaders_of(requests.cluster, remaining)
        led = {partition: node_id for node_id, each in leaders.items() for partition, _ in each}
        for partition in remaining:
            if partition not in led:
                await requests.cluster.refresh({partition.topic})
                raise RetriableError(f"{_partition_name(partition)} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        for node_id, each in leaders.items():
            for some in blocks(partition for partition, _ in each):
                await _delete_at_leader(requests, node_id, some, remaining, found)

    await requests.retry(ask)
    return found


async def _delete_at_leader(
    requests: AdminRequests,
    node_id: int,
    partitions: list[TopicPartition],
    remaining: dict[TopicPartition, int],
    found: dict[TopicPartition, int],
) -> None:
    topics = grouped(
        (each.topic, DeleteRecordsPartition(partition_index=each.partition, offset=remaining[each]))
        for each in partitions
    )
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=requests.request_timeout_ms,
    )
    error: ClientError | None = None
    for topic in (await requests.cluster.ask(request, DeleteRecordsResponse, node_id=node_id)).topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code == 0:
                found[partition] = each.low_watermark
                del remaining[partition]
            else:
                error = refusal(code_of(each.error_code), f"the records of {_partition_name(partition)}")
    if error is not None:
        await requests.cluster.refresh({partition.topic for partition in remaining})
        raise error


async def log_sizes(requests: AdminRequests, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for node_id, each in (await leaders_of(requests.cluster, dict.fromkeys(partitions, LATEST))).items():
        for some in blocks(partition for partition, _ in each):
            topics = [DescribableLogDirTopic(topic=topic, partitions=held) for topic, held in grouped(some).items()]
            request = DescribeLogDirsRequest(topics=topics)
            answer = await requests.ask_broker(node_id, request, DescribeLogDirsResponse)
            check(answer.error_code, f"the log directories of broker {node_id}")
            for directory in answer.results:
                check(directory.error_code, f"the log directory {directory.log_dir} of broker {node_id}")
                for topic in directory.topics:
                    for log in topic.partitions:
                        if not log.is_future_key:
                            found[TopicPartition(topic.name, log.partition_index)] = log.partition_size
    return found


def _partition_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
