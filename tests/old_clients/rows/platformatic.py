"""Old releases of @platformatic/kafka."""

from __future__ import annotations

from tests.old_clients import states, states_of_groups
from tests.old_clients.row import Client, Row

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
