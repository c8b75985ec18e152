"""Bugs in old @platformatic/kafka releases."""

from __future__ import annotations

from tests.client_lab import states, states_of_groups
from tests.client_lab.row import Client, Conviction, Row, Sight

PLATFORMATIC = Client("@platformatic/kafka", "platformatic.js", needs=("avsc",))

ROWS = (
    Row(
        "platformatic/kafka#391", PLATFORMATIC, "2.11.0", "2.12.0",
        [Sight(
            "readOne", states.marker_without_records, "crashes: Cannot set properties of undefined", "read committed",
        )],
    ),
    Row(
        "platformatic/kafka#370", PLATFORMATIC, "2.7.0", "2.11.0",
        [Sight(
            "readInALongRebalance", states_of_groups.rebalance_for_long, "read, commits refused",
            "read, no commit refused", traffic=states_of_groups.refused_commits,
        )],
    ),
    Row(
        "platformatic/kafka#315", PLATFORMATIC, "2.2.3", "2.11.0",
        [Conviction("FET.6", "readForAWhile", states.orders)],
    ),
    Row(
        "platformatic/kafka#326", PLATFORMATIC, "2.2.3", "2.4.0",
        [Conviction("IDM.2", "sendConcurrently", states.orders, also=("IDM.3",))],
    ),
    Row(
        "platformatic/kafka#309", PLATFORMATIC, "2.2.3", "2.4.0",
        [Conviction("IDM.6", "sendEight", states.unknown_producer)],
    ),
)  # fmt: skip
