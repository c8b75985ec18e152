"""Old releases of aiokafka. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

AIOKAFKA = Client("aiokafka", "aiokafka_.py")

ROWS = (
    Row(
        "aio-libs/aiokafka#1134", AIOKAFKA, "0.12.0", "0.13.0", "two_transactions", states.second_batch_held,
        "hangs", "committed", states.coordinator_ends, nodes=3,
    ),
    Row(
        "aio-libs/aiokafka#1115", AIOKAFKA, "0.12.0", "0.13.0", "send", states.storage_error,
        "raised KafkaStorageError", "sent",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
