"""The known client bugs, one module per client."""

from __future__ import annotations

from collections.abc import Mapping

from tests.client_lab.row import AccusedRelease, Row
from tests.client_lab.rows import (
    aiokafka,
    franz_go,
    java,
    kafka_python,
    kafkajs,
    librdkafka_consumers,
    librdkafka_producers,
    platformatic,
    sarama,
)

ROWS: tuple[Row, ...] = (
    *librdkafka_consumers.ROWS,
    *librdkafka_producers.ROWS,
    *java.ROWS,
    *franz_go.ROWS,
    *sarama.ROWS,
    *kafkajs.ROWS,
    *platformatic.ROWS,
    *aiokafka.ROWS,
    *kafka_python.ROWS,
)
ACCUSED: tuple[AccusedRelease, ...] = kafka_python.ACCUSED
NOT_SHOWN: Mapping[str, str] = {
    **librdkafka_consumers.NOT_SHOWN,
    **librdkafka_producers.NOT_SHOWN,
    **java.NOT_SHOWN,
    **kafkajs.NOT_SHOWN,
    **aiokafka.NOT_SHOWN,
}
