"""Scripts for CreateTopics, DeleteTopics, CreatePartitions, DescribeCluster and the config requests."""

import time
from collections.abc import Callable, Sequence

from odradek.protocol.messages.alter_configs_request import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
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
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig as IncrementalConfig,
)
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterConfigsResource as IncrementalResource,
)
from odradek.protocol.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.protocol.struct import ZERO_UUID
from tests.conformance.differential.conversation import Talk

TIMEOUT_MS = 20_000
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOBODY = bytes(range(16))  # an unknown topic id


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    places: list[tuple[int, list[int]]] | None = None,
    **settings: str | None,
) -> CreatableTopic:
    """Returns a topic for CreateTopics.

    `places` assigns brokers to each partition and replaces the partition count and the replication factor. Setting
    names use `_` in place of `.`.
    """
    return CreatableTopic(
        name=name,
        num_partitions=-1 if places is not None else partitions,
        replication_factor=-1 if places is not None else replicas,
        assignments=[CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in places or ()],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )


def create_topics(talk: Talk, version: int) -> None:
    def ask(label: str, *topics: CreatableTopic, only_validate: bool = True) -> None:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=only_validate)
        talk.ask(label, request, version)

    prefix = f"ct{version}"
    ask("none")
    ask("bad names", *map(topic, ("", ".", "..", "x" * 250, "a b", "café", "a/b")))
    ask("partitions", topic("p0", 0), topic("p-2", -2), topic("p-1", -1, -1), topic("p5", 5))
    ask("replicas", topic("r0", 1, 0), topic("r-2", 1, -2), topic("r2", 1, 2), topic("r-1", 1, -1))
    ask("twice", topic("d"), topic("d"), topic("e"))
    ask("internal", topic("__consumer_offsets"), topic("__mine"), topic("__cluster_metadata"))
    ask(
        "assignments",
        topic("a1", places=[(0, [1])]),
        topic("a2", places=[(1, [1])]),
        topic("a3", places=[(0, [])]),
        topic("a4", places=[(0, [2])]),
        topic("a5", places=[(0, [1, 1])]),
        topic("a6", places=[(0, [1]), (0, [1])]),
        topic("a7", places=[(1, [1]), (0, [1])]),
        topic("a8", places=[(0, [-1])]),
    )
    mixed = topic("a9", places=[(0, [1])])
    mixed.replication_factor = 1
    ask("assignment and factor", mixed)
    mixed.replication_factor, mixed.num_partitions = -1, 1
    ask("assignment and count", mixed)
    ask(
        "settings",
        topic("c1", no_such="1"),
        topic("c2", retention_ms="soon"),
        topic("c3", retention_ms=None),
        topic("c4", retention_ms="-2"),
        topic("c5", cleanup_policy=""),
        topic("c6", min_compaction_lag_ms="5", max_compaction_lag_ms="4"),
        topic("c7", retention_ms="1", segment_bytes="x", foo="x"),
        topic("c8", remote_storage_enable="true"),
        topic("c9", cleanup_policy="none"),
        topic("c10", segment_bytes="1"),
        topic("c11", internal_segment_bytes="100"),
        topic("c12", preallocate="yes"),
        topic("c13", min_cleanable_dirty_ratio="2"),
        topic("c14", compression_gzip_level="0"),
        topic("c15", leader_replication_throttled_replicas="1"),
        topic("c16", follower_replication_throttled_replicas="*"),
        topic("c17", segment_bytes="99999999999"),
        topic("c18", message_timestamp_type="createtime"),
        topic("c19", cleanup_policy="delete,,compact"),
        topic("c20", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.25", retention_ms=" 5 "),
    )
    ask("too many partitions", topic("small"), topic("big", 10_001))
    ask("too many records", topic("big", 10_000))
    ask("for real", topic(f"{prefix}.a", 2, retention_ms="12345"), topic(f"{prefix}!"), only_validate=False)
    ask("again", topic(f"{prefix}.a"), topic(f"{prefix}_a"), only_validate=False)


def delete_topics(talk: Talk, version: int) -> None:
    def ask(label: str, *wishes: tuple[str | None, bytes]) -> None:
        states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in wishes]
        names = [name or "" for name, _ in wishes]
        by_state = DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        by_name = DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
        talk.ask(label, by_state if version >= 6 else by_name, version)

    name = f"dt{version}"
    topic_id = talk.make_topic(name)
    other_id = talk.make_topic(f"{name}-b")
    ask("none")
    ask("unknown", ("no-such", ZERO_UUID), ("", ZERO_UUID))
    ask("twice", (name, ZERO_UUID), (name, ZERO_UUID))
    if version >= 6:
        ask("neither", (None, ZERO_UUID))
        ask("both", (name, NOBODY))
        ask("unknown id", (None, NOBODY))
        ask("unknown id twice", (None, NOBODY), (None, NOBODY))
        ask("name and id of one topic", (name, ZERO_UUID), (None, topic_id))
        ask("by id", (None, other_id))
        talk.wait_until_gone(f"{name}-b")
        ask("by id, gone", (None, other_id))
    ask("by name", (name, ZERO_UUID))
    talk.wait_until_gone(name)
    ask("by name, gone", (name, ZERO_UUID))


