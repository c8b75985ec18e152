"""Scripts with requests whose lists name an item twice, in one entry or in two, and with requests that contain several
errors, where the order of the checks determines which error is returned."""

from collections.abc import Callable, Sequence
from typing import Any

from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest
from odradek.protocol.struct import Struct
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.groups_script import Member, wait_for_coordinator
from tests.conformance.differential.records_script import GOOD, NOBODY, WRONG_BATCHES, Producer, batch, offsets

SHOWN = ("index", "partition", "error_code", "offset", "name", "topic", "group_id", "watermark", "key", "member_id")
Split = Sequence[Sequence[int]]  # partitions in each entry for the topic
TWICE: dict[str, Split] = {"in one entry": [[0, 0, 1]], "in two entries": [[0], [0, 1]], "apart": [[0], [1]]}


def spread(answer: object) -> list[tuple[object, ...]]:
    """Returns the names and results of every element in the response's lists, sorted, because their order is
    arbitrary."""
    found: list[tuple[object, ...]] = []

    def walk(value: Struct, above: tuple[object, ...]) -> None:
        own = tuple(
            (name, shown)
            for name in value.__slots__
            if name.endswith(SHOWN) and not isinstance(shown := getattr(value, name), (list, Struct))
        )
        found.append((*above, *own))
        for name in value.__slots__:
            inner = getattr(value, name)
            for each in inner if isinstance(inner, list) else []:
                if isinstance(each, Struct):
                    walk(each, (*above, *own))

    if isinstance(answer, Struct):
        walk(answer, ())
    return sorted(found, key=str)


class Asker:
    def __init__(self, talk: Talk, version: int) -> None:
        self.talk, self.version = talk, version

    def __call__(self, label: str, request: object) -> None:
        answer = self.talk.ask(label, request, self.version)  # type: ignore[arg-type]
        self.talk.note(f"{label}, each", spread(answer))


def produce(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, version), Asker(talk, version)
    name = to.make_topic(f"produce-twice-{version}", 2)
    for label, split in TWICE.items():
        topics = []
        for partitions in split:
            topic = to.topic(name)
            topic.partition_data = [PartitionProduceData(index=index, records=GOOD) for index in partitions]
            topics.append(topic)
        ask(f"batches {label}", ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics))
        offsets(talk, f"batches {label}, then", name, -1)


def produce_several_wrong(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    to, ask = Producer(talk, version), Asker(talk, version)
    name = to.make_topic(f"produce-several-wrong-{version}")
    compacted = to.make_topic(f"produce-compacted-{version}", cleanup_policy="compact")
    batches = {label: each for label, each in WRONG_BATCHES.items() if label not in {"null", "too large"}}
    batches |= {"good": GOOD, "without key": batch(b"v", key=None)}
    topics = [name, compacted, "nobody-made-this"] + ([] if version >= 13 else ["__consumer_offsets"])
    for topic in topics:
        for acks in (-1, 5) if topic == "__consumer_offsets" else (5,):
            for label, records in batches.items():
                request = to.request(to.topic(topic, p0=records), acks=acks)
                ask(f"{label} to {topic.removesuffix(str(version))} with acks {acks}", request)


def fetch(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, 11), Asker(talk, version)
    name = to.make_topic(f"fetch-twice-{version}", 2)
    for partition in (0, 1):
        to.put("preparation", name, GOOD, partition=partition)

    def topic(*parts: FetchPartition) -> FetchTopic:
        if version >= 13:
            return FetchTopic(topic_id=to._ids[name], partitions=list(parts))
        return FetchTopic(topic=name, partitions=list(parts))

    def part(partition: int, offset: int = 0, **more: int) -> FetchPartition:
        return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=10_000, **more)  # type: ignore[arg-type]

    def get(label: str, *topics: FetchTopic) -> None:
        ask(label, FetchRequest(max_wait_ms=1, min_bytes=0, max_bytes=50_000, topics=list(topics)))

    for label, split in TWICE.items():
        get(label, *(topic(*map(part, partitions)) for partitions in split))
    get("twice, elsewhere", topic(part(0), part(0, 3), part(0, 9)))
    get("an old epoch behind the end", topic(part(0, 9, current_leader_epoch=7)))
    get("a diverged epoch behind the end", topic(part(0, 9, last_fetched_epoch=7)))


