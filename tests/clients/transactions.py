"""Transactional producers from four client libraries behind one interface, and readers at both isolation levels."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from kafka.structs import OffsetAndMetadata

import odradek.client
from tests.clients.speakers import PATIENCE_S, RequestRefused, TooSlow
from tests.clients.speakers.aio import LoopThread

Place = tuple[str, int]  # topic and partition
LOOP = LoopThread()
FENCED_CODES = frozenset(  # librdkafka has its own code for a fatal error.
    {
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
    }
)


class TransactionFenced(RequestRefused):
    """Raised when another producer has taken over the transactional id, or the broker has ended the transaction."""


class Transactional(ABC):
    """A transactional producer. Raises `RequestRefused`, or its subclass `TransactionFenced`, for every refusal."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Adds a record to the producer's buffer. `flush` waits for its acknowledgement."""

    @abstractmethod
    def flush(self) -> None:
        """Waits until the broker has acknowledged all records."""

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


Open = Callable[..., Transactional]


class ConfluentTransactions(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        with _confluent():
            self._producer.init_transactions(PATIENCE_S)

    def begin(self) -> None:
        with _confluent():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _confluent():
            self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        if self._producer.flush(PATIENCE_S):
            raise TooSlow("records to be acknowledged")

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        group_offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        # Only a consumer has group metadata. This consumer has no broker, because closing a consumer that is looking
        # for its coordinator may hang.
        consumer = confluent_kafka.Consumer({"group.id": group, "log_level": 0})
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        with _confluent():
            self._producer.send_offsets_to_transaction(group_offsets, metadata, PATIENCE_S)

    def commit(self) -> None:
        with _confluent():
            self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        with _confluent():
            self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        self._producer.purge()


class PythonTransactions(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        with _python():
            self._producer.init_transactions()

    def begin(self) -> None:
        with _python():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _python():
            self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        with _python():
            self._producer.flush(PATIENCE_S)

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        group_offsets = {
            kafka.TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        with _python():
            self._producer.send_offsets_to_transaction(group_offsets, group)

    def commit(self) -> None:
        with _python():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _python():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(1)


class AioTransactions(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                retry_backoff_ms=20,
            )
            await producer.start()
            return producer

        with _aio():
            self._producer = LOOP.run(start())

    def begin(self) -> None:
        with _aio():
            LOOP.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _aio():
            LOOP.run(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        with _aio():
            LOOP.run(self._producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        group_offsets = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        with _aio():
            LOOP.run(self._producer.send_offsets_to_transaction(group_offsets, group))

    def commit(self) -> None:
        with _aio():
            LOOP.run(self._producer.commit_transaction())

    def abort(self) -> None:
        with _aio():
            LOOP.run(self._producer.abort_transaction())

    def close(self) -> None:
        with _aio():
            LOOP.run(self._producer.stop())


class OdradekTransactions(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        async def start() -> odradek.client.Producer:
            producer = odradek.client.Producer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                retry_backoff_ms=20,
            )
            await producer.start()
            await producer.init_transactions()
            return producer

        with _odradek():
            self._producer = LOOP.run(start())

    def begin(self) -> None:
        with _odradek():
            LOOP.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with _odradek():
            LOOP.run(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        with _odradek():
            LOOP.run(self._producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        group_offsets = {odradek.client.TopicPartition(*place): offset for place, offset in offsets.items()}
        with _odradek():
            LOOP.run(self._producer.send_offsets_to_transaction(group_offsets, group))

    def commit(self) -> None:
        with _odradek():
            LOOP.run(self._producer.commit_transaction())

    def abort(self) -> None:
        with _odradek():
            LOOP.run(self._producer.abort_transaction())

    def close(self) -> None:
        LOOP.run(self._producer.close())


@contextmanager
def _confluent() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as error:
        refusal = error.args[0]
        kind = TransactionFenced if refusal.code() in FENCED_CODES else RequestRefused
        raise kind(refusal.code(), refusal.str()) from error


@contextmanager
def _python() -> Iterator[None]:
    try:
        yield
    except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
        raise TransactionFenced(error.errno, repr(error)) from error
    except kafka.errors.KafkaError as error:
        raise RequestRefused(getattr(error, "errno", None), repr(error)) from error


@contextmanager
def _aio() -> Iterator[None]:
    try:
        yield
    except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
        raise TransactionFenced(getattr(error, "errno", None), repr(error)) from error
    except aiokafka.errors.KafkaError as error:
        raise RequestRefused(getattr(error, "errno", None), repr(error)) from error


@contextmanager
def _odradek() -> Iterator[None]:
    try:
        yield
    except odradek.client.ClientError as error:
        kind = TransactionFenced if isinstance(error, odradek.client.ProducerFenced) else RequestRefused
        raise kind(None if error.code is None else error.code.value, str(error)) from error


# --- Readers. Each one reads from the start of the log to the end offset of its isolation level.

ISOLATION = {True: "read_committed", False: "read_uncommitted"}


def confluent_values(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": ISOLATION[committed],
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            consumer.close()
            return values
        else:
            raise RequestRefused(error.code(), error.str())
    raise TooSlow("the end of the partition")


def python_values(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        isolation_level=ISOLATION[committed],
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    end = consumer.end_offsets([place])[place]
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(place) < end:
        for records in consumer.poll(timeout_ms=200).values():
            values += [record.value for record in records]
        if time.monotonic() > deadline:
            raise TooSlow(f"offset {end}; is at {consumer.position(place)}")
    consumer.close()
    return values


def aio_values(bootstrap: str, topic: str, *, committed: bool) -> list[bytes]:
    async def work() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            isolation_level=ISOLATION[committed],
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        place = aiokafka.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        end = (await consumer.end_offsets([place]))[place]
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values += [record.value for record in records]
            if time.monotonic() > deadline:
                raise TooSlow(f"offset {end}")
        await consumer.stop()
        return values

    return LOOP.run(work())


PRODUCERS: Mapping[str, Open] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": PythonTransactions,
    "aiokafka": AioTransactions,
    "odradek": OdradekTransactions,
}
READERS: Mapping[str, Callable[..., list[bytes]]] = {
    "confluent-kafka": confluent_values,
    "kafka-python": python_values,
    "aiokafka": aio_values,
}
