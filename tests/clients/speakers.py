"""Three client libraries behind one small interface, so that a behaviour is written once and said in three dialects.

A `Speaker` produces and reads single partitions; a `Member` is one consumer of a group. Refusals by the broker come
out as `Refused` with Kafka's error code.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from kafka.partitioner.default import DefaultPartitioner

T = TypeVar("T")
PATIENCE_S = 20.0
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    partition: int


class Refused(Exception):
    """The broker (or the client in its name) said no; `code` is Kafka's error code, or None for the client's own."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class TooSlow(AssertionError):
    """What a test waits for did not happen within PATIENCE_S."""


def wait_for(what: str, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Call `condition` (it usually polls) until it is true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TooSlow(what)


def _gather(count: int, poll: Callable[[], list[Received]]) -> list[Received]:
    found: list[Received] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        found += poll()
        if time.monotonic() > deadline:
            raise TooSlow(f"{count} records; got {len(found)}")
    return found


class Member(ABC):
    """One consumer in a group. Polls belong to the caller: no polls, no heartbeats' worth of progress."""

    @abstractmethod
    def poll(self, timeout_s: float = 0.1) -> list[Received]: ...

    @abstractmethod
    def assignment(self) -> set[int]:
        """Partitions of the one topic that this member owns now."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def committed(self, partition: int) -> int | None: ...

    @abstractmethod
    def close(self) -> None: ...


class Speaker(ABC):
    name: str

    @abstractmethod
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
        """Send all, wait for all; the offsets in the order of `messages` (-1 each with acks=0)."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Received]:
        """`count` records of one partition from an offset on, without a group."""

    @abstractmethod
    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset whose timestamp is at least this; None behind the newest record."""

    @abstractmethod
    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        """First readable offset, and the end (exclusive)."""

    @abstractmethod
    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member: ...


class ConfluentKafka(Speaker):
    name = "confluent-kafka"

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
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "message.max.bytes": 5_000_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        offsets = [-1] * len(messages)
        refusals: list[Refused] = []

        def note(place: int, error: Any, delivered: Any) -> None:
            if error is not None:
                refusals.append(Refused(error.code(), error.str()))
            elif delivered.offset() is not None:
                offsets[place] = delivered.offset()

        def noting(place: int) -> Callable[[Any, Any], None]:
            return lambda error, delivered: note(place, error, delivered)

        for place, message in enumerate(messages):
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                headers=list(message.headers),
                timestamp=message.timestamp_ms or 0,
                on_delivery=noting(place),
            )
            producer.poll(0)
        left = producer.flush(PATIENCE_S)
        if refusals:
            raise refusals[0]
        if left:
            raise TooSlow(f"{left} messages not delivered")
        return offsets

    def _consumer(self, bootstrap: str, **more: Any) -> Any:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # tests that stop brokers need no lines about refused connections
        }
        return confluent_kafka.Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Received]:
        consumer = self._consumer(bootstrap)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
        found = _gather(count, lambda: _confluent_poll(consumer, 0.1))
        consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer(bootstrap)
        wanted = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
        (found,) = consumer.offsets_for_times([wanted], PATIENCE_S)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer(bootstrap)
        first, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), PATIENCE_S)
        consumer.close()
        return first, end

    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member:
        more: dict[str, Any] = {"group_instance_id": instance} if instance else {}
        more |= {"partition_assignment_strategy": "range,roundrobin", "heartbeat_interval_ms": 200}
        consumer = self._consumer(bootstrap, group_id=group, session_timeout_ms=session_timeout_ms, **more)
        consumer.subscribe([topic])
        return _ConfluentMember(consumer, topic)


def _confluent_poll(consumer: Any, timeout_s: float) -> list[Received]:
    found = []
    for message in consumer.consume(500, timeout_s):
        if message.error() is not None:
            error = message.error()
            if error.fatal() or not error.retriable():
                raise Refused(error.code(), error.str())
            continue
        headers = tuple(message.headers() or ())
        at = message.timestamp()[1]
        found.append(Received(message.offset(), message.key(), message.value(), headers, at, message.partition()))
    return found


class _ConfluentMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        return _confluent_poll(self._consumer, timeout_s)

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def committed(self, partition: int) -> int | None:
        wanted = confluent_kafka.TopicPartition(self._topic, partition)
        (found,) = self._consumer.committed([wanted], PATIENCE_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(Speaker):
    name = "kafka-python"

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
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            max_request_size=5_000_000,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            partitioner=DefaultPartitioner(),
        )
        try:
            with _translated(kafka.errors.KafkaError):
                sent = [
                    producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                return [future.get(PATIENCE_S).offset for future in sent]
        finally:
            producer.close(5)

    def _consumer(self, bootstrap: str, **more: Any) -> Any:
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "reconnect_backoff_max_ms": 200,
        }
        return kafka.KafkaConsumer(**(settings | more))

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Received]:
        consumer = self._consumer(bootstrap)
        wanted = kafka.TopicPartition(topic, partition)
        consumer.assign([wanted])
        consumer.seek(wanted, start)
        found = _gather(count, lambda: _python_poll(consumer, 0.1))
        consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer(bootstrap)
        wanted = kafka.TopicPartition(topic, partition)
        found = consumer.offsets_for_times({wanted: timestamp_ms})[wanted]
        consumer.close()
        return None if found is None else found.offset

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer(bootstrap)
        wanted = kafka.TopicPartition(topic, partition)
        found = consumer.beginning_offsets([wanted])[wanted], consumer.end_offsets([wanted])[wanted]
        consumer.close()
        return found

    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member:
        consumer = self._consumer(
            bootstrap,
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=200,
            retry_backoff_ms=50,
        )
        consumer.subscribe([topic])
        return _PythonMember(consumer, topic)


@contextmanager
def _translated(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise Refused(getattr(error, "errno", None), str(error)) from error


def _python_poll(consumer: Any, timeout_s: float) -> list[Received]:
    with _translated(kafka.errors.KafkaError):
        batches = consumer.poll(timeout_ms=int(timeout_s * 1000))
    return [_received(record) for records in batches.values() for record in records]


def _received(record: Any) -> Received:
    headers = tuple((name, value) for name, value in record.headers)
    return Received(record.offset, record.key, record.value, headers, record.timestamp, record.partition)


# kafka-python 3.0.12: a poll that ends just as the answer to its SyncGroup arrives forgets the assignment for good.
LEAST_PYTHON_POLL_S = 1.0


class _PythonMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        return _python_poll(self._consumer, max(timeout_s, LEAST_PYTHON_POLL_S))

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        found: int | None = self._consumer.committed(kafka.TopicPartition(self._topic, partition))
        return found

    def close(self) -> None:
        self._consumer.close()


class _LoopThread:
    """The event loop on which every aiokafka object of the suite lives."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S * 3)


class AioKafka(Speaker):
    name = "aiokafka"

    def __init__(self) -> None:
        self._loop = _LoopThread()

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

        with _translated(aiokafka.errors.KafkaError):
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

    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Received]:
        async def work() -> list[Received]:
            consumer = await self._consumer(bootstrap)
            wanted = aiokafka.TopicPartition(topic, partition)
            consumer.assign([wanted])
            consumer.seek(wanted, start)
            found: list[Received] = []
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=100)
                found += [_received(record) for records in batches.values() for record in records]
                if time.monotonic() > deadline:
                    raise TooSlow(f"{count} records; got {len(found)}")
            await consumer.stop()
            return found

        return self._loop.run(work())

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def work() -> int | None:
            consumer = await self._consumer(bootstrap)
            wanted = aiokafka.TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({wanted: timestamp_ms}))[wanted]
            await consumer.stop()
            return None if found is None else found.offset

        return self._loop.run(work())

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        async def work() -> tuple[int, int]:
            consumer = await self._consumer(bootstrap)
            wanted = aiokafka.TopicPartition(topic, partition)
            first = await consumer.beginning_offsets([wanted])
            end = await consumer.end_offsets([wanted])
            await consumer.stop()
            return first[wanted], end[wanted]

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
        # Starting waits for the first assignment, which may need other members' polls: so it runs in the background.
        start = self._consumer(bootstrap, topic, group_id=group, retry_backoff_ms=50, **more)
        return _AioMember(self._loop, start, topic)


class _AioMember(Member):
    def __init__(self, loop: _LoopThread, start: Coroutine[Any, Any, Any], topic: str) -> None:
        self._loop, self._topic = loop, topic
        self._consumer = loop.run(start)

    def poll(self, timeout_s: float = 0.1) -> list[Received]:
        with _translated(aiokafka.errors.KafkaError):
            batches = self._loop.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_received(record) for records in batches.values() for record in records]

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())

    def committed(self, partition: int) -> int | None:
        found: int | None = self._loop.run(self._consumer.committed(aiokafka.TopicPartition(self._topic, partition)))
        return found

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


SPEAKERS: dict[str, Speaker] = {speaker.name: speaker for speaker in (ConfluentKafka(), KafkaPython(), AioKafka())}
