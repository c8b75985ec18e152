"""The speaker for kafka-python."""

from collections.abc import Sequence
from typing import Any

import kafka
import kafka.errors
from kafka.partitioner.default import DefaultPartitioner

from tests.clients.speakers.speaker import (
    PATIENCE_S,
    Member,
    Message,
    ReceivedRecord,
    Speaker,
    gather,
    received,
    translated,
)


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
            with translated(kafka.errors.KafkaError):
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

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[ReceivedRecord]:
        consumer = self._consumer(bootstrap)
        topic_partition = kafka.TopicPartition(topic, partition)
        consumer.assign([topic_partition])
        consumer.seek(topic_partition, start)
        found = gather(count, lambda: _python_poll(consumer, 0.1))
        consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self._consumer(bootstrap)
        topic_partition = kafka.TopicPartition(topic, partition)
        found = consumer.offsets_for_times({topic_partition: timestamp_ms})[topic_partition]
        consumer.close()
        return None if found is None else found.offset

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer(bootstrap)
        topic_partition = kafka.TopicPartition(topic, partition)
        found = (
            consumer.beginning_offsets([topic_partition])[topic_partition],
            consumer.end_offsets([topic_partition])[topic_partition],
        )
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


def _python_poll(consumer: Any, timeout_s: float) -> list[ReceivedRecord]:
    with translated(kafka.errors.KafkaError):
        batches = consumer.poll(timeout_ms=int(timeout_s * 1000))
    return [received(record) for records in batches.values() for record in records]


# If a poll of kafka-python 3.0.12 ends just as the response to SyncGroup arrives, the client loses the assignment
# permanently.
MIN_PYTHON_POLL_S = 1.0


class _PythonMember(Member):
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic

    def poll(self, timeout_s: float = 0.1) -> list[ReceivedRecord]:
        return _python_poll(self._consumer, max(timeout_s, MIN_PYTHON_POLL_S))

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        found: int | None = self._consumer.committed(kafka.TopicPartition(self._topic, partition))
        return found

    def close(self) -> None:
        self._consumer.close()
