"""The client used by presets. It sends Kafka requests like any other client, but fault rules do not act on its
requests.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.control.problems import Problem
from odradek.broker.in_process.client import InProcessClient
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from odradek.protocol.struct import Message, Struct

if TYPE_CHECKING:
    from odradek.broker.control.clusters.clusters import Cluster
    from odradek.storage.log import Log

M = TypeVar("M", bound=Message)
NONE = ErrorCode.NONE.value
POLL_INTERVAL_S = 0.002
MAX_ATTEMPTS = 2_500
ANSWER_TIMEOUT_S = 5
PASSING = frozenset(
    code.value
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
)
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
GROUP_CONFIGS = 32  # the type of a group in ConfigResource.Type
MAX_TIMEOUT_MS = 900_000  # the default of transaction.max.timeout.ms


@dataclass(slots=True)
class ProducerPair:
    """A producer's id and epoch, with its sequence numbers.

    next_sequences  the next sequence number, by topic and partition
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    next_sequences: dict[tuple[str, int], int]

    def facts(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }


class PresetClient:
    """A client of one cluster. Its methods raise Problem (409, with the error's name) if the broker refuses a
    request."""

    def __init__(self, cluster: Cluster, principal: str | None = None) -> None:
        """Creates a client.

        principal  the user who is logged in; None if the client is not logged in
        """
        self.cluster = cluster
        self.broker = cluster.running.broker
        self._client = InProcessClient(cluster.running.dispatcher, "127.0.0.1", 0, principal)
        cluster.preset_clients.append(self._client)  # keeps the client's sessions open until the broker stops

    async def ask(self, request: Message, response_class: type[M], *, max_version: int | None = None) -> M:
        """Sends a request and returns its response. Retries the request while it fails with an error in PASSING."""
        for _ in range(MAX_ATTEMPTS):
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answer = await self._client.ask(request, response_class, max_version=max_version)
            except TimeoutError:
                name = type(request).__name__.removesuffix("Request")
                raise Problem(
                    409, f"{name} was not answered within {ANSWER_TIMEOUT_S} s, because it waits for other clients"
                ) from None
            except KafkaError as error:  # an emulated older release may not have the API or this version
                raise Problem(409, str(error)) from error
            found = set(codes(answer)) - {NONE}
            if not found:
                return answer
            if not found <= PASSING:
                break
            await self.pause()
        names = ", ".join(sorted(ErrorCode(code).name for code in found))
        raise Problem(409, f"{type(request).__name__.removesuffix('Request')} was refused: {names}")

    def logged_in(self, principal: str) -> PresetClient:
        return PresetClient(self.cluster, principal)

    def leave_waiting(self, request: Message, version: int) -> None:
        """Sends a request without waiting for its response. The response is ignored."""
        self._client.begin(request, version)

    async def pause(self) -> None:
        await asyncio.sleep(POLL_INTERVAL_S)

    def log(self, topic: str, partition: int) -> Log:
        return self.broker.partitions.get(topic, partition).log

    def topic_id(self, topic: str) -> bytes:
        return self.broker.metadata.image.topics[topic].topic_id

    async def topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic unless it exists. Raises Problem if the topic exists with fewer partitions."""
        existing = self.broker.metadata.image.topics.get(name)
        if existing is not None and len(existing.partitions) < partitions:
            raise Problem(409, f"topic {name} has fewer than {partitions} partitions", field="topic")
        if existing is None:
            creation = CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            )
            await self.ask(CreateTopicsRequest(topics=[creation]), CreateTopicsResponse)

    async def coordinator(self, key_type: int, key: str) -> None:
        """Looks up the coordinator for a key, so that the coordinator's internal topic is created if needed."""
        await self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), FindCoordinatorResponse)

    async def producer(
        self, transactional_id: str | None, timeout_ms: int = MAX_TIMEOUT_MS, *, two_phase: bool = False
    ) -> ProducerPair:
        if transactional_id is not None:
            await self.coordinator(TRANSACTION, transactional_id)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, enable2_pc=two_phase
        )
        answer = await self.ask(request, InitProducerIdResponse)
        return ProducerPair(transactional_id, answer.producer_id, answer.producer_epoch, {})

    async def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        producer: ProducerPair | None = None,
        key: bytes | None = None,
    ) -> int:
        """Writes a batch, in a transaction if the producer is transactional. Returns the base offset of the batch."""
        now_ms = self.cluster.time.now_ms()
        place = (topic, partition)
        own = producer or ProducerPair(None, -1, -1, {place: -1})
        sequence = own.next_sequences.get(place, 0)
        batch = build_batch(
            [NewRecord(key, value, now_ms) for value in values],
            producer_id=own.producer_id,
            producer_epoch=own.producer_epoch,
            base_sequence=sequence,
            is_transactional=own.transactional_id is not None,
        )
        if own.transactional_id is not None and not self._adds_by_produce:
            await self.add_partition(own, topic, partition)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=own.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = await self.ask(request, ProduceResponse, max_version=12 if self._adds_by_produce else 11)
        own.next_sequences[place] = sequence + len(values)
        return answer.responses[0].partition_responses[0].base_offset

    async def add_partition(self, producer: ProducerPair, topic: str, partition: int) -> None:
        """Adds a partition to the transaction, even if no records follow. Clients without KIP-890 do the same."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id or "",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        await self.ask(request, AddPartitionsToTxnResponse, max_version=3)

    async def end(self, producer: ProducerPair, *, committed: bool) -> None:
        """Ends the transaction. If the response contains a producer id and epoch, the producer continues with them."""
        request = EndTxnRequest(
            transactional_id=producer.transactional_id or "",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        version = 5 if self._adds_by_produce else 4
        answer = await self.ask(request, EndTxnResponse, max_version=version)
        if answer.producer_id >= 0:
            if answer.producer_id != producer.producer_id or answer.producer_epoch != producer.producer_epoch:
                producer.next_sequences.clear()
            producer.producer_id, producer.producer_epoch = answer.producer_id, answer.producer_epoch

    async def delete_records(self, topic: str, partition: int, offset: int) -> None:
        place = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[place])], timeout_ms=30_000)
        await self.ask(request, DeleteRecordsResponse)

    async def group_config(self, group: str, name: str, value: str) -> None:
        resource = AlterConfigsResource(
            resource_type=GROUP_CONFIGS, resource_name=group, configs=[AlterableConfig(name=name, value=value)]
        )
        await self.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)

    def offsets(self, topic: str, partition: int) -> dict[str, object]:
        log = self.log(topic, partition)
        return {
            "topic": topic,
            "partition": partition,
            "log_start_offset": log.log_start_offset,
            "last_stable_offset": log.last_stable_offset,
            "log_end_offset": log.log_end_offset,
        }

    @property
    def _adds_by_produce(self) -> bool:
        """True if transactions follow KIP-890, so that a Produce request adds its partitions to the transaction."""
        return self.broker.metadata.image.features.get("transaction.version", 0) >= 2


def codes(answer: object) -> Iterator[int]:
    """Yields all error codes of a response, at any depth."""
    if isinstance(answer, Struct):
        for name in type(answer).__slots__:
            value = getattr(answer, name)
            if name == "error_code":
                yield value
            elif isinstance(value, list | Struct):
                yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes(each)


def classic_metadata(topics: Sequence[str]) -> bytes:
    """Encodes a classic group member's subscription, in version 0. Source: ConsumerProtocolSubscription."""
    named = b"".join(struct.pack(">h", len(each.encode())) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)
