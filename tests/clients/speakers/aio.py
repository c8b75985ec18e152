"""The speaker for aiokafka. Its methods block, so tests need not be coroutines."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors

from tests.clients.speakers.speaker import (
    PATIENCE_S,
    Member,
    Message,
    ReceivedRecord,
    Speaker,
    TooSlow,
    received,
    translated,
)

T = TypeVar("T")


class LoopThread:
    """A thread that runs the event loop of all aiokafka objects in the suite."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S * 3)


class AioKafka(Speaker):
    name = "aiokafka"

    def __init__(self) -> None:
        self._loop = LoopThread()

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: int | str = "all",
        idempotent: bool = True,
        linger_ms: int = 5,
    ) -> list[int]:
        async def work() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if compression == "none" else compression,
                acks=acks,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                max_request_size=5_000_000,
                retry_backoff_ms=20,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                found = await asyncio.gather(*sent)
            finally:
                await producer.stop()
            return [-1 if metadata is None else metadata.offset for metadata in found]

        with translated(aiokafka.errors.KafkaError):
            return self._loop.run(work())

    async def _consumer(self, bootstrap: str, *topics: str, **more: Any) -> Any:
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
        }
        consumer = aiokafka.AIOKafkaConsumer(*topics, **(settings | more))
        await consumer.start()
        return consumer

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[ReceivedRecord]:
        async def work() -> list[ReceivedRecord]:
            consumer = await self._consumer(bootstrap)
            topic_partition = aiokafka.TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            consumer.seek(topic_partition, start)
            found: list[ReceivedRecord] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=100)
                found += [received(record) for records in batches.values() for record in records]
                if time.monotonic() > deadline:
                    raise TooSlow(f"{count} records; got {len(found)}")
            await consumer.stop()
            return found

        return self._loop.run(work())

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def work() -> int | None:
            consumer = await self._consumer(bootstrap)
            topic_partition = aiokafka.TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({topic_partition: timestamp_ms}))[topic_partition]
            await consumer.stop()
            return None if found is None else found.offset

        return self._loop.run(work())

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        async def work() -> tuple[int, int]:
            consumer = await self._consumer(bootstrap)
            topic_partition = aiokafka.TopicPartition(topic, partition)
            first = await consumer.beginning_offsets([topic_partition])
            end = await consumer.end_offsets([topic_partition])
            await consumer.stop()
            return first[topic_partition], end[topic_partition]

        return self._loop.run(work())

    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member:
        more = {"session_timeout_ms": session_timeout_ms, "group_instance_id": instance, "heartbeat_interval_ms": 200}
        # `start` waits for the first assignment, which may depend on polls of other members, so it runs in the
        # background.
        start = self._consumer(bootstrap, topic, group_id=group, retry_backoff_ms=50, **more)
        return _AioMember(self._loop, start, topic)


class _AioMember(Member):
    def __init__(self, loop: LoopThread, start: Coroutine[Any, Any, Any], topic: str) -> None:
        self._loop, self._topic = loop, topic
        self._consumer = loop.run(start)

    def poll(self, timeout_s: float = 0.1) -> list[ReceivedRecord]:
        with translated(aiokafka.errors.KafkaError):
            batches = self._loop.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [received(record) for records in batches.values() for record in records]

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())

    def committed(self, partition: int) -> int | None:
        found: int | None = self._loop.run(self._consumer.committed(aiokafka.TopicPartition(self._topic, partition)))
        return found

    def close(self) -> None:
        self._loop.run(self._consumer.stop())
