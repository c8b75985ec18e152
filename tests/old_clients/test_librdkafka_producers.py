"""Old releases of librdkafka: producers and transactions. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

LIBRDKAFKA = Client("confluent-kafka", "librdkafka_producers.py")

ROWS = (
    Row(
        "fede1024/rust-rdkafka#349", LIBRDKAFKA, "1.6.0", "1.6.1", "empty_transaction", states.orders,
        "raised KafkaError{FATAL,code=INVALID_TXN_STATE", "committed", python="3.8",
    ),
    Row(
        "confluentinc/librdkafka#3971", LIBRDKAFKA, "1.9.2", "2.0.2", "commit_without_answer", states.lost_commit,
        "raised KafkaError{code=_TIMED_OUT", "committed", python="3.8",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
