"""Scripts for consumer groups (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe, and other requests that show
these groups.

Each script plays scenes from docs/spec/consumer-groups.md#s15 with its own groups. Each member subscribes to a single
topic, because the order of topics in an assignment is arbitrary.
"""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.codec import encode
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.conformance.differential.consumer_group_scene import Scene
from tests.conformance.differential.conversation import Talk

HEARTBEAT, DESCRIBE = 68, 69
GROUP_RESOURCE = 32


def shapes(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "shapes")
    scene.join("no member id", "", group="")
    scene.join("blank member id", "  ")
    scene.beat("no member id, staying", "", 3)
    scene.beat("no member id, leaving", "", -1)
    scene.join("no group", "A", group="")
    scene.join("blank group", "A", group="  ")
    scene.join("blank instance", "A", instance_id="")
    scene.join("blank rack", "A", rack_id=" ")
    scene.join("no timeout", "A", rebalance_timeout_ms=-1)
    scene.join("owns unsaid", "A", owned=None)
    scene.join("owns something", "A", owned=scene.owns(1))
    scene.join("no subscription", "A", subscribed_topic_names=None)
    scene.beat("leaves for a while without instance", "A", -2)
    for epoch in (-3, -100):
        scene.beat(f"epoch {epoch}", "A", epoch)
    for assignor in ("nope", "", "Range"):
        scene.join(f"assignor {assignor!r}", "A", server_assignor=assignor)
    scene.beat("unknown group", "A", 4)
    scene.beat("unknown group, leaving", "A", -1)
    scene.beat("unknown group, leaving for a while", "A", -2, instance_id="i")
    scene.join("subscribed to nothing", "A", subscribed_topic_names=[])
    scene.describe("subscribed to nothing")
    scene.beat("nobody", "X", 4)
    scene.beat("nobody leaves", "X", -1)
    scene.beat("nobody, static", "X", 4, instance_id="i")
    scene.join("timeout 0", "B", rebalance_timeout_ms=0)


def life(talk: Talk, version: int) -> None:
    """Plays the life of a group with one member and then describes the empty group (C1 of
    docs/spec/kafka-4.4.md#s5-1)."""
    scene = Scene(talk, version, "life")
    scene.join("joins", "A")
    scene.describe("alone")
    scene.beat("nothing new", "A")
    scene.beat("full", "A", owned=scene.owns(0, 1, 2, 3, 4, 5), rebalance_timeout_ms=60_000,
               subscribed_topic_names=[scene.topic])  # fmt: skip
    scene.join("again", "A")
    for epoch in (1, 3, 4):
        scene.beat(f"epoch {epoch}", "A", epoch)
    scene.beat("rack", "A", rack_id="r1")
    scene.beat("another timeout", "A", rebalance_timeout_ms=1_000)
    scene.beat("wish", "A", server_assignor="range")
    scene.beat("owns what there is not", "A", owned={b"x" * 16: [1, 7]})
    scene.describe("after wishes")
    scene.beat("unknown topic", "A", subscribed_topic_names=[scene.topic, "nope"])
    scene.beat("impossible topic", "A", subscribed_topic_names=[scene.topic, "bad name!"])
    scene.describe("with unknown topics")
    scene.beat("a lost reply", "A", 3, owned=scene.owns(0, 1))
    scene.beat("a lost reply, unsaid", "A", 3)
    scene.beat("a lost reply, foreign", "A", 3, owned=scene.owns(0, 9))
    scene.beat("no topics", "A", subscribed_topic_names=[])
    scene.beat("no topics, given up", "A", owned={})
    scene.describe("no topics")
    scene.beat("leaves", "A", -1)
    scene.beat("leaves again", "A", -1)
    scene.beat("stays", "A", 5)
    scene.describe("empty")


def reconciliation(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "reconciliation")
    scene.join("A joins", "A")
    scene.join("C joins", "C")
    scene.describe("C waits")
    scene.beat("C waits", "C")
    scene.beat("A is told", "A")
    scene.describe("A is told")
    scene.beat("A goes on", "A")
    scene.beat("A owns all", "A", owned=scene.owns(0, 1, 2, 3, 4, 5))
    scene.beat("A owns one too many", "A", owned=scene.owns(0, 1, 2, 3))
    scene.beat("A has given up", "A", owned=scene.owns(0, 1, 2))
    scene.beat("C gets", "C")
    scene.beat("C has", "C", owned=scene.owns(3, 4, 5))
    scene.beat("A owns less", "A", owned=scene.owns(0))
    scene.join("A again", "A")
    scene.describe("settled")
    scene.join("D joins", "D")
    scene.beat("A is told again", "A")
    scene.beat("C leaves", "C", -1)
    scene.describe("C left")
    scene.beat("A", "A")
    scene.beat("A has given up 2", "A", owned=scene.owns(0, 1))
    for _ in range(3):
        scene.beat("D", "D")
        scene.beat("A", "A", owned=scene.owns(0, 1, 2))
    scene.describe("end")