def list_offsets(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, 11), Asker(talk, version)
    name = to.make_topic(f"list-twice-{version}", 2)
    to.put("preparation", name, GOOD)

    def topic(*parts: tuple[int, int], of: str = name, epoch: int = -1) -> ListOffsetsTopic:
        epochs = {"current_leader_epoch": epoch} if version >= 4 else {}
        return ListOffsetsTopic(
            name=of, partitions=[ListOffsetsPartition(partition_index=p, timestamp=at, **epochs) for p, at in parts]
        )

    def get(label: str, *topics: ListOffsetsTopic, **more: int) -> None:
        ask(label, ListOffsetsRequest(replica_id=-1, topics=list(topics), **more))

    for label, split in TWICE.items():
        topics = [topic(*((each, -1) for each in partitions)) for partitions in split]
        get(label, *topics)
        get(f"{label}, and an unknown partition twice", topic((9, -1)), *topics, topic((9, -1)))
    get("twice, and it does not exist", topic((9, -1), (9, -2)))
    get("twice, and the topic does not exist", topic((0, -1), (0, -2), of="nobody-made-this"))
    get("a future epoch at an unknown time", topic((0, -99), epoch=7))
    get("unknown isolation at an unknown time", topic((0, -99)), isolation_level=7)
    get("unknown isolation of an unknown topic", topic((0, -1), of="nobody-made-this"), isolation_level=7)


def delete_records(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    to, ask = Producer(talk, 11), Asker(talk, version)
    for number, (label, split) in enumerate(TWICE.items()):
        name = to.make_topic(f"delete-twice-{number}-{version}", 2)
        for partition in (0, 1):
            to.put("preparation", name, GOOD, partition=partition)
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=1 + at + 2 * entry)
                    for at, index in enumerate(partitions)
                ],
            )
            for entry, partitions in enumerate(split)
        ]
        ask(label, DeleteRecordsRequest(topics=topics, timeout_ms=10_000))
        for what, topic in (("topic", "nobody-made-this"), ("partition", name)):
            part = DeleteRecordsPartition(partition_index=9, offset=0)
            wrong = DeleteRecordsTopic(name=topic, partitions=[part])
            request = DeleteRecordsRequest(topics=[wrong, *topics, wrong], timeout_ms=10_000)
            ask(f"{label}, and an unknown {what} twice", request)
        offsets(talk, f"after {label}", name, -2)
    compacted = to.make_topic(f"delete-compacted-{version}", cleanup_policy="compact")
    for topic, index in ((compacted, 0), (compacted, 7), ("__consumer_offsets", 0), ("__consumer_offsets", 99)):
        for offset in (0, 9, -5):
            part = DeleteRecordsPartition(partition_index=index, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=10_000
            )
            ask(f"{topic.removesuffix(str(version))} {index} to {offset}", request)


def offset_for_leader_epoch(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, 11), Asker(talk, version)
    name = to.make_topic(f"epochs-twice-{version}", 2)
    to.put("preparation", name, GOOD)
    for label, split in TWICE.items():
        topics = [
            OffsetForLeaderTopic(
                topic=name, partitions=[OffsetForLeaderPartition(partition=p, leader_epoch=0) for p in partitions]
            )
            for partitions in split
        ]
        ask(label, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
        wrong = OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=9, leader_epoch=0)])
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[wrong, *topics, wrong])
        ask(f"{label}, and an unknown partition twice", request)


def describe_producers(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, 11), Asker(talk, version)
    name = to.make_topic(f"producers-twice-{version}", 2)
    for label, split in TWICE.items():
        topics = [TopicRequest(name=name, partition_indexes=list(each)) for each in split]
        ask(label, DescribeProducersRequest(topics=topics))
        for what, wrong in (("topic", "nobody-made-this"), ("partition", name)):
            other = TopicRequest(name=wrong, partition_indexes=[9])
            ask(f"{label}, and an unknown {what} twice", DescribeProducersRequest(topics=[other, *topics, other]))


def describe_log_dirs(talk: Talk, version: int) -> None:
    to, ask = Producer(talk, 11), Asker(talk, version)
    name = to.make_topic(f"directories-twice-{version}", 2)
    for label, split in TWICE.items():
        topics = [DescribableLogDirTopic(topic=name, partitions=list(partitions)) for partitions in split]
        ask(label, DescribeLogDirsRequest(topics=topics))


