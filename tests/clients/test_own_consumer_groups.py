"""Tests Odradek's consumer as a group member: assignments, rebalances, commits, and members that are killed, busy or
expelled."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka.cimpl import NewPartitions

from odradek.client import (
    AbortableError,
    CommitFailed,
    IllegalState,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek.client.sync import Consumer, Producer
from tests.clients.admin import create_topic, new_admin
from tests.clients.own_consumers import QUICK, member, produce, values_of
from tests.clients.speakers import wait_for
from tests.support.oracle import REPOSITORY


def test_a_group_of_two_libraries_shares_out_all_partitions(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "two-libraries", partitions=6)
    settings = {"group.id": "mixed", "session.timeout.ms": 2_000, "heartbeat.interval.ms": 200}
    theirs = Librdkafka({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})
    theirs.subscribe([topic])
    owned: list[set[int]] = [set(), set()]

    def share(ours: Consumer) -> Callable[[], bool]:
        def is_shared() -> bool:
            theirs.poll(0.05)
            ours.getmany(timeout_ms=50)
            owned[:] = [
                {each.partition for each in theirs.assignment()},
                {each.partition for each in ours.assignment()},
            ]
            return [len(each) for each in owned] == [3, 3] and owned[0] | owned[1] == set(range(6))

        return is_shared

    with member(bootstrap, topic, group="mixed") as ours:
        wait_for("both to have their half", share(ours))
    wait_for("the one that is left to have all", lambda: theirs.poll(0.05) or len(theirs.assignment()) == 6)
    with member(bootstrap, topic, group="mixed", partition_assignment_strategy=["roundrobin"]) as ours:
        wait_for("the common assignor to be used", share(ours))
        assert owned[0] in ({0, 2, 4}, {1, 3, 5})
    theirs.close()


MEMBER_PROCESS = """
import sys
from odradek.client.sync import Consumer
consumer = Consumer(sys.argv[2], bootstrap_servers=sys.argv[1], group_id="killed",
    session_timeout_ms=1000, heartbeat_interval_ms=100)
consumer.start()
while True:
    consumer.getmany(timeout_ms=50)
    print(len(consumer.assignment()), flush=True)
