"""Tests that the group metrics count rebalances as Kafka does (docs/spec/streams-groups.md#s9).

In a consumer, share or streams group, each new group epoch counts as a rebalance unless its only cause is that members
have left.
"""

from odradek.broker.groups.common.outcome import (
    COMPLETED_REBALANCES,
    OFFSET_COMMITS,
    OFFSET_DELETIONS,
    OFFSET_EXPIRATIONS,
    GroupConfig,
)
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.consumer_scene import ConsumerScene
from tests.support.group_scene import NOT_WRITTEN, Scene
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.streams_scene import StreamsScene


def test_a_streams_group_rebalances_when_members_join_or_change_and_when_topics_or_settings_change() -> None:
    scene = StreamsScene()
    counts = [scene.core.rebalances.get("streams", 0)]
    for step in (
        lambda: scene.member("a"),
        lambda: scene.beat("a"),
        lambda: scene.member("c"),
        lambda: scene.beat("a", rack="r"),
        lambda: scene.cluster.grow("i4", 6),
        lambda: scene.beat("a"),
        lambda: scene.cluster.defaults.update({"streams.num.standby.replicas": 1}),
        lambda: scene.beat("a"),
    ):
        step()
        counts.append(scene.core.rebalances["streams"])
    assert counts == [0, 1, 1, 2, 3, 3, 4, 4, 5]


def test_a_streams_group_does_not_rebalance_when_members_leave_or_fall_silent() -> None:
    scene = StreamsScene()
    scene.member("a")
    scene.member("c")
    epoch = scene.state[1]
    scene.beat("c", -1)
    scene.advance(45_000)
    assert scene.state[:2] == ("Empty", epoch + 2)
    assert scene.core.rebalances == {"streams": 2}


def test_a_streams_group_that_becomes_ready_has_one_rebalance() -> None:
    scene = StreamsScene(topics={})
    scene.member("a")
    assert (scene.state[0], scene.core.rebalances) == ("NotReady", {"streams": 1})
    scene.cluster.make("i4", 4)
    scene.beat("a")
    assert scene.core.rebalances == {"streams": 2}


def test_a_decision_that_could_not_be_written_is_no_rebalance() -> None:
    scene = StreamsScene()
    scene.writes_fail = True
    scene.member("a")
    assert scene.core.rebalances == {}


def test_a_consumer_group_rebalances_when_members_join_and_not_when_they_leave() -> None:
    scene = ConsumerScene()
    scene.member("a", "T3")
    scene.member("b", "T3")
    scene.beat("b", -1)
    assert scene.core.rebalances == {"consumer": 2}


def test_a_share_group_rebalances_when_its_topics_become_assignable() -> None:
    broker = ShareBroker()
    broker.topic(GROUP_OFFSETS, 3)
    broker.topic("T")
    broker.member("A").heartbeat(0, ["T"])
    counted = broker.groups.shard_for(GROUP).read_state(lambda core: core.rebalances)
    assert counted["share"] >= 1


def test_a_rebalance_of_a_classic_group_counts_when_the_leader_has_assigned() -> None:
    scene = Scene()
    reply = scene.join()
    scene.advance(0)
    joined = reply.answer
    assert scene.core.counts == {}
    scene.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    assert scene.core.counts == {COMPLETED_REBALANCES: 1}


def test_committed_deleted_and_expired_offsets_are_counted() -> None:
    scene = Scene(GroupConfig(offsets_retention_ms=1_000))
    for partition in range(3):
        scene.commit(7, partition=partition)
    scene.delete_offset(partition=0)
    assert scene.core.counts == {OFFSET_COMMITS: 3, OFFSET_DELETIONS: 1}
    scene.now_ms += 1_000
    scene.expire()
    assert scene.core.counts[OFFSET_EXPIRATIONS] == 2


def test_a_commit_that_could_not_be_written_is_not_counted() -> None:
    scene = Scene()
    scene.writes_fail = True
    assert scene.commit(7) is NOT_WRITTEN
    assert scene.core.counts == {}
