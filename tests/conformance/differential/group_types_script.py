"""Scripts that send offset and group requests to groups of every type: classic, consumer (KIP-848), share and unknown
groups.

Each script sends the same requests to every group. Rules: `docs/spec/share-groups.md#s2-5` and
`docs/spec/consumer-groups.md#s9`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
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
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import join_request
from tests.conformance.differential.share_group_scene import ShareScene, other_groups
from tests.conformance.differential.transactional_client import Client

OFFSET_COMMIT, OFFSET_FETCH, JOIN, DESCRIBE, LIST, TXN_OFFSET_COMMIT, DELETE, OFFSET_DELETE = (
    8,
    9,
    11,
    15,
    16,
    28,
    42,
    47,
)
CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
FIRST_VERSION_WITH_TOPIC_IDS = 10
EPOCHS_SINCE = 9  # first version of OffsetFetch with member epochs
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
GENERATIONS_SINCE = 3  # first version of TxnOffsetCommit with generations
MEMBERS = (("A", 2), ("A", 1), ("A", 3), ("A", -1), ("A", 0), ("A", -2), ("X", 2), ("", -1), ("", 2))


class Types:
    """One topic and one group of each type. Member A belongs to the consumer group and to the share group, in each at
    epoch 2."""

    def __init__(self, talk: Talk, version: int, name: str) -> None:
        scene = ShareScene(talk, 1, f"types-{name}-{version}")
        self.talk, self.version, self.topic, self.topic_id = talk, version, scene.topic, scene.topic_id
        scene.join()
        self.groups = {"a share group": scene.group, **other_groups(scene)}

    def each(self) -> Iterator[tuple[str, str]]:
        yield from self.groups.items()

    def ask(self, label: str, request: Any) -> Any:
        return self.talk.ask(label, request, self.version)


def offset_commit(talk: Talk, version: int) -> None:
    types = Types(talk, version, "commit")
    named: dict[str, Any] = (
        {"topic_id": types.topic_id} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": types.topic}
    )
    for label, group in types.each():
        for member, epoch in MEMBERS:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = OffsetCommitRequestTopic(partitions=[partition], **named)
            request = OffsetCommitRequest(
                group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic]
            )
            types.ask(f"{label}, {member!r} at {epoch}", request)


def offset_fetch(talk: Talk, version: int) -> None:
    types = Types(talk, version, "fetch")
    named: dict[str, Any] = (
        {"topic_id": types.topic_id} if version >= FIRST_VERSION_WITH_TOPIC_IDS else {"name": types.topic}
    )
    for label, group in types.each():
        if version < FIRST_VERSION_WITH_SEVERAL_GROUPS:
            request_topics = [OffsetFetchRequestTopic(name=types.topic, partition_indexes=[0])]
            types.ask(label, OffsetFetchRequest(group_id=group, topics=request_topics))
            continue
        members = MEMBERS if version >= EPOCHS_SINCE else ((None, -1),)
        for member, epoch in members:
            for topics in ([OffsetFetchRequestTopics(partition_indexes=[0], **named)], None):
                one = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
                what = "all" if topics is None else "one"
                types.ask(f"{label}, {what}, {member!r} at {epoch}", OffsetFetchRequest(groups=[one]))


def txn_offset_commit(talk: Talk, version: int) -> None:
    types = Types(talk, version, "txn-commit")
    for label, group in types.each():
        client = Client(talk, f"types-{version}-{label}").init().begin_offsets(group)
        for member, generation in MEMBERS if version >= GENERATIONS_SINCE else (("", -1),):
            partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = TxnOffsetCommitRequestTopic(name=types.topic, partitions=[partition])
            fields: dict[str, Any] = {}
            if version >= GENERATIONS_SINCE:
                fields = {"member_id": member, "generation_id_or_member_epoch": generation}
            request = TxnOffsetCommitRequest(group_id=group, topics=[topic], **client.pair, **fields)
            types.ask(f"{label}, {member!r} at {generation}", request)


def offset_delete(talk: Talk, version: int) -> None:
    types = Types(talk, version, "delete-offsets")
    for label, group in types.each():
        partition = OffsetDeleteRequestPartition(partition_index=0)
        topic = OffsetDeleteRequestTopic(name=types.topic, partitions=[partition])
        types.ask(label, OffsetDeleteRequest(group_id=group, topics=[topic]))


def delete_groups(talk: Talk, version: int) -> None:
    types = Types(talk, version, "delete")
    types.ask("with members", DeleteGroupsRequest(groups_names=list(types.groups.values())))
    types.ask("one of them", DeleteGroupsRequest(groups_names=[types.groups["a share group"]]))


def describe_groups(talk: Talk, version: int) -> None:
    types = Types(talk, version, "describe")
    for label, group in types.each():
        if label != "a classic group":  # The classic group may still be waiting for more members.
            types.ask(label, DescribeGroupsRequest(groups=[group]))


def list_groups(talk: Talk, version: int) -> None:
    types = Types(talk, version, "list")
    combinations: list[dict[str, list[str]]] = [{}]
    if version >= 4:
        combinations += [{"states_filter": [state]} for state in ("Stable", "stable", "Empty", "nope")]
    if version >= 5:
        combinations += [{"types_filter": [kind]} for kind in ("share", "Share", "consumer", "classic", "nope")]
        combinations += [{"types_filter": ["share"], "states_filter": ["Stable"]}]
    for filters in combinations:
        found = {each.group_id: each for each in talk.quietly(ListGroupsRequest(**filters), version).groups}
        for label, group in types.each():
            one = found.get(group)
            shown = None if one is None else (one.protocol_type, one.group_state, one.group_type)
            if label != "a classic group":  # The classic group changes its state a moment later.
                talk.note(f"{label}, {filters}", str(shown))


def classic_members(talk: Talk, version: int) -> None:
    """Sends JoinGroup at each version, followed by other requests of the classic protocol."""
    types = Types(talk, version, "members")
    for label in ("a share group", "no group id"):
        group = types.groups[label]
        types.ask(f"{label}, joining", join_request(group, version=version))
        types.ask(f"{label}, joining as A", join_request(group, "A", version))
        for generation in (2, -1):
            sync = SyncGroupRequest(group_id=group, member_id="A", generation_id=generation)
            talk.ask(f"{label}, synchronising at {generation}", sync, 3)
            beat = HeartbeatRequest(group_id=group, member_id="A", generation_id=generation)
            talk.ask(f"{label}, heartbeat at {generation}", beat, 4)
        for member in ("A", "X"):
            leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)])
            talk.ask(f"{label}, {member} leaves", leave, 5)


def consumer_heartbeat(talk: Talk, version: int) -> None:
    types = Types(talk, version, "consumer")
    group = types.groups["a share group"]
    for epoch in (0, 2, -1, -2):
        fields: dict[str, Any] = {"instance_id": "i"} if epoch == -2 else {}
        if epoch == 0:
            fields = {"subscribed_topic_names": [types.topic], "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="A", member_epoch=epoch, **fields)
        types.ask(f"a share group at {epoch}", request)


def consumer_describe(talk: Talk, version: int) -> None:
    types = Types(talk, version, "consumer-describe")
    group_ids = [types.groups[label] for label in ("a share group", "a classic group", "nobody", "no group id")]
    types.ask("of another type", ConsumerGroupDescribeRequest(group_ids=group_ids))


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    offset_commit: OFFSET_COMMIT,
    offset_fetch: OFFSET_FETCH,
    classic_members: JOIN,
    describe_groups: DESCRIBE,
    list_groups: LIST,
    txn_offset_commit: TXN_OFFSET_COMMIT,
    delete_groups: DELETE,
    offset_delete: OFFSET_DELETE,
    consumer_heartbeat: CONSUMER_HEARTBEAT,
    consumer_describe: CONSUMER_DESCRIBE,
}
