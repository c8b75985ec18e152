"""Tests that the control interface can wait for the state and tasks of a streams group (KIP-1071), and can put the
group into rare states."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.broker.control.odd.odd import PERCENT
from odradek.protocol.messages.streams_group_heartbeat_request import Subtopology, TopicInfo
from odradek.testing.sync import Cluster, Odradek, Refused
from tests.clients.speakers import wait_for
from tests.clients.streams_members import NO_DELAY, StreamsMember
from tests.support.wire import Wire

READS_ORDERS = (Subtopology(subtopology_id="0", source_topics=["orders"]),)
READS_OTHERS = (Subtopology(subtopology_id="0", source_topics=["others"]),)
STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, MISSING_INTERNAL_TOPICS = 0, 1, 3


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster(settings=NO_DELAY) as cluster:
        yield cluster


@pytest.fixture
def wire(kafka: Cluster) -> Iterator[Wire]:
    with Wire(kafka.bootstrap) as wire:
        yield wire


def member(wire: Wire, name: str = "m1") -> StreamsMember:
    return StreamsMember(wire, "g", name, topology=READS_ORDERS, process=name)


def test_a_test_waits_for_the_state_and_the_tasks_of_a_streams_group(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("more-partitions", topic="orders")  # adds a second partition
    joining = member(wire)
    joining.join()
    kafka.wait(group="g", state="Stable", members=1)
    kafka.wait(member="m1", group="g", owns=["0_0", "0_1"])
    (row,) = kafka.groups()
    assert (row["type"], row["state"], row["assignor"]) == ("streams", "Stable", "sticky")
    joining.leave()
    kafka.wait(group="g", state="Empty", members=0)


def test_a_member_gets_no_task_before_the_other_one_has_revoked_it(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("streams-revocation-outstanding", partitions=2)
    joining = member(wire)
    joining.join()
    kafka.wait(group="g", state="Reconciling", members=2)
    assert joining.beat() == {}
    kafka.clock.advance(46_000)
    rejoined = member(wire, "m2")
    rejoined.join()
    wait_for("all tasks", lambda: rejoined.beat() == {"0": [0, 1]})


def test_a_group_with_members_cannot_wait_for_the_member_of_the_preset(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("more-partitions", topic="orders")
    member(wire).join()
    with pytest.raises(Refused, match="already has members"):
        kafka.preset("streams-revocation-outstanding")
    kafka.wait(group="g", state="Stable", members=1)


def test_a_member_gets_the_status_missing_source_topics(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("more-partitions", topic="orders")
    working = member(wire)
    working.join()
    assert working.tasks == {"0": [0, 1]}
    kafka.preset("missing-source-topic")
    assert working.beat() == {}
    assert working.statuses == [MISSING_SOURCE_TOPICS]
    kafka.wait(group="g", state="NotReady")


def test_a_group_of_another_type_keeps_its_topic(kafka: Cluster) -> None:
    kafka.preset("revocation-outstanding")
    with pytest.raises(Refused, match="not a streams group, but of type consumer"):
        kafka.preset("missing-source-topic")
    kafka.wait(topic="orders", partition=0, log_end_offset=0)


def test_a_new_group_misses_its_source_topic(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("missing-source-topic")
    kafka.wait(group="g", state="NotReady", members=1)
    joining = member(wire)
    joining.join()
    assert joining.statuses == [MISSING_SOURCE_TOPICS]


def test_a_member_gets_the_status_stale_topology(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("stale-topology", epoch=3)
    kafka.wait(group="g", state="Empty")
    joining = StreamsMember(wire, "g", "m1", topology=READS_OTHERS, topology_epoch=2)
    joining.join()
    assert joining.statuses == [STALE_TOPOLOGY]
    assert joining.tasks == {"0": [0]}


def test_internal_topics_are_created_late_if_the_answers_are_odd(kafka: Cluster, wire: Wire) -> None:
    kafka.preset("more-partitions", topic="orders")
    kafka.odd(1, {**dict.fromkeys(PERCENT, 0), "late internal topics": 100})
    counts = Subtopology(
        subtopology_id="0", source_topics=["orders"], state_changelog_topics=[TopicInfo(name="g-counts-changelog")]
    )
    working = StreamsMember(wire, "g", "m1", topology=[counts])
    working.join()
    assert working.statuses == [MISSING_INTERNAL_TOPICS]
    assert working.beat() == {}
    assert working.statuses == [MISSING_INTERNAL_TOPICS]
    kafka.clock.advance(8_000)  # longer than the interval between two heartbeats
    wait_for("all tasks", lambda: working.beat() == {"0": [0, 1]})
    assert working.statuses == []
    (oddity,) = [each for each in kafka.odd()["oddities"] if each["name"] == "late internal topics"]
    assert oddity["done"] == 1