def offset_commit(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    ask = Asker(talk, version)
    name = f"commit-twice-{version}"
    topic_id = talk.make_topic(name, 2)

    def topic(
        *parts: int, note: str = "", first: int = 10, of: str = name, id: bytes = topic_id
    ) -> OffsetCommitRequestTopic:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=first + at, committed_metadata=note)
            for at, index in enumerate(parts)
        ]
        if version >= 10:
            return OffsetCommitRequestTopic(topic_id=id, partitions=partitions)
        return OffsetCommitRequestTopic(name=of, partitions=partitions)

    def committed(label: str, group: str) -> None:
        fetch_group = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1])]
        )
        talk.ask(f"then {label}", OffsetFetchRequest(groups=[fetch_group]), 9)

    def elsewhere() -> OffsetCommitRequestTopic:
        return topic(0, of="nobody-made-this", id=NOBODY)

    def commit(group: str, *topics: OffsetCommitRequestTopic, **more: Any) -> OffsetCommitRequest:
        return OffsetCommitRequest(group_id=group, topics=list(topics), **more)

    long = "x" * 5000
    wrong = {"member_id": "nobody", "generation_id_or_member_epoch": 3}
    for number, (label, split) in enumerate(TWICE.items()):
        group = f"{name}-{number}"
        topics = [topic(*partitions, first=10 * (1 + entry)) for entry, partitions in enumerate(split)]
        ask(label, OffsetCommitRequest(group_id=group, topics=topics))
        committed(label, group)
        for what, other in {"topic": elsewhere(), "partition": topic(9), "long note": topic(1, note=long)}.items():
            ask(f"{label}, and twice a {what} that is refused", commit(group, other, *topics, other))
        ask(f"{label}, by a stranger, and a topic", commit(group, elsewhere(), *topics, **wrong))
    group = f"{name}-wrong"
    ask("twice, one note too long", commit(group, topic(0), topic(0, note=long)))
    committed("one note too long", group)
    for label, topics in {
        "unknown": [elsewhere()],
        "unknown partition": [topic(9)],
        "unknown partition, long": [topic(9, note=long)],
        "long": [topic(0, note=long)],
        "long and good": [topic(0, note=long), topic(1)],
        "unknown and good": [topic(0), elsewhere()],
        "none": [],
    }.items():
        ask(f"{label}, a stranger", commit(group, *topics, **wrong))
        ask(f"{label}, no group", commit("", *topics))
        ask(f"{label}, by itself", commit(group, *topics))


def offset_fetch(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    ask = Asker(talk, version)
    name = f"fetch-offsets-twice-{version}"
    topic_id = talk.make_topic(name, 2)
    committed = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        )
    ]
    talk.quietly(OffsetCommitRequest(group_id=name, topics=committed), 9)
    for label, split in TWICE.items():
        if version >= 8:
            names = {"topic_id": topic_id} if version >= 10 else {"name": name}
            topics = [OffsetFetchRequestTopics(partition_indexes=list(each), **names) for each in split]
            group = OffsetFetchRequestGroup(group_id=name, topics=topics)
            ask(label, OffsetFetchRequest(groups=[group]))
            ask(f"{label}, the group twice", OffsetFetchRequest(groups=[group, group]))
            unknown = {"topic_id": NOBODY} if version >= 10 else {"name": "nobody-made-this"}
            other = OffsetFetchRequestTopics(partition_indexes=[0], **unknown)
            more = OffsetFetchRequestGroup(group_id=name, topics=[other, *topics, other])
            ask(f"{label}, and an unknown topic twice", OffsetFetchRequest(groups=[more]))
        else:
            older = [OffsetFetchRequestTopic(name=name, partition_indexes=list(each)) for each in split]
            ask(label, OffsetFetchRequest(group_id=name, topics=older))


def offset_delete(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    ask = Asker(talk, version)
    name = f"offsets-gone-twice-{version}"
    talk.make_topic(name, 2)
    for label, split in TWICE.items():
        parts = [OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in (0, 1)]
        committed = [OffsetCommitRequestTopic(name=name, partitions=parts)]
        talk.quietly(OffsetCommitRequest(group_id=name, topics=committed), 9)
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
            for partitions in split
        ]
        ask(label, OffsetDeleteRequest(group_id=name, topics=topics))
        unknown = OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=9)])
        ask(f"{label}, and two unknown", OffsetDeleteRequest(group_id=name, topics=[unknown, *topics, unknown]))
        ask(f"{label}, in an unknown group", OffsetDeleteRequest(group_id="nobody-made-this", topics=topics))


