"""Scripts for Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions, DescribeLogDirs and
DescribeCluster."""

from collections.abc import Callable

from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.conversation import Talk
from tests.conformance.differential.records_script import NOBODY


def create_topics(talk: Talk, version: int) -> None:
    def create(label: str, *topics: CreatableTopic, validate_only: bool = False) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
        talk.ask(label, request, version)

    def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        name = f"{name}-{version}" if name.replace("-", "").isalnum() else name
        return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)

    def assigned(
        name: str, *replicas: list[int], partitions: int = -1, first: int = 0, factor: int = -1
    ) -> CreatableTopic:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas, first)
        ]
        return CreatableTopic(
            name=f"{name}-{version}", num_partitions=partitions, replication_factor=factor, assignments=assignments
        )

    create("good", topic("new", 3, retention_ms="1000", cleanup_policy="compact,delete"))
    create("there already", topic("new"))
    create("two", topic("first"), topic("second", 2))
    create("one good, one bad", topic("third"), topic("fourth", 0))
    create("the same twice", topic("twice"), topic("twice"))
    create("defaults", topic("defaults", -1, -1))
    for name in ("", ".", "..", "a b", "ü", "x" * 250, "a/b", "a\0b"):
        create(f"name {name[:5]!r} of {len(name)}", topic(name))
    create("249 letters", CreatableTopic(name="y" * 247 + f"{version:02}", num_partitions=1, replication_factor=1))
    talk.wait_until_led(f"new-{version}", 3)
    create("differs by dot and underscore", topic("dot-x"))
    for partitions in (0, -2):
        create(f"{partitions} partitions", topic("partitions", partitions))
    for replicas in (0, -2, 2, 100):
        create(f"{replicas} replicas", topic("replicas", 1, replicas))
    wrong: dict[str, dict[str, str | None]] = {
        "unknown setting": {"no_such": "1"},
        "bad number": {"retention_ms": "x"},
        "bad list": {"cleanup_policy": "burn"},
        "out of range": {"segment_bytes": "1"},
        "null value": {"retention_ms": None},
        "empty value": {"retention_ms": ""},
        "empty list": {"cleanup_policy": ""},
        "two bad": {"segment_bytes": "1", "retention_ms": "x"},
        "below min isr": {"min_insync_replicas": "0"},
        "bad codec": {"compression_type": "brotli"},
        "bad level": {"compression_gzip_level": "99"},
        "compact lag the wrong way": {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
    }
    for label, configs in wrong.items():
        create(label, topic("configured", 1, 1, **configs))
    create("assigned", assigned("assigned", [1], [1]))
    create("assigned to nobody", assigned("assigned-nobody", []))
    create("assigned to an unknown broker", assigned("assigned-unknown", [7]))
    create("assigned twice to one", assigned("assigned-same", [1, 1]))
    create("assigned from 1", assigned("assigned-from-1", [1], first=1))
    create("assigned and counted", assigned("assigned-counted", [1], partitions=2, factor=1))
    create("only validated", topic("validated", 2), validate_only=True)
    create("validated, bad", topic("validated", 2, 5), validate_only=True)
    create("no topics")
    create("an internal name", topic("__consumer_offsets_not"))


def delete_topics(talk: Talk, version: int) -> None:
    ids = {n: talk.make_topic(f"deleted-{n}-{version}") for n in range(4)}

    def delete(label: str, *names: str, ids: tuple[bytes, ...] = ()) -> None:
        if version >= 6:
            states = [DeleteTopicState(name=name) for name in names]
            states += [DeleteTopicState(topic_id=topic_id) for topic_id in ids]
            request = DeleteTopicsRequest(topics=states, timeout_ms=10_000)
        else:
            request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)
        talk.ask(label, request, version)

    delete("one", f"deleted-0-{version}")
    talk.wait_until_gone(f"deleted-0-{version}")
    delete("the same again", f"deleted-0-{version}")
    delete("one there, one not", f"deleted-1-{version}", "nobody-made-this")
    delete("the same twice", f"deleted-2-{version}", f"deleted-2-{version}")
    delete("an invalid name", "a b")
    delete("none")
    if version >= 6:
        delete("by id", ids=(ids[3],))
        delete("by an unknown id", ids=(NOBODY,))
        state = DeleteTopicState(name=f"deleted-2-{version}", topic_id=ids[2])
        talk.ask("by name and id", DeleteTopicsRequest(topics=[state], timeout_ms=10_000), version)
        talk.ask("by nothing", DeleteTopicsRequest(topics=[DeleteTopicState()], timeout_ms=10_000), version)


