"""Tests that ACLs determine which operations a librdkafka client may perform after logging in with PLAIN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import admin as confluent_admin

from odradek.broker.configuration.contradictions import STANDARD_AUTHORIZER
from tests.support.broker_process import Broker, BrokerProcess

SETTINGS = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener.security.protocol.map": "SECURE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SECURE",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
    "offsets.topic.num.partitions": "1",
}
TIMEOUT_S = 60.0
library: Any = confluent_admin


def login(broker: Broker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with BrokerProcess(tmp_path_factory.mktemp("acls") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Any:
    admin = library.AdminClient(login(broker, "admin"))
    for done in admin.create_topics([library.NewTopic("orders", 1, 1)]).values():
        done.result(TIMEOUT_S)
    return admin


def allow(admin: Any, resource: str, name: str, *operations: str) -> None:
    acls = [
        library.AclBinding(
            library.ResourceType[resource],
            name,
            library.ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            library.AclOperation[operation],
            library.AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for done in admin.create_acls(acls).values():
        done.result(TIMEOUT_S)


def produced(broker: Broker) -> int:
    """Produces a record. Returns the error code, or 0 if the record was accepted."""
    errors: list[int] = []
    producer = Producer({**login(broker, "alice"), "message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error.code() if error else 0))
    assert producer.flush(TIMEOUT_S) == 0
    (code,) = errors
    return code


def consumed(broker: Broker) -> bytes | int:
    """Returns the value of the topic's first record, or an error code."""
    consumer = Consumer({**login(broker, "alice"), "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error, value = message.error(), message.value()
        if error is not None:
            return error.code()
        assert value is not None
        return value
    finally:
        consumer.close()


def test_a_client_can_do_only_what_its_acls_allow(broker: Broker, admin: Any) -> None:
    assert produced(broker) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(admin, "TOPIC", "orders", "WRITE")
    assert produced(broker) == 0
    assert consumed(broker) == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(admin, "GROUP", "billing", "READ")
    assert consumed(broker) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(admin, "TOPIC", "orders", "READ")
    assert consumed(broker) == b"v"
    of_alice = library.AdminClient(login(broker, "alice"))
    with pytest.raises(KafkaException) as refused:
        of_alice.create_topics([library.NewTopic("more", 1, 1)])["more"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "Principal = User:alice is Denied operation = CREATE" in broker.log_text()
    assert "alice-secret" not in broker.log_text()
