"""The speaker for librdkafka, through confluent-kafka."""

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka

from tests.clients.speakers.speaker import (
    PATIENCE_S,
    Member,
    Message,
    ReceivedRecord,
    RequestRefused,
    Speaker,
    TooSlow,
    gather,
)


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
        refusals: list[RequestRefused] = []

        def note(place: int, error: Any, delivered: Any) -> None:
            if error is not None:
                refusals.append(RequestRefused(error.code(), error.str()))
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
            "log_level": 0,  # suppresses log lines about refused connections when a test stops its broker
        }
        return confluent_kafka.Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[ReceivedRecord]:
        consumer = self._consumer(bootstrap)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
        found = gather(count, lambda: _confluent_poll(consumer, 0.1))
        consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer(bootstrap)
        topic_partition = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
        (found,) = consumer.offsets_for_times([topic_partition], PATIENCE_S)
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


def _confluent_poll(consumer: Any, timeout_s: float) -> list[ReceivedRecord]:
    found = []
    for message in consumer.consume(500, timeout_s):
        if message.error() is not None:
            error = message.error()
            if error.fatal() or not error.retriable():
                raise RequestRefused(error.code(), error.str())
            continue
        headers = tuple(message.headers() or ())
        at = message.timestamp()[1]
        found.append(ReceivedRecord(message.offset(), message.key(), message.value(), headers, at, message.partition()))
    return found


class _ConfluentMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic

    def poll(self, timeout_s: float = 0.1) -> list[ReceivedRecord]:
        return _confluent_poll(self._consumer, timeout_s)

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def committed(self, partition: int) -> int | None:
        topic_partition = confluent_kafka.TopicPartition(self._topic, partition)
        (found,) = self._consumer.committed([topic_partition], PATIENCE_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        self._consumer.close()
