"""Tests that a marker held by a rule is pending and not retried, and that `release` returns when the marker is in the
log.

Other tests stop, crash, rewind, copy or delete a cluster with a held marker, or change the marker's coordinator, leader
or topic (docs/testing.md, "Holds").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.support.wire import Wire

YEAR_MS = 366 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
STATE = {"transaction.state.log.num.partitions": 1}
OPEN = 2  # end offset of a partition in the preset's open transaction
MARKED = 2  # end offset of a partition with one record and one marker


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster(settings=STATE) as cluster:
        yield cluster


def half_written(kafka: Cluster) -> Any:
    """Commits a transaction whose marker in `orders-1` is held, while its marker in `orders-0` is written."""
    facts = kafka.preset("half-written-markers")
    kafka.wait(hold="marker")
    assert ends(kafka) == [MARKED, 1]
    return facts


def always_held(kafka: Cluster) -> None:
    """Like `half_written`, but with a rule that also holds the markers of later attempts in `orders-1`."""
    kafka.fault({"name": "all", "at": "marker", "match": {"topic": "orders", "partition": 1}, "do": {"hold": "marker"}})
    half_written(kafka)


def ends(kafka: Cluster, topic: str = "orders") -> list[int]:
    """Returns the current end offset of each partition of the topic."""
    rows = [each for each in kafka.partitions() if each["topic"] == topic]
    return [each["log_end_offset"] for each in sorted(rows, key=lambda each: each["partition"])]


def state(kafka: Cluster) -> str:
    (txn,) = kafka.transactions()
    found: str = txn["state"]
    return found


def hits(kafka: Cluster) -> list[int]:
    return [each["hits"] for each in kafka.faults()]


def rule_alone(kafka: Cluster, do: dict[str, Any], **counts: int) -> None:
    """Sets a rule for the markers of both partitions, without a preset."""
    kafka.fault({"name": "both", "at": "marker", "match": {"topic": "orders"}, "do": do, **counts})


def test_release_answers_when_the_marker_is_in_the_log(kafka: Cluster) -> None:
    half_written(kafka)
    assert kafka.release("marker") == 1
    assert ends(kafka) == [MARKED, MARKED]
    assert state(kafka) == "CompleteCommit"


def test_a_marker_is_written_by_its_release_though_the_clock_stands_still(kafka: Cluster) -> None:
    kafka.clock.freeze()
    half_written(kafka)
    kafka.release("marker")
    assert ends(kafka) == [MARKED, MARKED]
    assert state(kafka) == "CompleteCommit"


def test_deleting_the_rule_writes_the_marker_too_though_the_clock_stands_still(kafka: Cluster) -> None:
    kafka.clock.freeze()
    half_written(kafka)
    kafka.clear_faults()
    assert ends(kafka) == [MARKED, MARKED]
    assert state(kafka) == "CompleteCommit"


def test_markers_that_are_held_apart_are_released_apart(kafka: Cluster) -> None:
    kafka.clock.freeze()
    for partition in (0, 1):
        match = {"topic": "orders", "partition": partition}
        kafka.fault({"name": f"m{partition}", "at": "marker", "match": match, "do": {"hold": f"h{partition}"}})
    committed(kafka)
    assert kafka.holds() == {"h0": 1, "h1": 1}
    kafka.release("h1")
    assert ends(kafka) == [1, MARKED]
    assert state(kafka) == "PrepareCommit"
    kafka.release("h0")
    assert ends(kafka) == [MARKED, MARKED]
    assert state(kafka) == "CompleteCommit"


def committed(kafka: Cluster) -> None:
    """Commits a transaction with records in both partitions of `orders` and removes the preset's rule that held a
    marker."""
    facts = kafka.preset("half-written-markers")
    kafka.clear_faults(facts["rule"])


def test_nothing_is_tried_again_while_a_marker_is_held(kafka: Cluster) -> None:
    half_written(kafka)
    kafka.clock.advance(DAY_MS)
    assert hits(kafka) == [1]
    assert ends(kafka) == [MARKED, 1]
    assert kafka.release("marker") == 1
    assert state(kafka) == "CompleteCommit"


def test_a_year_passes_while_a_marker_is_held(kafka: Cluster) -> None:
    half_written(kafka)
    kafka.clock.advance(YEAR_MS)
    kafka.release("marker")
    assert ends(kafka)[1] >= MARKED


def test_a_year_passes_while_a_rule_refuses_each_marker(kafka: Cluster) -> None:
    rule_alone(kafka, {"error": "NOT_LEADER_OR_FOLLOWER"})
    committed(kafka)
    kafka.clock.advance(YEAR_MS)
    assert state(kafka) == "PrepareCommit"
    kafka.clear_faults()
    kafka.wait(transaction="t", state="CompleteCommit")


def test_refusals_are_counted_and_the_marker_is_written_by_the_attempt_behind_the_last_one(kafka: Cluster) -> None:
    kafka.clock.freeze()
    rule_alone(kafka, {"error": "NOT_LEADER_OR_FOLLOWER"}, times=6)  # three attempts for each of two markers
    committed(kafka)
    assert hits(kafka) == [2]
    kafka.clock.advance(250)
    assert hits(kafka) == [6]
    assert state(kafka) == "PrepareCommit"
    kafka.clock.advance(100)
    assert state(kafka) == "CompleteCommit"


def test_a_marker_that_is_refused_is_tried_again_while_another_is_held(kafka: Cluster) -> None:
    kafka.clock.freeze()
    refused = {"topic": "orders", "partition": 0}
    kafka.fault({"name": "no", "at": "marker", "match": refused, "do": {"error": "KAFKA_STORAGE_ERROR"}, "times": 2})
    kafka.preset("half-written-markers")
    assert ends(kafka) == [1, 1]
    kafka.clock.advance(1_000)
    assert ends(kafka) == [MARKED, 1]
    kafka.release("marker")
    assert ends(kafka) == [MARKED, MARKED]
    assert state(kafka) == "CompleteCommit"


def test_the_transaction_of_a_topic_that_is_deleted_is_complete_at_once(kafka: Cluster) -> None:
    kafka.clock.freeze()
    half_written(kafka)
    kafka.preset("recreated-topic", topic="orders")
    assert kafka.holds() == {}
    assert state(kafka) == "CompleteCommit"
    assert kafka.release("marker") == 0


def test_a_stop_writes_no_marker_that_is_held_and_the_next_start_meets_the_rule_again(kafka: Cluster) -> None:
    always_held(kafka)
    kafka.restart()
    kafka.wait(hold="marker")
    assert ends(kafka)[1] == 1
    assert kafka.release("marker") == 1
    assert ends(kafka)[1] == MARKED
    assert state(kafka) == "CompleteCommit"


def test_a_stop_writes_no_marker_of_a_decision_that_is_held(kafka: Cluster) -> None:
    kafka.fault({"name": "decided", "at": "prepared", "do": {"hold": "decided"}, "times": 2})
    open_transaction(kafka)
    kafka.clock.advance(DAY_MS)  # The transaction has exceeded its timeout and is aborted.
    kafka.wait(hold="decided")
    kafka.restart()
    kafka.wait(hold="decided")
    assert ends(kafka) == [OPEN]
    kafka.release("decided")
    assert ends(kafka) == [OPEN + 1]
    assert state(kafka) == "CompleteAbort"


def open_transaction(kafka: Cluster) -> None:
    kafka.preset("open-transaction", topic="orders")


def test_a_crash_leaves_no_marker_that_is_held_and_the_next_start_meets_the_rule_again(kafka: Cluster) -> None:
    always_held(kafka)
    kafka.crash()
    assert kafka.holds() == {}
    kafka.restart()
    kafka.wait(hold="marker")
    assert ends(kafka)[1] == 1
    kafka.release("marker")
    assert ends(kafka)[1] == MARKED


def test_a_cluster_that_goes_back_to_where_a_marker_was_held_meets_the_rule_again(kafka: Cluster) -> None:
    always_held(kafka)
    kafka.checkpoint("held")
    kafka.release("marker")
    assert ends(kafka)[1] == MARKED
    kafka.rewind("held")
    kafka.wait(hold="marker")
    assert ends(kafka)[1] == 1
    kafka.release("marker")
    assert ends(kafka)[1] == MARKED


def test_a_cluster_that_goes_back_to_where_no_marker_was_held_holds_none(kafka: Cluster) -> None:
    kafka.checkpoint("before")
    half_written(kafka)
    kafka.rewind("before")
    assert kafka.holds() == {}
    assert ends(kafka) == []


def test_a_copy_has_no_rules_and_writes_the_marker_that_its_source_holds(odradek: Odradek, kafka: Cluster) -> None:
    half_written(kafka)
    with odradek.cluster(fork=kafka) as copy:
        copy.wait(transaction="t", state="CompleteCommit")
        assert ends(copy)[1] == MARKED
    assert kafka.holds() == {"marker": 1}
    assert ends(kafka) == [MARKED, 1]
    kafka.release("marker")
    assert ends(kafka) == [MARKED, MARKED]


def test_a_cluster_with_a_held_marker_is_deleted(odradek: Odradek) -> None:
    kafka = odradek.cluster()
    half_written(kafka)
    kafka.delete()
    with pytest.raises(Refused, match="there is no cluster"):
        kafka.release("marker")


def test_a_release_reaches_the_new_coordinator_and_the_marker_is_written_once(odradek: Odradek) -> None:
    with odradek.cluster(settings=STATE, nodes=2) as kafka:
        half_written(kafka)
        kafka.move_coordinator("transaction", "t", 2)
        kafka.move_coordinator("transaction", "t", 1)
        kafka.wait(transaction="t", state="PrepareCommit")
        assert kafka.holds() == {"marker": 1}
        assert hits(kafka) == [1]
        kafka.clock.freeze()
        assert kafka.release("marker") == 1
        assert ends(kafka)[1] == MARKED
        assert state(kafka) == "CompleteCommit"


def test_a_released_marker_goes_to_the_current_leader(odradek: Odradek) -> None:
    with odradek.cluster(settings=STATE, nodes=2) as kafka:
        half_written(kafka)
        kafka.move_leader("orders", 1, 2)
        kafka.move_leader("orders", 1, 1)
        kafka.clock.freeze()
        kafka.release("marker")
        assert ends(kafka) == [MARKED, MARKED]
        assert state(kafka) == "CompleteCommit"


def test_a_decision_that_was_held_is_carried_out_by_the_coordinator_that_took_over(odradek: Odradek) -> None:
    with odradek.cluster(settings=STATE, nodes=2) as kafka:
        kafka.fault({"name": "decided", "at": "prepared", "do": {"hold": "decided"}, "times": 1})
        open_transaction(kafka)
        kafka.clock.advance(DAY_MS)
        kafka.wait(hold="decided")
        kafka.move_coordinator("transaction", "t", 2)
        kafka.wait(transaction="t", state="CompleteAbort")
        assert ends(kafka) == [OPEN + 1]
        kafka.release("decided")
        assert ends(kafka) == [OPEN + 1]


def test_a_write_txn_markers_request_waits_for_the_release(kafka: Cluster) -> None:
    half_written(kafka)
    (txn,) = kafka.transactions()
    topics = [WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1])]
    marker = WritableTxnMarker(
        producer_id=txn["producer_id"],
        producer_epoch=txn["producer_epoch"],
        transaction_result=True,
        topics=topics,
        coordinator_epoch=0,
    )
    with Wire(kafka.bootstrap) as wire:
        wire.send(WriteTxnMarkersRequest(markers=[marker]), 1)
        kafka.wait(client="wire", idle=False)
        kafka.release("marker")
        answer = wire.receive(WriteTxnMarkersRequest.API_KEY, 1)
    assert isinstance(answer, WriteTxnMarkersResponse)
    (one,) = answer.markers[0].topics
    assert [each.error_code for each in one.partitions] == [0, 0]