def groups(talk: Talk, version: int) -> None:
    """Names a group twice in DescribeGroups, and in DeleteGroups if that API also has this version."""
    wait_for_coordinator(talk)
    name = f"group-twice-{version}"
    Asker(talk, version)("described twice", DescribeGroupsRequest(groups=[name, name]))
    if version <= 2:
        topic = f"{name}-topic"
        talk.make_topic(topic)
        parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        committed = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
        talk.quietly(OffsetCommitRequest(group_id=name, topics=committed), 9)
        Asker(talk, version)("deleted twice", DeleteGroupsRequest(groups_names=[name, name]))
        Asker(talk, version)("unknown, twice", DeleteGroupsRequest(groups_names=["nobody", "nobody"]))


def list_groups(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    request = ListGroupsRequest(states_filter=["nonsense", "nonsense"])
    Asker(talk, version)("a state twice", request)


def leave_group(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    ask = Asker(talk, version)
    member = Member(talk, f"left-twice-{version}").sync()
    stranger = MemberIdentity(member_id="nobody")
    who = MemberIdentity(member_id=member.id)
    for label, members in {"a stranger": [stranger, stranger], "a member": [who, who], "again": [who]}.items():
        answer = talk.quietly(LeaveGroupRequest(group_id=member.group, members=members), version)
        talk.note(f"{label} twice", [answer.error_code, *(each.error_code for each in answer.members)])
    ask("no group, a stranger", LeaveGroupRequest(group_id="", members=[stranger]))
    ask("no group, nobody", LeaveGroupRequest(group_id="", members=[]))
    ask("nobody", LeaveGroupRequest(group_id=member.group, members=[]))


def join_group(talk: Talk, version: int) -> None:
    wait_for_coordinator(talk)
    twice = [JoinGroupRequestProtocol(name="range", metadata=each) for each in (b"one", b"two")]

    def join(label: str, protocols: list[JoinGroupRequestProtocol], **more: object) -> None:
        fields: dict[str, object] = {
            "group_id": f"joined-twice-{version}-{label}".replace(" ", "-"),
            "session_timeout_ms": 30_000,
            "protocol_type": "consumer",
        } | more
        rebalance = {"rebalance_timeout_ms": 30_000} if version >= 1 else {}
        request = JoinGroupRequest(protocols=protocols, **rebalance, **fields)  # type: ignore[arg-type]
        answer = talk.ask(label, request, version)
        if answer is not None and answer.error_code == 79:
            request.member_id = answer.member_id
            talk.ask(f"{label}, with the id it was given", request, version)

    join("a protocol twice", twice)
    join("no group, no time", twice, group_id="", session_timeout_ms=1)
    join("a stranger, no time", twice, member_id="nobody", session_timeout_ms=1)
    join("a stranger, no protocols", [], member_id="nobody")
    join("no protocols, no time", [], session_timeout_ms=1)


def create_topics(talk: Talk, version: int) -> None:
    ask = Asker(talk, version)
    talk.make_topic(f"there-{version}")

    def topic(name: str, factor: int = 1, partitions: int = 1, **configs: str | None) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
        )

    for name in (f"there-{version}", "a b", "", f"new-{version}"):
        for factor, partitions in ((3, 1), (1, 0), (3, 0), (0, 0)):
            for configs in ({}, {"segment_bytes": "1"}, {"nonsense": "1"}, {"segment_bytes": None}):
                if (name, factor, partitions, configs) != (f"new-{version}", 1, 1, {}):
                    label = f"{name.removesuffix(str(version))!r} {factor} {partitions} {configs}"
                    ask(label, CreateTopicsRequest(topics=[topic(name, factor, partitions, **configs)]))


# the first versions whose lists can contain an item twice
LOWEST: dict[Callable[[Talk, int], None], int] = {leave_group: 3, list_groups: 4}

SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    produce: 0,
    produce_several_wrong: 0,
    fetch: 1,
    list_offsets: 2,
    offset_commit: 8,
    offset_fetch: 9,
    join_group: 11,
    leave_group: 13,
    groups: 15,
    list_groups: 16,
    create_topics: 19,
    delete_records: 21,
    offset_for_leader_epoch: 23,
    describe_log_dirs: 35,
    offset_delete: 47,
    describe_producers: 61,
}
