"""Old releases of @platformatic/kafka. `make old-clients`"""

from __future__ import annotations

import pytest

from odradek.testing.sync import Odradek
from tests.old_clients import states, states_of_groups
from tests.old_clients.row import Client, Row, check

PLATFORMATIC = Client("@platformatic/kafka", "platformatic.js", needs=("avsc",))

ROWS = (
    Row(
        "platformatic/kafka#391", PLATFORMATIC, "2.11.0", "2.12.0", "readOne", states.marker_without_records,
        "crashes: Cannot set properties of undefined", "read committed",
    ),
    Row(
        "platformatic/kafka#370", PLATFORMATIC, "2.7.0", "2.11.0", "readInALongRebalance",
        states_of_groups.rebalance_for_long, "read, commits refused", "read, no commit refused",
        traffic=states_of_groups.refused_commits,
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
