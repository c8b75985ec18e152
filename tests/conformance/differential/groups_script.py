"""Scripts for classic groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups,
OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups."""

import time
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
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
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import NOBODY

GROUP, TRANSACTION, SHARE = 0, 1, 2
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 9, 5, 4, 5, 9  # versions of requests that only prepare a comparison
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"  # consumer protocol v1: topic `t`, no user data
ASSIGNMENT = b"\0\1\0\0\0\0\xff\xff\xff\xff"
A_UUID = "01234567-89ab-cdef-0123-456789abcdef"


def wait_for_coordinator(talk: Talk) -> None:
    """Waits for a group coordinator. The first request for a coordinator makes the broker create __consumer_offsets,
    which takes a moment."""
    while talk.quietly(FindCoordinatorRequest(key="any", key_type=GROUP), 3).error_code:
        time.sleep(0.05)


def join_request(group: str, member_id: str = "", version: int = JOIN, **more: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in more.pop("names", ["range"])]
    settings: dict[str, Any] = {"session_timeout_ms": 30_000, "protocol_type": "consumer"}
    if version >= 1:
        settings["rebalance_timeout_ms"] = 30_000
    return JoinGroupRequest(group_id=group, member_id=member_id, protocols=protocols, **(settings | more))


class Member:
    """A group member whose join is not recorded, for scripts about other requests."""

    def __init__(self, talk: Talk, group: str, instance: str | None = None) -> None:
        self.talk, self.group, self.instance = talk, group, instance
        answer = talk.quietly(join_request(group, group_instance_id=instance), JOIN)
        while answer.error_code in (14, 15, 16):  # the group's partition of __consumer_offsets is not loaded
            time.sleep(0.05)
            answer = talk.quietly(join_request(group, group_instance_id=instance), JOIN)
        if answer.error_code == 79:  # MEMBER_ID_REQUIRED
            answer = talk.quietly(join_request(group, answer.member_id), JOIN)
        assert answer.error_code == 0, answer
        self.id, self.generation = answer.member_id, answer.generation_id

    def sync(self) -> "Member":
        mine = [SyncGroupRequestAssignment(member_id=self.id, assignment=ASSIGNMENT)]
        answer = self.talk.quietly(self.sync_request(assignments=mine), SYNC)
        assert answer.error_code == 0, answer
        return self

    def sync_request(self, version: int = SYNC, **more: Any) -> SyncGroupRequest:
        settings: dict[str, Any] = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        if version >= 5:
            settings |= {"protocol_type": "consumer", "protocol_name": "range"}
        if version >= 3:
            settings["group_instance_id"] = self.instance
        return SyncGroupRequest(**(settings | more))

    def heartbeat_request(self, **more: Any) -> HeartbeatRequest:
        settings = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return HeartbeatRequest(**(settings | more))

    def leave(self) -> None:
        who = [MemberIdentity(member_id=self.id, group_instance_id=self.instance)]
        self.talk.quietly(LeaveGroupRequest(group_id=self.group, members=who), LEAVE)


def find_coordinator(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)

    def ask(label: str, *keys: str, kind: int = GROUP) -> None:
        request = (
            FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)
            if version >= 4
            else FindCoordinatorRequest(key=keys[0], key_type=kind)
        )
        talk.ask(label, request, version)

    ask("of a group", "a-group")
    ask("of nothing", "")
    ask("of an unknown kind", "x", kind=9)
    ask("of a negative kind", "x", kind=-1)
    if version >= 4:
        ask("of two", "a-group", "another")
        ask("of the same twice", "a-group", "a-group")
        ask("of none")


