"""Old releases of franz-go. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states
from tests.old_clients.row import Client, Row, check

FRANZ_GO = Client("github.com/twmb/franz-go", "franz_go.go")

ROWS = (
    Row(
        "twmb/franz-go#1348, 42", FRANZ_GO, "1.21.3", "1.21.4", "readTwo", states.aborted_list_reversed,
        "read aborted", "read a, b",
    ),
    Row(
        "twmb/franz-go#1348, 39", FRANZ_GO, "1.21.3", "1.21.4", "copyOne", states.unknown_end,
        "committed: true", "committed: false",
    ),
    Row(
        "twmb/franz-go#1348, 40", FRANZ_GO, "1.21.3", "1.21.4", "oneTransaction", states.dead_producer,
        "raised producer ID has a fatal, unrecoverable error", "committed", states.dead_producer_is_ended,
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
