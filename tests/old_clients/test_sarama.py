"""Old releases of Sarama. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

SARAMA = Client("github.com/IBM/sarama", "sarama.go")

ROWS = (
    Row(
        "IBM/sarama#2939", SARAMA, "1.43.2", "1.43.3", "send", states.storage_error,
        "raised kafka server: Disk error", "sent",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