def join_group(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    group = f"joined-{version}"

    def join(label: str, of: str = group, member_id: str = "", **more: Any) -> Any:
        return talk.ask(label, join_request(of, member_id, version, **more), version)

    join("an empty group id", "")
    for timeout in (0, 50, 2_000_000, -1):
        join(f"a session timeout of {timeout}", session_timeout_ms=timeout)
    join("no protocol type", protocol_type="")
    join("no protocols", names=[])
    join("an unknown member", member_id="nobody")
    answer = join("a new member")
    member_id = answer.member_id
    if answer.error_code == 79:
        answer = join("with the id it was given", member_id=member_id)
    talk.ask("described", DescribeGroupsRequest(groups=[group]), 5)
    request = SyncGroupRequest(group_id=group, generation_id=answer.generation_id, member_id=member_id)
    talk.ask("synced", request, 2)
    talk.ask("described when stable", DescribeGroupsRequest(groups=[group]), 5)
    join("the leader again", member_id=member_id)
    join("the leader again, with another protocol", member_id=member_id, names=["roundrobin", "range"])
    join("an unknown member of a known group", member_id="nobody")
    join("another protocol type", protocol_type="connect")
    join("another protocol", names=["sticky"])
    talk.ask("left", LeaveGroupRequest(group_id=group, member_id=member_id), 2)
    talk.ask("described when empty", DescribeGroupsRequest(groups=[group]), 5)
    again = join("into the empty group")
    if again.error_code == 79:
        again = join("with its id", member_id=again.member_id)
    talk.ask("left again", LeaveGroupRequest(group_id=group, member_id=again.member_id), 2)


def join_group_together(talk: Talk, version: int) -> None:
    """Makes two members join. The broker answers both JoinGroups only after the first member has learned from its
    heartbeat that it must rejoin, and has done so."""
    wait_for_coordinator(talk)
    group = f"together-{version}"
    first = Member(talk, group).sync()
    other = talk.also()
    second = join_request(group, "", version)
    other_id = ""
    if version >= 4:
        other_id = other.ask("second, without id", second, version).member_id
        second = join_request(group, other_id, version)
    other.send("second", second, version)
    while (beat := talk.quietly(first.heartbeat_request(), HEARTBEAT)).error_code == 0:
        time.sleep(0.01)
    assert beat.error_code == 27, beat  # REBALANCE_IN_PROGRESS
    talk.ask("heartbeat while it rebalances", first.heartbeat_request(), HEARTBEAT)
    talk.ask("sync while it rebalances", first.sync_request(), SYNC)
    talk.ask("described while it rebalances", DescribeGroupsRequest(groups=[group]), 5)
    rejoined = talk.ask("first again", join_request(group, first.id, version), version)
    joined = other.receive("second", second, version)
    first.generation = rejoined.generation_id
    assignments = [
        SyncGroupRequestAssignment(member_id=one, assignment=one.encode()[:3]) for one in (first.id, joined.member_id)
    ]
    follower = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    other.send("follower", follower, 2)
    time.sleep(0.05)
    talk.ask("leader", first.sync_request(assignments=assignments), SYNC)
    other.receive("follower", follower, 2)
    talk.ask("described", DescribeGroupsRequest(groups=[group]), 5)
    other.ask("second leaves", LeaveGroupRequest(group_id=group, member_id=joined.member_id), 2)
    talk.ask("first hears of it", first.heartbeat_request(), HEARTBEAT)
    talk.ask("first leaves", LeaveGroupRequest(group_id=group, member_id=first.id), 2)


def join_group_static(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    group = f"static-{version}"
    first = talk.ask("joins", join_request(group, version=version, group_instance_id="one"), version)
    request = SyncGroupRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
    talk.ask("syncs", request, 2)
    back = talk.ask("comes back without id", join_request(group, version=version, group_instance_id="one"), version)
    old, new = first.member_id, back.member_id
    talk.ask("the old id", join_request(group, old, version, group_instance_id="one"), version)
    for label, member_id in (("fenced", old), ("current", new)):
        who = {"group_id": group, "generation_id": back.generation_id, "member_id": member_id}
        talk.ask(f"{label} heartbeat", HeartbeatRequest(group_instance_id="one", **who), HEARTBEAT)
        talk.ask(f"{label} sync", SyncGroupRequest(group_instance_id="one", **who), 3)
        part = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        topics = [OffsetCommitRequestTopic(name="nobody-made-this", partitions=part)]
        commit = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=back.generation_id,
            group_instance_id="one",
            topics=topics,
        )
        talk.ask(f"{label} commit", commit, 7)
    talk.ask("another instance with its id", join_request(group, new, version, group_instance_id="two"), version)
    talk.ask("described", DescribeGroupsRequest(groups=[group]), 5)
    leaving = [MemberIdentity(member_id=old, group_instance_id="one"), MemberIdentity(group_instance_id="unknown")]
    talk.ask("the old one leaves", LeaveGroupRequest(group_id=group, members=leaving), 4)
    talk.ask(
        "removed by its name", LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="one")]), 4
    )
    talk.ask("described when empty", DescribeGroupsRequest(groups=[group]), 5)


