"""Old releases of KafkaJS. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

KAFKAJS = Client("kafkajs", "kafkajs.js")

ROWS = (
    Row(
        "tulios/kafkajs#1388", KAFKAJS, "2.0.2", "2.1.0", "emptyTransaction", states.orders,
        "raised The producer attempted a transactional operation in an invalid state", "committed",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
