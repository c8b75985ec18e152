"""Old releases of KafkaJS. `make old-clients`"""

from __future__ import annotations

from collections.abc import Mapping

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
    Row(
        "tulios/kafkajs#1256", KAFKAJS, "1.15.0", "1.16.0", "readOne", states.aborted_records_first,
        "read nothing", "read a",
    ),
    Row(
        "tulios/kafkajs#1532", KAFKAJS, "2.2.3", "2.2.4", "sendLong", states.throttled_by_a_millisecond,
        "sends no more", "sent",
    ),
    Row(
        "tulios/kafkajs#1402, #1408", KAFKAJS, "2.0.1", "2.1.0", "readUntilCrash", states.orders,
        "hangs", "crashed", states.only_node_stops,
    ),
)  # fmt: skip

NOT_SHOWN: Mapping[str, str] = {
    "tulios/kafkajs#335, #267": (
        "1.4.6, the release of the thread, restarts and reads on after NOT_LEADER_OR_FOLLOWER, after metadata that "
        "tells of no leader for some seconds, and after a node that was gone for 6 s; 1.5.0 does the same."
    ),
    "tulios/kafkajs#299": "It was mended in a beta of 1.5.0, the first release with transactions.",
    "tulios/kafkajs#1310": (
        "Its counters begin at 0 and no answer of a broker sets them: it takes 2³¹ records, or requests, of one "
        "producer."
    ),
    "tulios/kafkajs#1616": "The issue is open: no release mends it.",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_the_old_release_fails_and_the_mended_one_passes(row: Row, odradek: Odradek) -> None:
    check(row, odradek)