def sync_group(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    member = Member(talk, f"synced-{version}")

    def sync(label: str, **more: Any) -> None:
        talk.ask(label, member.sync_request(version, **more), version)

    sync("an unknown member", member_id="nobody")
    sync("an older generation", generation_id=0)
    sync("a generation ahead", generation_id=9)
    sync("an unknown group", group_id="nobody-made-this")
    sync("an empty group id", group_id="")
    if version >= 5:
        sync("another protocol", protocol_name="sticky")
        sync("another protocol type", protocol_type="connect")
        sync("no protocol", protocol_name=None, protocol_type=None)
    stranger = SyncGroupRequestAssignment(member_id="nobody", assignment=b"x")
    mine = SyncGroupRequestAssignment(member_id=member.id, assignment=ASSIGNMENT)
    sync("the leader", assignments=[mine, stranger])
    sync("the leader again, with another assignment", assignments=[])
    talk.ask("described", DescribeGroupsRequest(groups=[member.group]), 5)
    member.leave()
    sync("after it left")


def heartbeat(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    member = Member(talk, f"beating-{version}")

    def beat(label: str, **more: Any) -> None:
        talk.ask(label, member.heartbeat_request(**more), version)

    beat("before sync")
    member.sync()
    beat("good")
    beat("an unknown member", member_id="nobody")
    beat("no member", member_id="")
    beat("an older generation", generation_id=0)
    beat("a generation ahead", generation_id=9)
    beat("an unknown group", group_id="nobody-made-this")
    beat("an empty group id", group_id="")
    beat("an unknown instance", group_instance_id="nobody")
    member.leave()
    beat("after it left")


def leave_group(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    group = f"left-{version}"
    member = Member(talk, group).sync()

    def leave(label: str, *ids: str, of: str = group, instance: str | None = None) -> None:
        if version >= 3:
            who = [MemberIdentity(member_id=one, group_instance_id=instance) for one in ids]
            talk.ask(label, LeaveGroupRequest(group_id=of, members=who), version)
        else:
            talk.ask(label, LeaveGroupRequest(group_id=of, member_id=ids[0] if ids else ""), version)

    leave("an unknown member", "nobody")
    leave("no member", "")
    leave("of an unknown group", member.id, of="nobody-made-this")
    leave("of an empty group id", member.id, of="")
    if version >= 3:
        leave("none at all")
        leave("an unknown instance", "", instance="nobody")
        leave("known and unknown", member.id, "nobody")
    else:
        leave("good", member.id)
    leave("again", member.id)
    talk.ask("described", DescribeGroupsRequest(groups=[group]), 5)


def describe_groups(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    group = f"described-{version}"
    member = Member(talk, group, instance="static" if version % 2 else None).sync()
    commit(
        talk, f"only-offsets-{version}", talk.make_topic(f"described-groups-{version}"), f"described-groups-{version}"
    )
    talk.ask("stable", DescribeGroupsRequest(groups=[group]), version)
    talk.ask("with operations", DescribeGroupsRequest(groups=[group], include_authorized_operations=True), version)
    talk.ask("with offsets only", DescribeGroupsRequest(groups=[f"only-offsets-{version}"]), version)
    talk.ask("unknown", DescribeGroupsRequest(groups=["nobody-made-this"]), version)
    talk.ask("an empty id", DescribeGroupsRequest(groups=[""]), version)
    talk.ask("several", DescribeGroupsRequest(groups=[group, "nobody-made-this", group]), version)
    talk.ask("none", DescribeGroupsRequest(), version)
    member.leave()
    talk.ask("empty", DescribeGroupsRequest(groups=[group]), version)


def list_groups(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    group = f"listed-{version}"
    member = Member(talk, group)
    talk.ask("all", ListGroupsRequest(), version)
    for states in (["CompletingRebalance"], ["completingrebalance"], ["Stable", "Empty"], ["Nonsense"]):
        talk.ask(f"in {states}", ListGroupsRequest(states_filter=states), version)
    for types in (["classic"], ["Classic", "consumer"], ["share"], ["nonsense"]):
        talk.ask(f"of {types}", ListGroupsRequest(types_filter=types), version)
    member.leave()
    talk.ask("all then", ListGroupsRequest(), version)


def commit(talk: Talk, group: str, topic_id: bytes, topic: str, offset: int = 5, partition: int = 0) -> None:
    part = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
    )
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[part])]
    answer = talk.quietly(OffsetCommitRequest(group_id=group, topics=topics), 10 if topic_id else COMMIT)
    assert answer.topics[0].partitions[0].error_code == 0, answer


def offset_commit(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    topic, group = f"committed-{version}", f"commits-{version}"
    topic_id = talk.make_topic(topic, 2)

    def put(
        label: str,
        *offsets: int,
        of: str = topic,
        id: bytes = topic_id,
        first: int = 0,
        part: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **(part or {}))
            for index, offset in enumerate(offsets, first)
        ]
        named = {"topic_id": id} if version >= 10 else {"name": of}
        topics = [OffsetCommitRequestTopic(partitions=parts, **named)]
        request = OffsetCommitRequest(**({"group_id": group, "topics": topics} | more))
        talk.ask(label, request, version)

    put("by nobody in particular", 5, 6)
    put("with metadata", 7, part={"committed_metadata": "a note"})
    put("with null metadata", 7, part={"committed_metadata": None})
    put("with 4096 letters", 8, part={"committed_metadata": "x" * 4096})
    put("with 4097 letters", 9, part={"committed_metadata": "x" * 4097})
    put("with a leader epoch", 10, part={"committed_leader_epoch": 3})
    put("with a retention", 11, retention_time_ms=1000)
    put("a negative offset", -5)
    put("beyond the end", 10**12)
    put("an unknown partition", 1, first=7)
    put("an unknown topic", 1, of="nobody-made-this", id=NOBODY)
    put("an empty group id", 1, group_id="")
    put("no topics", 1, topics=[])
    put("a generation without member", 1, generation_id_or_member_epoch=3)
    put("a member without generation", 1, member_id="nobody")
    put("an unknown member of an unknown group", 1, group_id="nobody", member_id="m", generation_id_or_member_epoch=1)
    fetch_offsets(talk, group)
    member = Member(talk, group)
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    put("before sync", 20, **mine)
    member.sync()
    put("by a member", 21, 22, **mine)
    put("by an unknown member", 1, member_id="nobody", generation_id_or_member_epoch=member.generation)
    put("of an older generation", 1, member_id=member.id, generation_id_or_member_epoch=0)
    put("of a generation ahead", 1, member_id=member.id, generation_id_or_member_epoch=9)
    put("from outside", 1)
    put("of an unknown instance", 1, group_instance_id="nobody", **mine)
    fetch_offsets(talk, group)
    member.leave()
    put("after it left", 1, **mine)
    put("from outside now", 30)
    fetch_offsets(talk, group)


def fetch_offsets(talk: Talk, group: str) -> None:
    talk.ask("then", OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 9)


def offset_fetch(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    topic, group = f"fetched-{version}", f"fetches-{version}"
    topic_id = talk.make_topic(topic, 3)
    for partition in (0, 1):
        commit(talk, group, topic_id, topic, 10 + partition, partition)

    def get(
        label: str,
        *partitions: int,
        of: str = topic,
        id: bytes = topic_id,
        everything: bool = False,
        group_id: str = group,
        **more: Any,
    ) -> None:
        if version >= 8:
            named = {"topic_id": id} if version >= 10 else {"name": of}
            which = [OffsetFetchRequestTopics(partition_indexes=list(partitions), **named)]
            one = OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else which)
            request = OffsetFetchRequest(groups=[one], **more)
        else:
            topics = [OffsetFetchRequestTopic(name=of, partition_indexes=list(partitions))]
            request = OffsetFetchRequest(group_id=group_id, topics=None if everything else topics, **more)
        talk.ask(label, request, version)

    get("committed and not", 0, 1, 2)
    get("everything", everything=True)
    get("no partitions")
    get("the same twice", 0, 0)
    get("an unknown partition", 9)
    get("an unknown topic", 0, of="nobody-made-this", id=NOBODY)
    get("an unknown group", 0, group_id="nobody-made-this")
    get("everything of an unknown group", everything=True, group_id="nobody-made-this")
    get("an empty group id", 0, group_id="")
    get("stable ones", 0, require_stable=True)
    if version >= 8:
        both = [OffsetFetchRequestGroup(group_id=one, topics=None) for one in (group, "nobody-made-this")]
        talk.ask("two groups", OffsetFetchRequest(groups=both), version)
        talk.ask("no groups", OffsetFetchRequest(), version)
    if version >= 9:
        one = OffsetFetchRequestGroup(group_id=group, member_id="nobody", member_epoch=3, topics=None)
        talk.ask("as a member", OffsetFetchRequest(groups=[one]), version)


def offset_delete(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    topic, group = f"deleted-offsets-{version}", f"deletes-{version}"
    topic_id = talk.make_topic(topic, 3)
    for partition in (0, 1):
        commit(talk, group, topic_id, topic, 10, partition)

    def delete(label: str, *partitions: int, of: str = topic, group_id: str = group) -> None:
        parts = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        topics = [OffsetDeleteRequestTopic(name=of, partitions=parts)]
        talk.ask(label, OffsetDeleteRequest(group_id=group_id, topics=topics), version)

    delete("good", 0)
    delete("what is not committed", 2)
    delete("an unknown partition", 9)
    delete("an unknown topic", 0, of="nobody-made-this")
    delete("of an unknown group", 0, group_id="nobody-made-this")
    delete("of an empty group id", 0, group_id="")
    delete("no partitions")
    fetch_offsets(talk, group)
    member = Member(talk, group).sync()  # subscribed to `t`
    delete("while others are subscribed to", 1)
    talk.make_topic("t")
    delete("what is subscribed to", 0, of="t")
    member.leave()
    fetch_offsets(talk, group)


def delete_groups(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    topic = f"deleted-groups-{version}"
    topic_id = talk.make_topic(topic)
    member = Member(talk, f"living-{version}").sync()
    for name in ("gone", "gone-too"):
        commit(talk, f"{name}-{version}", topic_id, topic)

    def delete(label: str, *groups: str) -> None:
        talk.ask(label, DeleteGroupsRequest(groups_names=list(groups)), version)

    delete("empty", f"gone-{version}")
    delete("again", f"gone-{version}")
    delete("living", member.group)
    delete("an empty id", "")
    delete("several", f"gone-too-{version}", "nobody-made-this", member.group)
    delete("none")
    fetch_offsets(talk, f"gone-{version}")
    member.leave()
    delete("left by its members", member.group)


LOWEST: dict[Callable[[Talk, int], None], int] = {join_group_static: 5}  # the first version with instance ids

SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    find_coordinator: 10,
    join_group: 11,
    join_group_together: 11,
    join_group_static: 11,
    heartbeat: 12,
    leave_group: 13,
    sync_group: 14,
    describe_groups: 15,
    list_groups: 16,
    offset_commit: 8,
    offset_fetch: 9,
    delete_groups: 42,
    offset_delete: 47,
}
