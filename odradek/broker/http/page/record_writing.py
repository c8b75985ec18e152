"""Produces records for an HTTP client, with the same requests that a producer sends. The permissions, limits and errors
are therefore the same as for a producer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from odradek.broker.http.page.record_grammar import SentRecord
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.key_partition import partition_for_key
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from odradek.protocol.records import NewRecord, build_batch

if TYPE_CHECKING:
    from odradek.broker.in_process.client import Ask, InProcessClient

NAMED_TOPICS: Final = 12  # newest version of Produce that has topic names instead of ids
ALL: Final = -1  # value of acks=all in a request
TIMEOUT_MS: Final = 30_000
NOT_YET: Final = frozenset({ErrorCode.LEADER_NOT_AVAILABLE.value, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value})
RETRIES, RETRY_S = 20, 0.05  # number of attempts, and the pause between them, while a topic is being created
_without_key = count()


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The result of writing a record. `offset` is None if the record was refused with `error`, or if acks is 0."""

    partition: int
    offset: int | None
    error: KafkaError | None = None


async def partition_count(ask: Ask, topic: str, *, may_create: bool) -> int:
    """Returns a topic's number of partitions. As for a producer, creates the topic if auto.create.topics.enable is set.
    Raises KafkaError if the topic does not exist or the client is not allowed to use it.

    may_create  the setting auto.create.topics.enable; if it is true, a new topic may take a few milliseconds to appear
    """
    named = [MetadataRequestTopic(name=topic)]
    for attempt in range(RETRIES):
        request = MetadataRequest(topics=named, allow_auto_topic_creation=True)
        (found,) = (await ask(request, MetadataResponse)).topics
        if found.error_code == ErrorCode.NONE.value:
            return len(found.partitions)
        if found.error_code not in NOT_YET or not may_create or attempt == RETRIES - 1:
            break
        await asyncio.sleep(RETRY_S)
    raise KafkaError(ErrorCode(found.error_code))


def chosen_partitions_of(records: Sequence[SentRecord], keys: Sequence[bytes | None], partitions: int) -> list[int]:
    """Returns a partition for each record: the partition that the record names, or else the partition that Kafka's
    producers compute from the key.

    Records with neither a partition nor a key are distributed round robin.
    """
    found = []
    for record, key in zip(records, keys, strict=True):
        if record.partition is not None:
            found.append(record.partition)
        else:
            found.append(next(_without_key) % partitions if key is None else partition_for_key(key, partitions))
    return found


def produce_request(
    topic: str, places: Sequence[int], records: Sequence[NewRecord], acks: int = ALL
) -> tuple[ProduceRequest, dict[int, list[int]]]:
    """Returns a request with one batch for each partition, and the indexes of the records in each batch, by
    partition."""
    by_partition: dict[int, list[int]] = {}
    for number, partition in enumerate(places):
        by_partition.setdefault(partition, []).append(number)
    data = [
        PartitionProduceData(index=partition, records=build_batch([records[number] for number in numbers]))
        for partition, numbers in by_partition.items()
    ]
    request = ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return request, by_partition


def produce_unanswered(
    client: InProcessClient, topic: str, places: Sequence[int], records: Sequence[NewRecord]
) -> None:
    """Writes records with acks=0. The broker does not report whether the records were written."""
    request, _ = produce_request(topic, places, records, acks=0)
    client.begin(request, client.version_of(request, NAMED_TOPICS))


async def produce(
    ask: Ask, topic: str, places: Sequence[int], records: Sequence[NewRecord], acks: int = ALL
) -> list[RecordResult]:
    """Writes records, in one batch for each partition. Returns the result for each record, in the same order."""
    request, by_partition = produce_request(topic, places, records, acks)
    answer = await ask(request, ProduceResponse, max_version=NAMED_TOPICS)
    found: dict[int, RecordResult] = {}
    for response in (each for of in answer.responses for each in of.partition_responses):
        error = _error(response)
        for place, number in enumerate(by_partition[response.index]):
            offset = None if error else response.base_offset + place
            found[number] = RecordResult(response.index, offset, error)
    return [found[number] for number in range(len(places))]


def _error(response: PartitionProduceResponse) -> KafkaError | None:
    if response.error_code == ErrorCode.NONE.value:
        return None
    code = ErrorCode(response.error_code)
    return KafkaError(code, response.error_message)