def create_partitions(talk: Talk, version: int) -> None:
    name = f"cp{version}"
    talk.make_topic(name, 2)

    def ask(label: str, *wishes: tuple[str, int, Sequence[list[int]] | None], only_validate: bool = True) -> None:
        topics = [
            CreatePartitionsTopic(
                name=wished,
                count=count,
                assignments=None if ids is None else [CreatePartitionsAssignment(broker_ids=one) for one in ids],
            )
            for wished, count, ids in wishes
        ]
        talk.ask(
            label, CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=only_validate), version
        )

    ask("none")
    for count in (2, 1, 0, -1, 3, 10_003):
        ask(f"to {count}", (name, count, None))
    ask("unknown", ("no-such", 3, None), (name, 3, None), ("", 3, None))
    ask("twice", (name, 3, None), (name, 4, None), ("no-such", 3, None))
    for label, count, places in (
        ("here", 3, [[1]]),
        ("too few places", 4, [[1]]),
        ("too many places", 3, [[1], [1]]),
        ("no places", 3, []),
        ("an unknown broker", 3, [[2]]),
        ("an empty place", 3, [[]]),
        ("one broker twice", 3, [[1, 1]]),
    ):
        ask(label, (name, count, places))
    ask("for real", (name, 4, None), only_validate=False)
    talk.wait_until_led(name, 4)
    ask("again", (name, 4, None))


def alter(
    talk: Talk,
    label: str,
    version: int,
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    only_validate: bool = False,
) -> None:
    request_resources = [
        IncrementalResource(
            resource_type=kind,
            resource_name=name,
            configs=[IncrementalConfig(name=key, config_operation=how, value=value) for key, how, value in configs],
        )
        for kind, name, configs in resources
    ]
    talk.ask(label, IncrementalAlterConfigsRequest(resources=request_resources, validate_only=only_validate), version)


def describe(talk: Talk, label: str, version: int, kind: int, name: str, *keys: str) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    talk.ask(label, DescribeConfigsRequest(resources=[resource], include_synonyms=True), version)


def settled() -> None:
    """Pauses, because a Kafka broker applies a change a moment after the controller has recorded it."""
    time.sleep(0.5)


