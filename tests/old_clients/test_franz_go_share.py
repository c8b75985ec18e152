"""Old releases of franz-go: share groups. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Cluster, Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

FRANZ_GO = Client("github.com/twmb/franz-go", "franz_go_share.go")


def two_partitions(kafka: Cluster) -> None:
    states.orders(kafka, 2)
    states.send(kafka, "a")


ROWS = (
    Row(
        "twmb/franz-go#1330", FRANZ_GO, "1.21.2", "1.21.3", "describeOffsets", states.orders,
        "raised INVALID_REQUEST", "described",
    ),
    Row(
        "franz-go before 1.21.5", FRANZ_GO, "1.21.4", "1.21.5", "readPaused", two_partitions,
        "read 1 of 2", "read 2 of 2",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
