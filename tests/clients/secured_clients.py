"""Functions that produce and read back a record with each client library, with any security protocol and SASL
mechanism."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider

from odradek import client as own
from odradek.client.security.settings import SecuritySettings

PATIENCE_S = 60.0
LIFETIME_S = 3600


@dataclass(frozen=True, slots=True)
class Access:
    """Everything that a client needs to use a listener.

    mechanism  SASL mechanism, or None without SASL
    ca_file    CA certificates in PEM format, or None without TLS
    """

    bootstrap: str
    mechanism: str | None = None
    ca_file: str | None = None
    user: str = "alice"
    password: str = "pw"

    @property
    def protocol(self) -> str:
        if self.mechanism is not None:
            return "SASL_SSL" if self.ca_file is not None else "SASL_PLAINTEXT"
        return "SSL" if self.ca_file is not None else "PLAINTEXT"

    def token(self) -> str:
        """Returns an unsigned token, which the broker's unsecured validator accepts."""
        now = time.time()
        claims = {"sub": self.user, "iat": now - 1, "exp": now + LIFETIME_S}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


RoundTrip = Callable[[Access, str, bytes], bytes]
"""A function that produces a value to partition 0 of a topic and returns the value at the record's offset."""


def with_confluent(access: Access, topic: str, value: bytes) -> bytes:
    delivered: list[Any] = []
    errors: list[Any] = []
    settings = confluent_settings(access) | {"error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: delivered.append((error, message)))
    producer.flush(PATIENCE_S)
    [(error, message)] = delivered
    assert error is None, (error, errors)
    consumer = confluent_kafka.Consumer(settings | {"group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, message.offset())])
    found = consumer.poll(PATIENCE_S)
    consumer.close()
    assert found is not None, errors
    return found.value() or b""


def confluent_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.ca_file is not None:
        settings["ssl.ca.location"] = access.ca_file
    if access.mechanism == "OAUTHBEARER":
        settings |= {
            "sasl.mechanism": access.mechanism,
            "oauth_cb": lambda _config: (access.token(), time.time() + LIFETIME_S),
        }
    elif access.mechanism is not None:
        settings |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.user,
            "sasl.password": access.password,
        }
    return settings | {"log_level": 0}


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, access: Access) -> None:
        self._access = access

    def token(self) -> str:
        return self._access.token()


def with_kafka_python(access: Access, topic: str, value: bytes) -> bytes:
    settings = kafka_python_settings(access)
    producer = kafka.KafkaProducer(**settings)
    try:
        offset = producer.send(topic, value, partition=0).get(PATIENCE_S).offset
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**settings)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        read: bytes = next(consumer).value
        return read
    finally:
        consumer.close()


def kafka_python_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.ca_file is not None:
        settings["ssl_cafile"] = access.ca_file
    if access.mechanism is not None:
        settings["sasl_mechanism"] = access.mechanism
        if access.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _Token(access)
        else:
            settings |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return settings


class _AsyncToken(AsyncTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, access: Access) -> None:
        self._access = access

    async def token(self) -> str:
        return self._access.token()


def with_aiokafka(access: Access, topic: str, value: bytes) -> bytes:
    async def work() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**aiokafka_settings(access))
        await producer.start()
        try:
            offset = (await producer.send_and_wait(topic, value, partition=0)).offset
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**aiokafka_settings(access))
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, offset)
            read: bytes = (await consumer.getone()).value
            return read
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def aiokafka_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.ca_file is not None:
        settings["ssl_context"] = create_ssl_context(cafile=access.ca_file)
    if access.mechanism is not None:
        settings["sasl_mechanism"] = access.mechanism
        if access.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _AsyncToken(access)
        else:
            settings |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return settings


def with_own(access: Access, topic: str, value: bytes) -> bytes:
    async def work() -> bytes:
        settings = own_settings(access)
        async with own.Producer(bootstrap_servers=access.bootstrap, **settings) as producer:
            sent = await (await producer.send(topic, value, partition=0))
        async with own.Consumer(bootstrap_servers=access.bootstrap, **settings) as consumer:
            partition = own.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, sent.offset or 0)
            return (await consumer.getone()).value or b""

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def own_settings(access: Access) -> SecuritySettings:
    settings: SecuritySettings = {"security_protocol": access.protocol}
    if access.ca_file is not None:
        settings["ssl_cafile"] = access.ca_file
    if access.mechanism is not None:
        settings["sasl_mechanism"] = access.mechanism
        if access.mechanism == "OAUTHBEARER":
            settings["sasl_token"] = access.token
        else:
            settings["sasl_username"], settings["sasl_password"] = access.user, access.password
    return settings


CLIENTS: dict[str, RoundTrip] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "odradek.client": with_own,
}


def _encoded(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
