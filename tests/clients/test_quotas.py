"""Tests that throttled librdkafka clients get the throttle time, lose no record, and do not fail. Also tests that
connections from one address are limited."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.cimpl import TopicPartition

from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.records import NewRecord, build_batch
from tests.clients.conftest import StartBroker
from tests.support.requests import produce_request
from tests.support.wire import ClosedByBroker, Wire

pytestmark = pytest.mark.slow  # runs in `make test-slow`

LIMIT = 40_000  # bytes per second; the quota for ten seconds is available at the start
RECORD_BYTES = 30_000
RECORDS = 14
PATIENCE_S = 60


@contextmanager
def quota(bootstrap: str, entity_type: str, name: str, key: str, limit: float) -> Iterator[None]:
    def alter(**op: Any) -> None:
        entity = [EntityData(entity_type=entity_type, entity_name=name)]
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[OpData(key=key, **op)])])
        with Wire(bootstrap) as wire:
            (result,) = wire.ask(request, 1, AlterClientQuotasResponse).entries
        assert result.error_code == 0, result.error_message

    alter(value=limit)
    yield
    alter(remove=True)


def test_throttled_clients_deliver_all_records_and_get_the_throttle_time(bootstrap: str, topic: str) -> None:
    events: list[Any] = []
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "throttled", "throttle_cb": events.append}
    values = [bytes([number]) * RECORD_BYTES for number in range(RECORDS)]
    refused: list[Any] = []
    with quota(bootstrap, "client-id", "throttled", "producer_byte_rate", LIMIT):
        producer = Producer({**settings, "linger.ms": 0, "batch.size": RECORD_BYTES})
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
    assert not refused
    assert max(event.throttle_time for event in events) > 0
    events.clear()
    with quota(bootstrap, "client-id", "throttled", "consumer_byte_rate", LIMIT):
        consumer = Consumer({**settings, "group.id": "throttled"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < RECORDS:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert not message.error()
            found.append(message.value())
        consumer.close()
    assert found == values
    assert max(event.throttle_time for event in events) > 0


def test_connections_of_one_client_share_its_quota(bootstrap: str, topic: str) -> None:
    """The broker adds up the usage of all of a client's connections, so ten connections are no faster than one."""
    batch = build_batch([NewRecord(None, bytes(LIMIT * 2), time.time_ns() // 1_000_000)])
    request = produce_request(topic, bytes(batch), acks=1)
    throttled_ms: list[int] = []
    with quota(bootstrap, "client-id", "many", "producer_byte_rate", LIMIT), ExitStack() as wires:
        for _ in range(10):
            wire = wires.enter_context(Wire(bootstrap, client_id="many"))
            throttled_ms.append(wire.ask(request, 9, ProduceResponse).throttle_time_ms)
    assert throttled_ms == sorted(throttled_ms)
    assert throttled_ms[-1] >= 5 * max(throttled_ms[0], 500)


def test_an_address_that_connects_too_often_is_closed_without_a_byte(start_broker: StartBroker) -> None:
    """The test needs its own broker, because other tests connect to the shared one."""
    bootstrap = start_broker({}).bootstrap
    with Wire(bootstrap) as first:
        entity = [EntityData(entity_type="ip", entity_name="localhost")]
        op = OpData(key="connection_creation_rate", value=1)
        request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])])
        assert first.ask(request, 1, AlterClientQuotasResponse).entries[0].error_code == 0
        outcomes = []
        for _ in range(30):
            try:
                with Wire(bootstrap) as wire:
                    wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                    outcomes.append("served")
            except (ClosedByBroker, ConnectionResetError):
                outcomes.append("closed")
                break
        assert outcomes[0] == "served"
        assert outcomes[-1] == "closed"
        first.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)  # Open connections remain usable.


@pytest.mark.parametrize("setting", ["max.connections.per.ip", "max.connections.per.ip.overrides"])
def test_too_many_connections_of_an_address_are_closed(start_broker: StartBroker, setting: str) -> None:
    broker = start_broker({setting: "2" if setting.endswith("ip") else "127.0.0.1:2"})
    with Wire(broker.bootstrap) as first, Wire(broker.bootstrap) as second:
        for wire in (first, second):
            wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        with pytest.raises((ClosedByBroker, ConnectionResetError)), Wire(broker.bootstrap) as third:
            third.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        first.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