def statics(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "statics")
    scene.join("A joins", "A", instance_id="ia")
    scene.join("another with the same instance", "C", instance_id="ia")
    scene.join("the same again", "A", instance_id="ia")
    scene.join("the same again, instance unsaid", "A")
    scene.beat("instance unsaid", "A")
    scene.beat("unknown instance", "A", instance_id="nope")
    scene.join("B joins", "B", instance_id="ib")
    scene.beat("another's instance", "A", instance_id="ib")
    scene.beat("A leaves for a while, unknown instance", "A", -2, instance_id="nope")
    scene.beat("A leaves for a while", "A", -2, instance_id="ia")
    scene.beat("A speaks", "A", 2, instance_id="ia")
    scene.beat("A leaves for a while again", "A", -2, instance_id="ia")
    scene.describe("A is away")
    scene.commit("A away commits", "A", -2)
    scene.commit("A away commits at its old epoch", "A", 2)
    scene.fetch("A away fetches", "A", -2)
    scene.fetch("A away fetches at its old epoch", "A", 2)
    scene.join("N takes the place", "N", instance_id="ia")
    scene.describe("N is A")
    scene.beat("A's old self", "A", 2)
    scene.beat("A's old self with its instance", "A", 2, instance_id="ia")
    scene.beat("A's old self leaves", "A", -1, instance_id="ia")
    scene.beat("N", "N", instance_id="ia")
    scene.beat("N leaves for a while", "N", -2, instance_id="ia")
    scene.join("N comes back", "N", instance_id="ia")
    scene.beat("N leaves for a while once more", "N", -2, instance_id="ia")
    scene.join("M comes instead, with another subscription", "M", "nope", instance_id="ia")
    scene.describe("M is N")
    scene.join("D, dynamic", "D")
    scene.join("D becomes static", "D", instance_id="id")
    scene.describe("D is static")
    scene.beat("M leaves for good", "M", -1, instance_id="ia")


def becomes_static(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "becomes-static")
    scene.two_members()
    scene.join("C becomes static", "C", instance_id="ic")
    scene.describe("C is static")
    scene.beat("C", "C", instance_id="ic")
    scene.join("C gets another instance", "C", instance_id="id")
    scene.beat("C's old instance", "C", instance_id="ic")
    scene.join("A becomes static with another subscription", "A", "nope", instance_id="ia")
    scene.describe("A is static")


def regexes(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "regexes")
    for wrong in ("[", "a**", "(?=x)", "\\1"):
        scene.join(f"{wrong} is none", "A", subscribed_topic_names=None, subscribed_topic_regex=wrong)
    subscription = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{scene.group}-.*"}
    scene.join("A joins", "A", **subscription)
    deadline = time.monotonic() + 5
    while version >= 1 and time.monotonic() < deadline:
        request = ConsumerGroupHeartbeatRequest(group_id=scene.group, member_id="A", member_epoch=1)
        answer = talk.quietly(request, version)
        if answer.member_epoch == 2:
            break
        time.sleep(0.02)
    scene.epochs["A"] = 2
    scene.describe("resolved")
    scene.join("C joins: no wait", "C", **subscription)
    scene.beat("A adds a name", "A", subscribed_topic_names=["nope"])
    scene.beat("A changes to a wrong one", "A", subscribed_topic_regex="[")
    scene.beat("A drops the expression", "A", subscribed_topic_regex="")
    scene.describe("A has names only")
    scene.beat("C leaves", "C", -1)
    scene.describe("nobody has the expression")