def incremental_alter_configs(talk: Talk, version: int) -> None:
    name = f"ia{version}"
    talk.make_topic(name)

    def change(label: str, *changes: tuple[str, int, str | None], only_validate: bool = False) -> None:
        alter(talk, label, version, (TOPIC, name, list(changes)), only_validate=only_validate)

    alter(talk, "none", version)
    for kind, wrong in ((TOPIC, "no-such"), (TOPIC, ""), (TOPIC, "a b"), (0, "x"), (3, "x")):
        alter(talk, f"resource {kind} {wrong!r}", version, (kind, wrong, [("retention.ms", SET, "1")]))
    change("nothing")
    change("null", ("retention.ms", SET, None))
    change("bad value", ("retention.ms", SET, "soon"))
    change("unknown", ("foo", SET, "1"))
    change("unknown removed", ("foo", DELETE, None))
    change("append to no list", ("retention.ms", APPEND, "1"))
    change("subtract from no list", ("retention.ms", SUBTRACT, "1"))
    change("append what is not allowed", ("cleanup.policy", APPEND, "burn"))
    change("same twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    change("unknown operation", ("cleanup.policy", 7, "x"))
    change("contradiction", ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5"))
    change("only validated", ("retention.ms", SET, "77"), only_validate=True)
    alter(talk, "one resource twice", version, *[(TOPIC, name, [("retention.ms", SET, "1")])] * 2)
    change("set", ("retention.ms", SET, "99"), ("cleanup.policy", APPEND, "compact"), ("segment.ms", SET, "5"))
    settled()
    describe(talk, "after set", 4, TOPIC, name, "retention.ms", "cleanup.policy", "segment.ms")
    change("taken away", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None))
    settled()
    describe(talk, "after taken away", 4, TOPIC, name, "retention.ms", "cleanup.policy", "segment.ms")
    for broker, key, value in (
        ("1", "node.id", "3"),
        ("", "node.id", "3"),
        ("2", "log.retention.ms", "3"),
        ("x", "log.retention.ms", "3"),
        ("", "listeners", "PLAINTEXT://:1"),
        ("1", "log.retention.ms", "x"),
        ("1", "log.retention.ms", "0"),
        ("1", "log.retention.ms", None),
        ("1", "log.roll.ms", "0"),
        ("1", "num.io.threads", "1"),
        ("1", "num.io.threads", "100"),
        ("1", "ssl.keystore.password", "x"),
        ("1", "log.segment.bytes", "1"),
        ("1", "compression.type", "foo"),
        ("1", "controller.quorum.voters", "foo"),
        ("1", "follower.replication.throttled.rate", "-5"),
        ("1", "foo", "bar"),
    ):
        alter(
            talk, f"broker {broker!r} {key}={value}", version, (BROKER, broker, [(key, SET, value)]), only_validate=True
        )
    alter(talk, "broker append", version, (BROKER, "1", [("log.retention.ms", APPEND, "1")]), only_validate=True)
    for key, how, value in (
        ("root", SET, "DEBUG"),
        ("root", SET, "FOO"),
        ("root", SET, "info"),
        ("root", SET, None),
        ("root", DELETE, None),
        ("root", APPEND, "X"),
        ("no such logger", SET, "DEBUG"),
    ):
        alter(talk, f"logger {key} {how} {value}", version, (LOGGER, "1", [(key, how, value)]), only_validate=True)
    for node in ("2", "", "x"):
        alter(talk, f"logger of {node!r}", version, (LOGGER, node, [("root", SET, "INFO")]), only_validate=True)
    for subscription, key, value in (
        ("", "interval.ms", "500"),
        ("s", "interval.ms", "99"),
        ("s", "interval.ms", "x"),
        ("s", "foo", "1"),
        ("s", "match", "x"),
        ("s", "match", "client_id=x,foo=y"),
        ("s", "match", "client_id=["),
        ("s", "metrics", "a,b"),
    ):
        what = (CLIENT_METRICS, subscription, [(key, SET, value)])
        alter(talk, f"subscription {subscription!r} {key}={value}", version, what, only_validate=True)
    for group, key, value in (
        ("", "consumer.session.timeout.ms", "50000"),
        ("g", "consumer.session.timeout.ms", "1"),
        ("g", "consumer.session.timeout.ms", "60001"),
        ("g", "consumer.heartbeat.interval.ms", "1"),
        ("g", "share.delivery.count.limit", "100"),
        ("g", "share.isolation.level", "x"),
        ("g", "share.auto.offset.reset", "by_duration:x"),
        ("g", "share.auto.offset.reset", "by_duration:P1D"),
        ("g", "foo", "1"),
    ):
        alter(talk, f"group {group!r} {key}={value}", version, (GROUP, group, [(key, SET, value)]), only_validate=True)


def alter_configs(talk: Talk, version: int) -> None:
    name = f"ac{version}"
    talk.make_topic(name, retention_ms="5", segment_ms="6")

    def ask(label: str, kind: int, what: str, *configs: tuple[str, str | None], only_validate: bool = False) -> None:
        new_configs = [AlterableConfig(name=key, value=value) for key, value in configs]
        resource = AlterConfigsResource(resource_type=kind, resource_name=what, configs=new_configs)
        talk.ask(label, AlterConfigsRequest(resources=[resource], validate_only=only_validate), version)

    talk.ask("none", AlterConfigsRequest(), version)
    ask("unknown topic", TOPIC, "no-such", ("retention.ms", "1"))
    ask("no topic", TOPIC, "", ("retention.ms", "1"))
    ask("null", TOPIC, name, ("retention.ms", None))
    ask("same twice", TOPIC, name, ("retention.ms", "1"), ("retention.ms", "2"))
    ask("unknown setting", TOPIC, name, ("foo", "1"))
    ask("bad value", TOPIC, name, ("retention.ms", "soon"))
    ask("unknown kind", 3, "x", ("a", "1"))
    ask("logger", LOGGER, "1", ("root", "INFO"), only_validate=True)
    ask("broker", BROKER, "1", ("foo", "1"), only_validate=True)
    ask("read-only", BROKER, "1", ("node.id", "1"), only_validate=True)
    ask("only validated", TOPIC, name, ("retention.ms", "77"), only_validate=True)
    settled()
    describe(talk, "before", 4, TOPIC, name, "retention.ms", "segment.ms", "segment.bytes")
    ask("replace", TOPIC, name, ("segment.bytes", "2000000"), ("segment.ms", "6"))
    settled()
    describe(talk, "after", 4, TOPIC, name, "retention.ms", "segment.ms", "segment.bytes")
    ask("clear", TOPIC, name)
    settled()
    describe(talk, "cleared", 4, TOPIC, name, "retention.ms", "segment.ms", "segment.bytes")


def describe_configs(talk: Talk, version: int) -> None:
    name = f"dc{version}"
    talk.make_topic(name, retention_ms="5000", cleanup_policy="compact", min_cleanable_dirty_ratio="1e-2")
    talk.ask("none", DescribeConfigsRequest(), version)
    describe(talk, "a topic", version, TOPIC, name)
    describe(talk, "some of a topic", version, TOPIC, name, "retention.ms", "foo")
    for kind, wrong in (
        *((TOPIC, "no-such"), (TOPIC, "a b"), (TOPIC, ""), (TOPIC, "__cluster_metadata")),
        *((BROKER, "2"), (BROKER, "x"), (LOGGER, ""), (LOGGER, "2"), (LOGGER, "x")),
        *((CLIENT_METRICS, ""), (GROUP, ""), (0, "x"), (3, "x"), (64, "x")),
    ):
        describe(talk, f"{kind} {wrong!r}", version, kind, wrong)
    describe(talk, "a subscription that is not there", version, CLIENT_METRICS, "none")
    describe(talk, "a group that is not there", version, GROUP, "none")
    describe(talk, "the broker", version, BROKER, "1")
    without = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"])]
    talk.ask("without synonyms", DescribeConfigsRequest(resources=without, include_synonyms=False), version)


def list_config_resources(talk: Talk, version: int) -> None:
    alter(talk, "a subscription", 1, (CLIENT_METRICS, f"lc{version}", [("interval.ms", SET, "500")]))
    settled()
    for types in ([], [4], [8], [16], [3], [0], [4, 4]):
        talk.ask(f"types {types}", ListConfigResourcesRequest(resource_types=types), version)
    alter(talk, "no subscription", 1, (CLIENT_METRICS, f"lc{version}", [("interval.ms", DELETE, None)]))


def describe_cluster(talk: Talk, version: int) -> None:
    talk.ask("plain", DescribeClusterRequest(), version)
    talk.ask("operations", DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for kind in (1, 2, 3):
        talk.ask(f"endpoints {kind}", DescribeClusterRequest(endpoint_type=kind), version)
    talk.ask("fenced", DescribeClusterRequest(include_fenced_brokers=True), version)


SCRIPTS: dict[Callable[[Talk, int], None], int] = {
    create_topics: 19,
    delete_topics: 20,
    describe_configs: 32,
    alter_configs: 33,
    create_partitions: 37,
    incremental_alter_configs: 44,
    describe_cluster: 60,
    list_config_resources: 74,
}
