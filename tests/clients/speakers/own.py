"""The speaker for Odradek's own client, `odradek.client.sync`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from odradek.client import ClientError, ConsumerRecord, TopicPartition
from odradek.client.sync import Consumer, Producer
from tests.clients.speakers.speaker import Member, Message, ReceivedRecord, RequestRefused, Speaker, gather


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise RequestRefused(None if error.code is None else error.code.value, str(error)) from error


def _received(record: ConsumerRecord) -> ReceivedRecord:
    return ReceivedRecord(
        record.offset, record.key, record.value, record.headers, record.timestamp_ms, record.partition
    )


class OwnClient(Speaker):
    name = "odradek.client"

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
        producer = Producer(
            bootstrap_servers=bootstrap,
            compression_type=compression,
            acks=acks,
            enable_idempotence=idempotent and acks == "all",
            linger_ms=linger_ms,
            max_request_size=5_000_000,
            retry_backoff_ms=20,
        )
        with _translated(), producer:
            sent = [
                producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    headers=message.headers,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush()
            found = [future.result() for future in sent]
        return [-1 if metadata.offset is None else metadata.offset for metadata in found]

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[ReceivedRecord]:
        topic_partition = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=100) as consumer:
            consumer.assign([topic_partition])
            consumer.seek(topic_partition, start)
            return gather(
                count, lambda: [_received(each) for each in consumer.getmany(timeout_ms=100).get(topic_partition, [])]
            )

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        topic_partition = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=bootstrap) as consumer:
            found = consumer.offsets_for_times({topic_partition: timestamp_ms})[topic_partition]
        return None if found is None else found.offset

    def bounds(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        topic_partition = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=bootstrap) as consumer:
            return consumer.beginning_offsets([topic_partition])[topic_partition], consumer.end_offsets(
                [topic_partition]
            )[topic_partition]

    def join(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance: str | None = None,
        session_timeout_ms: int = 6_000,
    ) -> Member:
        consumer = Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
            retry_backoff_ms=50,
        )
        return _OwnMember(consumer, topic)


class _OwnMember(Member):
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        consumer.start()

    def poll(self, timeout_s: float = 0.1) -> list[ReceivedRecord]:
        with _translated():
            found = self._consumer.getmany(timeout_ms=timeout_s * 1000)
        return [_received(record) for records in found.values() for record in records]

    def assignment(self) -> set[int]:
        return {owned.partition for owned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        topic_partition = TopicPartition(self._topic, partition)
        found = self._consumer.committed([topic_partition])[topic_partition]
        return None if found is None else found.offset

    def close(self) -> None:
        self._consumer.close()