def create_partitions(talk: Talk, version: int) -> None:
    name, other = f"grown-{version}", f"grown-other-{version}"
    talk.make_topic(name, 2)
    talk.make_topic(other)

    def grow(label: str, *topics: CreatePartitionsTopic, validate_only: bool = False) -> None:
        request = CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
        talk.ask(label, request, version)

    def to(count: int, *replicas: list[int], of: str = name) -> CreatePartitionsTopic:
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] or None
        return CreatePartitionsTopic(name=of, count=count, assignments=assignments)

    grow("validated", to(9), validate_only=True)
    grow("to 3", to(3))
    for count in (3, 2, 0, -1):
        grow(f"to {count}", to(count))
    grow("assigned", to(4, [1]))
    grow("too many assignments", to(5, [1], [1]))
    grow("too few assignments", to(7, [1]))
    grow("assigned to an unknown broker", to(5, [9]))
    grow("assigned to nobody", to(5, []))
    grow("assigned twice to one", to(5, [1, 1]))
    grow("of an unknown topic", to(5, of="nobody-made-this"))
    grow("one good, one bad", to(2, of=other), to(1))
    grow("the same twice", to(6), to(7))
    grow("none")


def metadata(talk: Talk, version: int) -> None:
    name = f"known-{version}"
    topic_id = talk.make_topic(name, 3)

    def ask(label: str, *topics: MetadataRequestTopic, **more: bool) -> None:
        settings = {"allow_auto_topic_creation": False} | more if version >= 4 else more
        talk.ask(label, MetadataRequest(topics=list(topics), **settings), version)

    def named(*names: str) -> list[MetadataRequestTopic]:
        return [MetadataRequestTopic(name=one) for one in names]

    ask("known", *named(name))
    if version >= 4:
        ask("unknown", *named("nobody-made-this"))
        ask("known and unknown", *named("nobody-made-this", name))
        for invalid in ("a b", "", "..", "x" * 250):
            ask(f"name {invalid[:5]!r}", *named(invalid))
    ask("the same twice", *named(name, name))
    if version >= 1:
        ask("none")
    ask("topic operations", *named(name), include_topic_authorized_operations=True)
    if version >= 8:
        ask("operations on an unknown one", *named("nobody-made-this", "a b"), include_topic_authorized_operations=True)
    ask("cluster operations", *named(name), include_cluster_authorized_operations=True)
    if version >= 10:
        ask("by id", MetadataRequestTopic(topic_id=topic_id, name=None))
        ask("by an unknown id", MetadataRequestTopic(topic_id=NOBODY, name=None))
        ask("by id and name", MetadataRequestTopic(topic_id=topic_id, name=name))
        ask("by no id and no name", MetadataRequestTopic(topic_id=ZERO_UUID, name=None))
    if version >= 4:
        created = f"made-by-asking-{version}"
        ask("may be created", *named(created), allow_auto_topic_creation=True)
        talk.wait_until_led(created)
        ask("is there", *named(created), allow_auto_topic_creation=True)
        ask("an invalid name may be created", *named("a b"), allow_auto_topic_creation=True)


def describe_topic_partitions(talk: Talk, version: int) -> None:
    for topic, partitions in (("a", 3), ("b", 2), ("c", 1)):
        talk.make_topic(f"described-{topic}", partitions)

    def ask(label: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        topics = [TopicRequest(name=name) for name in names]
        talk.ask(
            label, DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor), version
        )

    every = ("described-a", "described-b", "described-c")
    ask("three", *every)
    ask("in another order", *reversed(every))
    ask("the same twice", "described-a", "described-a")
    ask("an unknown one", "described-a", "nobody-made-this")
    ask("an invalid one", "a b")
    for limit in (1, 2, 3, 4, 6, 0, -1):
        ask(f"at most {limit}", *every, limit=limit)
    ask("from a cursor", *every, cursor=Cursor(topic_name="described-a", partition_index=2))
    ask("from a cursor at the end", *every, cursor=Cursor(topic_name="described-c", partition_index=1))
    ask("from a cursor of another topic", *every, cursor=Cursor(topic_name="described-bb", partition_index=0))
    ask("from a cursor, at most 2", *every, limit=2, cursor=Cursor(topic_name="described-a", partition_index=1))
    ask("from a negative cursor", *every, cursor=Cursor(topic_name="described-a", partition_index=-1))


def describe_log_dirs(talk: Talk, version: int) -> None:
    name = f"log-dirs-{version}"
    talk.make_topic(name, 2)

    def ask(label: str, *topics: DescribableLogDirTopic) -> None:
        talk.ask(label, DescribeLogDirsRequest(topics=list(topics)), version)

    ask("one topic", DescribableLogDirTopic(topic=name, partitions=[0, 1]))
    ask("one partition", DescribableLogDirTopic(topic=name, partitions=[1]))
    ask("an unknown partition", DescribableLogDirTopic(topic=name, partitions=[9]))
    ask("an unknown topic", DescribableLogDirTopic(topic="nobody-made-this", partitions=[0]))
    ask("no topics")


def describe_cluster(talk: Talk, version: int) -> None:
    talk.ask("plain", DescribeClusterRequest(), version)
    talk.ask("with operations", DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for endpoint_type in (0, 2, 3):
        talk.ask(f"endpoint type {endpoint_type}", DescribeClusterRequest(endpoint_type=endpoint_type), version)
    talk.ask("fenced ones too", DescribeClusterRequest(include_fenced_brokers=True), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    metadata: 3,
    create_topics: 19,
    delete_topics: 20,
    describe_log_dirs: 35,
    create_partitions: 37,
    describe_cluster: 60,
    describe_topic_partitions: 75,
}