def offsets(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "offsets")
    scene.two_members()
    for at in range(2, 10):
        scene.commit(f"A commits at v{at}", "A", 3, version=at)
    for epoch in (3, 2, 1, 4, 0, -1, -2):
        scene.commit(f"A commits at {epoch}", "A", epoch)
    for member, epoch in (("X", 3), ("", -1), ("", 3)):
        scene.commit(f"{member!r} commits at {epoch}", member, epoch)
        scene.commit(f"{member!r} commits at {epoch}, v5", member, epoch, version=5)
    scene.commit("C's partition", "A", 3, partitions=(5,))
    scene.commit("C's partition, at the old epoch", "A", 2, partitions=(5,))
    scene.commit("both, at the old epoch", "A", 2, partitions=(0, 5))
    scene.commit("C, at an epoch before it had it", "C", 2, partitions=(4,))
    scene.commit("no such partition", "A", 3, partitions=(0, 50))
    scene.commit("no such topic", "A", 3, topic="nope")
    for who, epoch in (("A", 3), ("A", 2), ("A", -1), ("X", 1), ("", -1), (None, -1)):
        scene.fetch(f"{who} fetches at {epoch}", who, epoch)
    request_topic = OffsetDeleteRequestTopic(
        name=scene.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    talk.ask("delete an offset", OffsetDeleteRequest(group_id=scene.group, topics=[request_topic]), 0)
    talk.ask("delete the group", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    for at in (5, 6):
        talk.ask("as a classic group", DescribeGroupsRequest(groups=[scene.group]), at)
    for filters in ({"states_filter": ["stable"]}, {"types_filter": ["Consumer"]}, {"types_filter": ["foo"]}):
        answer = talk.quietly(ListGroupsRequest(**filters), 5)
        found = [(each.group_type, each.group_state, each.protocol_type) for each in answer.groups
                 if each.group_id == scene.group]  # fmt: skip
        talk.note(f"listed by {filters}", str(found))
    scene.beat("A leaves", "A", -1)
    identities = [MemberIdentity(member_id="C"), MemberIdentity(member_id="X")]
    talk.ask("C is sent away", LeaveGroupRequest(group_id=scene.group, members=identities), 5)
    scene.describe("empty")
    for member, epoch in (("", -1), ("A", -1), ("A", 3)):
        scene.commit(f"empty: {member!r} commits at {epoch}", member, epoch)
        scene.fetch(f"empty: {member!r} fetches at {epoch}", member, epoch)
    talk.ask("delete the offset", OffsetDeleteRequest(group_id=scene.group, topics=[request_topic]), 0)
    talk.ask("delete the empty group", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.describe("deleted")


def upgrade(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "upgrade")
    given = scene.classic_join("c asks", "").member_id
    talk.note("an id", bool(given))
    joined = talk.quietly(_join_again(scene, given), 9)
    scene.classic_sync("c syncs", given, joined.generation_id, assignments=_all_to(given, scene))
    scene.join("X joins", "X")
    scene.beat("X waits", "X")
    scene.classic_heartbeat("c is told", given, joined.generation_id)
    scene.classic_sync("c syncs late", given, joined.generation_id)
    scene.classic_join("c still owns all", given, scene.owns(0, 1, 2, 3, 4, 5), reason="")
    scene.classic_sync("c gets the rest", given, 1)
    scene.classic_heartbeat("c is told again", given, 1)
    scene.classic_join("c owns the rest", given, scene.owns(0, 1, 2))
    scene.beat("X gets", "X")
    scene.classic_heartbeat("c stays", given, 2)
    scene.commit("c commits", given, 2, version=8)
    scene.commit("c commits at v9", given, 2, version=9)
    scene.commit("c commits at an old generation", given, 1, version=9)
    scene.classic_sync("another protocol", given, 2, protocol_name="other")
    scene.beat("c as a consumer", given, 2)
    scene.classic_heartbeat("X as a classic member", "X", 2)
    scene.beat("X leaves", "X", -1)
    scene.classic_heartbeat("c is told of the downgrade", given, 2)
    scene.describe("a classic group again")


def classic_joins(talk: Talk, version: int) -> None:
    """Makes a member that uses the classic protocol join a consumer group."""
    scene = Scene(talk, version, "classic-joins")
    scene.join("A joins", "A")
    scene.classic_join("no common protocol type", protocol_type="connect")
    scene.classic_join("session too short", session_timeout_ms=1)
    scene.classic_join("garbage", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")])
    given = talk.quietly(_join_again(scene, ""), 9).member_id
    scene.classic_join("c joins", given)
    scene.classic_heartbeat("c waits", given, 3)
    scene.classic_sync("c has nothing yet", given, 3)
    scene.beat("A is told", "A")
    scene.beat("A has given up", "A", owned=scene.owns(0, 1, 2))
    scene.classic_heartbeat("c can have more", given, 3)
    scene.classic_join("c joins again", given, {})
    scene.classic_sync("c gets", given, 3)
    scene.classic_heartbeat("wrong generation", given, 2)
    scene.classic_heartbeat("nobody", "nobody", 2)
    scene.beat("A leaves", "A", -1)
    scene.classic_heartbeat("c after the downgrade", given, 3)
    scene.describe("downgraded")


def _join_again(scene: Scene, member: str) -> JoinGroupRequest:
    subscription = ConsumerProtocolSubscription(topics=[scene.topic])
    metadata = (3).to_bytes(2, "big") + encode(subscription, 3)
    return JoinGroupRequest(
        group_id=scene.group,
        member_id=member,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def _all_to(member: str, scene: Scene) -> list[Any]:
    from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
    from odradek.protocol.messages.consumer_protocol_assignment import TopicPartition as Assigned
    from odradek.protocol.messages.sync_group_request import SyncGroupRequestAssignment

    assigned = ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic=scene.topic, partitions=list(range(6)))])
    return [
        SyncGroupRequestAssignment(member_id=member, assignment=(3).to_bytes(2, "big") + encode(assigned, 3)),
    ]


def topics_change(talk: Talk, version: int) -> None:
    scene = Scene(talk, version, "topics")
    scene.join("A joins", "A")
    talk.quietly(DeleteTopicsRequest(topics=[DeleteTopicState(name=scene.topic)], timeout_ms=20_000), 6)
    talk.wait_until_gone(scene.topic)
    scene.wait_until_coordinator_knows(is_there=False)
    scene.beat("the topic is gone", "A")
    scene.beat("given up", "A", owned={})
    scene.describe("the topic is gone")


def group_settings(talk: Talk, version: int) -> None:
    """Alters group settings, including those of groups that do not exist. `version` is the version of
    ConsumerGroupHeartbeat."""
    scene = Scene(talk, version, "settings")
    wrong = (
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "1000"),
        ("consumer.heartbeat.interval.ms", "1"),
        ("consumer.heartbeat.interval.ms", "x"),
        ("consumer.assignment.interval.ms", "-1"),
        ("consumer.assignment.interval.ms", "15001"),
        ("consumer.unknown", "1"),
    )
    for name, value in (*wrong, ("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "7777")):
        talk.ask(f"{name}={value}", _altered(scene.group, name, value), 1)
    talk.ask("nobody", _altered("", "consumer.session.timeout.ms", "50000"), 1)
    talk.ask("append", _altered(scene.group, "consumer.session.timeout.ms", "50000", operation=2), 1)
    # Kafka's coordinator sees new settings only after the response. Joining again with the same subscription is
    # harmless.
    join = ConsumerGroupHeartbeatRequest(
        group_id=scene.group,
        member_id="A",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )
    scene.beat_until(join, lambda answer: answer.heartbeat_interval_ms == 7777)
    scene.join("A joins", "A")
    resource = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=scene.group,
        configuration_keys=[name for name, _ in wrong[:5] if name != "consumer.unknown"],
    )
    talk.ask("described", DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    listed = talk.quietly(ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE]), 1)
    talk.note("listed", scene.group in {each.resource_name for each in listed.config_resources})
    talk.ask("deleted", _altered(scene.group, "consumer.heartbeat.interval.ms", None, operation=1), 1)
    beat = ConsumerGroupHeartbeatRequest(group_id=scene.group, member_id="A", member_epoch=scene.epochs["A"])
    scene.beat_until(beat, lambda answer: answer.heartbeat_interval_ms != 7777)
    scene.beat("A", "A")


def _altered(group: str, name: str, value: str | None, operation: int = 0) -> IncrementalAlterConfigsRequest:
    changed = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[changed])
    return IncrementalAlterConfigsRequest(resources=[resource])


def described(talk: Talk, version: int) -> None:
    scene = Scene(talk, 1, f"described-{version}")
    scene.two_members()
    unknown, classic = "nobody", f"{scene.group}-simple"
    scene_commit = OffsetCommitRequestTopic(
        name=scene.topic, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    talk.quietly(OffsetCommitRequest(group_id=classic, topics=[scene_commit]), 7)
    group_ids = [scene.group, unknown, classic]
    talk.ask("three", ConsumerGroupDescribeRequest(group_ids=group_ids), version)
    talk.ask(
        "operations", ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=True), version
    )
    talk.ask("none", ConsumerGroupDescribeRequest(group_ids=[]), version)
    talk.ask("no name", ConsumerGroupDescribeRequest(group_ids=[""]), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    **dict.fromkeys(
        (
            shapes,
            life,
            reconciliation,
            statics,
            becomes_static,
            regexes,
            offsets,
            upgrade,
            classic_joins,
            topics_change,
            group_settings,
        ),
        HEARTBEAT,
    ),
    described: DESCRIBE,
}
