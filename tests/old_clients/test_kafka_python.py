"""Old releases of kafka-python. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

KAFKA_PYTHON = Client("kafka-python", "kafka_python_.py")

ROWS = (
    Row(
        "dpkp/kafka-python#2499", KAFKA_PYTHON, "2.0.5", "2.0.6", "read_all", states.committed_transaction,
        "read b'a', b'\\x00\\x00", "read b'a', b'b'",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
