"""Old releases of clients, whose applications see their bugs, beside those that mend them.

`make old-clients`; `make old-clients ARGS="-k sarama"` runs those whose name says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients.row import Row, check
from tests.old_clients.rows import (
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
NOT_SHOWN = {
    **librdkafka_consumers.NOT_SHOWN,
    **librdkafka_producers.NOT_SHOWN,
    **java.NOT_SHOWN,
    **kafkajs.NOT_SHOWN,
    **aiokafka.NOT_SHOWN,
}


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
