"""Creates the topic `_schemas`, writes to it, and follows its records.

The registry is a client of its own broker. Other registries may have written to the topic before or may be writing to
it now, so all records are replayed in offset order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.runtime.starting import CannotStart
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, batches, build_batch, records_of
from odradek.registry.records import TOPIC, RegistryRecord, decode, encode

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.in_process.client import InProcessClient

log = logging.getLogger("odradek.registry")

WITH_TOPIC_NAMES: Final = 12  # the last versions of Produce and Fetch that identify topics by name
TIMEOUT_MS: Final = 30_000
MAX_WAIT_MS: Final = 30_000
FETCH_BYTES: Final = 1 << 20
RETRY_S: Final = 1.0


class SchemaTopic:
    """Writes and replays the `_schemas` topic's records.

    next_offset  all records below this offset have been replayed
    """

    def __init__(self, broker: Broker, client: InProcessClient, replay: Callable[[RegistryRecord], None]) -> None:
        self.next_offset = 0
        self._broker = broker
        self._client = client
        self._replay = replay

    async def open(self) -> None:
        """Creates the topic if it does not exist and replays its records. Raises CannotStart."""
        partitions = self._broker.metadata.image.topics.get(TOPIC)
        if partitions is None:
            await self._create()
        elif len(partitions.partitions) != 1:
            raise CannotStart(
                f"{TOPIC} has {len(partitions.partitions)} partitions, but the schema registry needs exactly one"
            )
        end = self._broker.partitions.get(TOPIC, 0).log.log_end_offset
        try:
            while self.next_offset < end:
                self._replay_all(await self._fetch(max_wait_ms=0))
        except (KafkaError, MalformedMessage) as error:
            raise CannotStart(
                f"the schema registry cannot read {TOPIC} at offset {self.next_offset}: {error}"
            ) from error

    async def follow(self, lock: asyncio.Lock) -> None:
        """Replays records that other registries write, until this coroutine is cancelled. The lock is held while
        records are replayed."""
        while True:
            try:
                found = await self._fetch(max_wait_ms=MAX_WAIT_MS)
                async with lock:
                    self._replay_all(found)
            except (KafkaError, MalformedMessage) as error:
                log.error("the schema registry cannot read %s; trying again: %s", TOPIC, error)
                await asyncio.sleep(RETRY_S)

    async def write(self, records: Sequence[RegistryRecord]) -> None:
        """Writes records as one batch. Returns when the records have been replayed and are as durable as acks=all
        requires. The caller must hold the lock. Raises KafkaError if the records were not written."""
        now_ms = self._broker.clock.now_ms()
        batch = build_batch([NewRecord(*encode(record), now_ms) for record in records])
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        answer = await self._client.ask(request, ProduceResponse, max_version=WITH_TOPIC_NAMES)
        written = answer.responses[0].partition_responses[0]
        if written.error_code != ErrorCode.NONE.value:
            raise KafkaError(ErrorCode(written.error_code), written.error_message)
        end = written.base_offset + len(records)
        if self.next_offset == written.base_offset:
            for record in records:
                self._replay(record)
            self.next_offset = end
        while self.next_offset < end:  # first replay the records that another registry wrote before these
            self._replay_all(await self._fetch(max_wait_ms=0))

    async def _create(self) -> None:
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (created,) = (await self._client.ask(request, CreateTopicsResponse)).topics
        if created.error_code not in (ErrorCode.NONE.value, ErrorCode.TOPIC_ALREADY_EXISTS.value):
            code = ErrorCode(created.error_code)
            raise CannotStart(f"the schema registry cannot create {TOPIC}: {created.error_message or code.name}")

    async def _fetch(self, *, max_wait_ms: int) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=self.next_offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        answer = await self._client.ask(request, FetchResponse, max_version=WITH_TOPIC_NAMES)
        return answer.responses[0].partitions[0]

    def _replay_all(self, found: PartitionData) -> None:
        """Replays the fetched records. Raises KafkaError if the partition could not be read."""
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.value and found.log_start_offset > self.next_offset:
            self.next_offset = found.log_start_offset  # the start of the log has been deleted
            return
        if found.error_code != ErrorCode.NONE.value:
            raise KafkaError(ErrorCode(found.error_code))
        data = found.records or b""
        if isinstance(data, list):
            data = b"".join(data)
        for position, header in batches(data):
            if not header.is_control:
                for record in records_of(data, position):
                    if record.offset >= self.next_offset:
                        self._replay_one(record.offset, record.key, record.value)
            self.next_offset = max(self.next_offset, header.last_offset + 1)

    def _replay_one(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            record = decode(key, value)
        except ValueError as error:
            log.error("the schema registry skips the record at offset %d of %s: %s", offset, TOPIC, error)
            return
        if record is not None:
            self._replay(record)
