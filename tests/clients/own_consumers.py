"""Helpers for tests of Odradek's consumer: consumers with short intervals, and functions that write and read values."""

from odradek.client import (
    ConsumerRecord,
)
from odradek.client.sync import Consumer, Producer
from tests.clients.speakers import wait_for

QUICK = {
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 100,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "fetch_max_wait_ms": 100,
}
PATIENCE_S = 60.0


def produce(bootstrap: str, topic: str, *values: bytes, partition: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        futures = [producer.send(topic, value, partition=partition) for value in values]
        producer.flush()
        for future in futures:
            future.result()


def values_of(consumer: Consumer, count: int) -> list[bytes | None]:
    """Polls until `count` records have arrived and returns their values. Fails if they do not arrive in time."""
    found: list[ConsumerRecord] = []

    def are_there() -> bool:
        for records in consumer.getmany(timeout_ms=100).values():
            found.extend(records)
        return len(found) >= count

    wait_for(f"{count} records", are_there)
    return [record.value for record in found]


def member(bootstrap: str, *topics: str, group: str, **more: object) -> Consumer:
    settings = QUICK | more
    return Consumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)  # type: ignore[arg-type]
