"""Tests that no rule holds a marker again after its release, unless the marker's topic is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek.broker.control.faults.faults import Faults
from odradek.broker.control.faults.faulty_markers import FaultyMarkers
from odradek.broker.coordinators.transaction_markers import OnWritten, TxnMarker
from odradek.broker.runtime.controlled_time import ControlledTime
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

PLACE: TopicPartition = ("orders", 0)
# The tests also use this marker for the next transaction, which has the same epoch at transaction.version 1.
MARKER = TxnMarker(7, 0, True, 0, 1, [PLACE])


class RefusingWriter:
    """Refuses every marker, like a leader that has shut down."""

    def __init__(self) -> None:
        self.marker_count = 0

    def write(self, markers: Sequence[TxnMarker], then: OnWritten) -> None:
        self.marker_count += len(markers)
        then([dict.fromkeys(each.partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER) for each in markers])

    def topic_deleted(self, topic: str) -> None:
        """Does nothing, because this writer holds no markers."""


def test_a_topic_that_is_created_again_is_another_one() -> None:
    loop = asyncio.new_event_loop()
    faults = Faults(ControlledTime(loop), loop.time)
    faults.add({"at": "marker", "match": {"topic": "orders"}, "do": {"hold": "marker"}})
    writer = RefusingWriter()
    markers = FaultyMarkers(writer, faults.rules)
    outcomes: list[object] = []
    markers.write([MARKER], outcomes.append)
    assert (writer.marker_count, faults.rules.holds.counts()) == (0, {"marker": 1})
    faults.rules.release("marker")
    markers.write([MARKER], outcomes.append)  # the rule does not hold the retry
    assert (writer.marker_count, faults.rules.holds.counts()) == (2, {})
    markers.topic_deleted("orders")
    markers.write([MARKER], outcomes.append)
    assert (writer.marker_count, faults.rules.holds.counts()) == (2, {"marker": 1})
    loop.close()