"""


def test_partitions_of_a_member_that_was_killed_go_to_the_others(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "killed-member", partitions=4)
    command = [sys.executable, "-c", MEMBER_PROCESS, bootstrap, topic]
    with (
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as victim,
        member(bootstrap, topic, group="killed") as survivor,
    ):
        try:
            wait_for("both to have two", lambda: survivor.getmany(timeout_ms=50) or len(survivor.assignment()) == 2)
        finally:
            victim.kill()
        wait_for("all to be the survivor's", lambda: survivor.getmany(timeout_ms=50) or len(survivor.assignment()) == 4)


def test_rebalance_callbacks_are_called_and_may_commit(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b")
    partition = TopicPartition(topic, 0)
    heard: list[tuple[str, list[TopicPartition], int]] = []
    here = threading.get_ident()

    with member(bootstrap, group="hears") as first:

        def on_assigned(partitions: list[TopicPartition]) -> None:
            heard.append(("assigned", partitions, threading.get_ident()))

        def on_revoked(partitions: list[TopicPartition]) -> None:
            first.commit()
            heard.append(("revoked", partitions, threading.get_ident()))

        first.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
        assert first.getone().value == b"a"
        first.unsubscribe()
        assert heard == [("assigned", [partition], here), ("revoked", [partition], here)]
    with member(bootstrap, topic, group="hears") as second:
        assert second.getone().value == b"b"


def test_an_error_in_a_rebalance_callback_reaches_the_application(bootstrap: str, topic: str) -> None:
    def on_assigned(_: list[TopicPartition]) -> None:
        raise KeyError("its own")

    with member(bootstrap, group="raises") as consumer:
        consumer.subscribe([topic], on_assigned=on_assigned)
        with pytest.raises(KeyError, match="its own"):
            consumer.getone()


def test_a_member_that_was_expelled_commits_nothing_and_comes_back(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b")
    partition = TopicPartition(topic, 0)
    lost: list[list[TopicPartition]] = []
    with member(bootstrap, group="expelled", max_poll_interval_ms=300) as slow:
        slow.subscribe([topic], on_lost=lost.append)
        assert slow.getone().value == b"a"
        with member(bootstrap, topic, group="expelled") as other:
            wait_for(
                "the other to take over", lambda: other.getmany(timeout_ms=50) or other.assignment() == {partition}
            )
            with pytest.raises(CommitFailed):
                slow.commit()
        with pytest.raises(CommitFailed):  # The commit also fails when the group has no members left.
            slow.commit()
        with Producer(bootstrap_servers=bootstrap, transactional_id="expelled") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(AbortableError):
                producer.send_offsets_to_transaction({partition: 1}, slow.group_metadata())
            producer.abort_transaction()
        assert slow.getone().value == b"a"
        assert lost == [[partition]]
        slow.commit()
        assert slow.committed([partition]) == {partition: OffsetAndMetadata(1, "", 0)}


def test_a_member_that_is_busy_while_others_join_is_waited_for(bootstrap: str) -> None:
    """Checks that the rebalance waits for the busy member for longer than the session timeout, because that member
    still sends heartbeats."""
    topic = create_topic(bootstrap, "busy", partitions=2)
    produce(bootstrap, topic, b"a", b"b")
    with member(bootstrap, topic, group="busy", max_poll_interval_ms=60_000) as busy:
        assert busy.getone().value == b"a"
        with member(bootstrap, topic, group="busy", max_poll_interval_ms=60_000) as other:
            ends_at = time.monotonic() + 2 * QUICK["session_timeout_ms"] / 1000
            while time.monotonic() < ends_at:
                assert other.getmany(timeout_ms=100) == {}
            busy.commit()  # This commit would fail if the member had been expelled.
            wait_for(
                "both to have one",
                lambda: (busy.getmany(timeout_ms=50), other.getmany(timeout_ms=50), len(busy.assignment()) == 1)[2],
            )


def test_offsets_are_committed_automatically_if_enabled(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b", b"c")
    partition = TopicPartition(topic, 0)
    with member(bootstrap, topic, group="by itself", enable_auto_commit=True, auto_commit_interval_ms=50) as first:
        assert [first.getone().value, first.getone().value] == [b"a", b"b"]
        with member(bootstrap, group="by itself") as looks:
            assert first.getone().value == b"c"

            def is_committed() -> bool:
                first.getmany(timeout_ms=50)
                committed = looks.committed([partition])[partition]
                return committed is not None and committed.offset == 3

            wait_for("the commit", is_committed)


def test_a_consumer_that_commits_by_itself_has_no_metadata_for_a_transaction(bootstrap: str, topic: str) -> None:
    """If the transaction aborted, the consumer's next automatic commit would still skip its records, which would never
    be read again."""
    produce(bootstrap, topic, b"a")
    with member(bootstrap, topic, group="mixed up", enable_auto_commit=True) as consumer:
        assert consumer.getone().value == b"a"
        with pytest.raises(IllegalState, match=r"'mixed up'.*enable_auto_commit=True.*outside the transaction"):
            consumer.group_metadata()


def test_partitions_that_are_added_are_read_too(bootstrap: str) -> None:
    topic = create_topic(bootstrap, "grows", partitions=1)
    admin = new_admin(bootstrap)
    with member(bootstrap, topic, group="grows", metadata_max_age_ms=100) as consumer:
        wait_for("the first", lambda: consumer.getmany(timeout_ms=50) or len(consumer.assignment()) == 1)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        wait_for("all", lambda: consumer.getmany(timeout_ms=50) or len(consumer.assignment()) == 3)


def test_a_topic_may_be_created_after_the_subscription(bootstrap: str) -> None:
    with member(bootstrap, "comes-later", group="waits", allow_auto_create_topics=False) as consumer:
        assert consumer.getmany(timeout_ms=300) == {}
        create_topic(bootstrap, "comes-later", exact=True)
        produce(bootstrap, "comes-later", b"a")
        assert values_of(consumer, 1) == [b"a"]
