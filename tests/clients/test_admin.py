"""Tests topics, settings, groups, offsets and the cluster, with the admin clients of confluent-kafka and
kafka-python."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec as UntypedOffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import ElectionNotNeededError, NoError
from kafka.structs import TopicPartitionReplica

from tests.clients.admin import create_topic, is_led, list_topics, new_admin
from tests.clients.speakers import SPEAKERS, Message, wait_for
from tests.support.broker_process import BrokerProcess

CONFLUENT = SPEAKERS["confluent-kafka"]
OffsetSpec: Any = UntypedOffsetSpec


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return new_admin(bootstrap)


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def result(futures: dict[Any, Future[Any]] | Future[Any]) -> Any:
    """Waits for an admin client's call that has a single result and returns that result."""
    if isinstance(futures, dict):
        (future,) = futures.values()
        return future.result(20)
    return futures.result(20)


def refusal(futures: dict[Any, Future[Any]] | Future[Any]) -> str:
    with pytest.raises(KafkaException) as error:
        result(futures)
    name: str = error.value.args[0].name()
    return name


def fresh(name: str) -> str:
    return f"{name}-{time.time_ns()}"


# --- Topics.


def test_a_created_topic_is_described_with_its_id_and_partitions(admin: AdminClient, bootstrap: str) -> None:
    name = create_topic(bootstrap, "described", partitions=3)
    described = result(admin.describe_topics(TopicCollection([name])))
    assert described.name == name
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader.id == partition.replicas[0].id == partition.isr[0].id == 1


def test_creating_a_topic_twice_is_refused(admin: AdminClient, topic: str) -> None:
    assert refusal(admin.create_topics([NewTopic(topic, 1, 1)])) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("not a name", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("..", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("x" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        ("no-partitions", 0, 1, {}, "INVALID_PARTITIONS"),
        ("too-many-replicas", 1, 3, {}, "INVALID_REPLICATION_FACTOR"),
        ("unknown-setting", 1, 1, {"no.such.setting": "1"}, "INVALID_CONFIG"),
        ("bad-setting", 1, 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
        ("bad-number", 1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
    ],
)
def test_an_impossible_topic_is_refused(
    admin: AdminClient, name: str, partitions: int, replicas: int, config: dict[str, str], code: str
) -> None:
    assert refusal(admin.create_topics([NewTopic(name, partitions, replicas, config=config)])) == code


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = fresh("only-validated")
    result(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in list_topics(admin).topics


def test_a_topic_without_numbers_gets_the_broker_s_defaults(admin: AdminClient) -> None:
    name = fresh("defaults")
    result(admin.create_topics([NewTopic(name, -1, -1)]))
    wait_for("the topic", lambda: is_led(admin, name, 1))


def test_a_deleted_topic_is_gone_and_its_name_is_free(admin: AdminClient, bootstrap: str) -> None:
    name = create_topic(bootstrap, "deleted")
    first_id = str(result(admin.describe_topics(TopicCollection([name]))).topic_id)
    CONFLUENT.produce(bootstrap, name, [Message(b"old")] * 3)
    result(admin.delete_topics([name]))
    wait_for("the deletion", lambda: name not in list_topics(admin).topics)
    assert refusal(admin.delete_topics([name])) == "UNKNOWN_TOPIC_OR_PART"
    create_topic(bootstrap, name, exact=True)
    assert str(result(admin.describe_topics(TopicCollection([name]))).topic_id) != first_id
    assert CONFLUENT.produce(bootstrap, name, [Message(b"new")]) == [0]


def test_partitions_can_be_added_but_not_taken_away(admin: AdminClient, bootstrap: str) -> None:
    name = create_topic(bootstrap, "grows", partitions=2)
    CONFLUENT.produce(bootstrap, name, [Message(b"before", partition=1)])
    result(admin.create_partitions([NewPartitions(name, 4)]))
    wait_for("the partitions", lambda: is_led(admin, name, 4))
    assert CONFLUENT.produce(bootstrap, name, [Message(b"a", partition=3), Message(b"b", partition=1)]) == [0, 1]
    for count in (4, 3):
        assert refusal(admin.create_partitions([NewPartitions(name, count)])) == "INVALID_PARTITIONS"
    assert refusal(admin.create_partitions([NewPartitions(fresh("none"), 4)])) == "UNKNOWN_TOPIC_OR_PART"


# --- Settings.


def settings_of(admin: AdminClient, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = result(admin.describe_configs([ConfigResource(kind, name)]))
    return found


def test_a_topic_s_settings_show_value_and_source(admin: AdminClient, bootstrap: str) -> None:
    name = create_topic(bootstrap, "configured", config={"retention.ms": 1234567, "cleanup.policy": "compact"})
    settings = settings_of(admin, "topic", name)
    assert (settings["retention.ms"].value, settings["cleanup.policy"].value) == ("1234567", "compact")
    assert settings["retention.ms"].source == 1  # DYNAMIC_TOPIC_CONFIG
    assert (settings["segment.bytes"].value, settings["segment.bytes"].source) == ("1073741824", 5)  # DEFAULT_CONFIG
    assert settings["retention.ms"].is_default is False
    assert not any(setting.is_sensitive for setting in settings.values())


def test_settings_are_changed_one_by_one(admin: AdminClient, topic: str) -> None:
    def alter(setting: str, value: str | None, operation: Any) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=operation)
        result(admin.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=[entry])]))

    def current(setting: str) -> str:
        value: str = settings_of(admin, "topic", topic)[setting].value
        return value

    alter("retention.ms", "99", AlterConfigOpType.SET)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_for("the settings", lambda: current("cleanup.policy") == "delete,compact")
    assert current("retention.ms") == "99"
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_for("the settings", lambda: current("retention.ms") == "604800000")
    assert current("cleanup.policy") == "compact"


def test_a_changed_setting_takes_effect(admin: AdminClient, bootstrap: str, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    result(admin.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=[entry])]))
    wait_for("the setting", lambda: settings_of(admin, "topic", topic)["max.message.bytes"].value == "2000")
    assert refused_size(bootstrap, topic) == 10  # MESSAGE_TOO_LARGE


def refused_size(bootstrap: str, topic: str) -> int | None:
    try:
        CONFLUENT.produce(bootstrap, topic, [Message(bytes(3000))])
    except Exception as refused:
        return getattr(refused, "code", None)
    return None


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [("retention.ms", "x", "INVALID_CONFIG"), ("no.such.setting", "1", "INVALID_CONFIG")],
)
def test_an_impossible_setting_is_refused(admin: AdminClient, topic: str, setting: str, value: str, code: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    assert refusal(admin.incremental_alter_configs([resource])) == code


def test_settings_of_the_broker_have_kafka_s_defaults(admin: AdminClient) -> None:
    settings = settings_of(admin, "broker", "1")
    expected = {"message.max.bytes": "1048588", "log.retention.hours": "168", "num.partitions": "1", "node.id": "1"}
    assert {name: settings[name].value for name in expected} == expected
    assert settings["node.id"].is_read_only
    assert not settings["log.retention.ms"].is_read_only


def test_the_older_way_to_alter_settings_replaces_all_of_them(python_admin: Any, admin: AdminClient) -> None:
    name = fresh("replaced")
    result(admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "1000", "segment.ms": "2000000"})]))
    wait_for("the topic", lambda: is_led(admin, name, 1))
    result(admin.alter_configs([ConfigResource("topic", name, set_config={"retention.ms": "3000"})]))
    wait_for("the settings", lambda: settings_of(admin, "topic", name)["retention.ms"].value == "3000")
    assert settings_of(admin, "topic", name)["segment.ms"].value == "604800000"


# --- Records and offsets.


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap: str, topic: str) -> None:
    CONFLUENT.produce(bootstrap, topic, [Message(b"%d" % n) for n in range(10)])
    deleted = result(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    assert CONFLUENT.bounds(bootstrap, topic) == (4, 10)
    assert CONFLUENT.read(bootstrap, topic, 6, start=4)[0].value == b"4"
    assert refusal(admin.delete_records([TopicPartition(topic, 0, 11)])) == "OFFSET_OUT_OF_RANGE"
    result(admin.delete_records([TopicPartition(topic, 0, -1)]))  # -1 deletes all records.
    assert CONFLUENT.bounds(bootstrap, topic) == (10, 10)
    assert CONFLUENT.produce(bootstrap, topic, [Message(b"next")]) == [10]


def test_offsets_are_listed_by_every_specification(admin: AdminClient, bootstrap: str, topic: str) -> None:
    times = [1_700_000_000_000 + at for at in (5, 9, 7)]
    CONFLUENT.produce(bootstrap, topic, [Message(b"v", timestamp_ms=at) for at in times])

    def listed(spec: Any) -> tuple[int, int]:
        found = result(admin.list_offsets({TopicPartition(topic, 0): spec}))
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, times[1])
    assert listed(OffsetSpec.for_timestamp(times[0] + 1)) == (1, times[1])


# --- Groups.


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """Creates an empty group that has committed offset 10, the end of the only partition of `topic`."""
    CONFLUENT.produce(bootstrap, topic, [Message(b"%d" % n) for n in range(10)])
    member = CONFLUENT.join(bootstrap, topic, f"group-{topic}")
    wait_for("records", lambda: member.poll() != [])
    member.commit()
    member.close()
    return f"group-{topic}"


def offset_of(admin: AdminClient, group: str, topic: str) -> int:
    found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    offsets: dict[str, int] = {one.topic: one.offset for one in found.topic_partitions}
    return offsets.get(topic, -1)


def test_groups_are_listed_and_described(admin: AdminClient, bootstrap: str, topic: str, group: str) -> None:
    listed = result(admin.list_consumer_groups())
    assert group in {one.group_id for one in listed.valid}
    described = result(admin.describe_consumer_groups([group]))
    assert (described.state.name, described.members, described.coordinator.id) == ("EMPTY", [], 1)
    member = CONFLUENT.join(bootstrap, topic, group)
    wait_for("the assignment", lambda: member.poll() or member.assignment())
    described = result(admin.describe_consumer_groups([group]))
    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    (one,) = described.members
    assert [(owned.topic, owned.partition) for owned in one.assignment.topic_partitions] == [(topic, 0)]
    assert one.host == "/127.0.0.1"
    member.close()


def test_an_unknown_group_is_described_as_dead(python_admin: Any) -> None:
    described = python_admin.describe_groups(["nobody-knows"])["nobody-knows"]
    assert described["group_state"] == "Dead"


def test_committed_offsets_are_listed_altered_and_deleted(
    admin: AdminClient, python_admin: Any, topic: str, group: str
) -> None:
    assert offset_of(admin, group, topic) == 10
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    result(admin.alter_consumer_group_offsets([back]))
    assert offset_of(admin, group, topic) == 3
    python_admin.delete_group_offsets(group, [PythonTopicPartition(topic, 0)])
    assert offset_of(admin, group, topic) == -1


def test_offsets_of_a_group_with_members_are_not_altered_from_outside(
    admin: AdminClient, bootstrap: str, topic: str, group: str
) -> None:
    member = CONFLUENT.join(bootstrap, topic, group)
    wait_for("the assignment", lambda: member.poll() or member.assignment())
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    (refused,) = result(admin.alter_consumer_group_offsets([back])).topic_partitions
    assert refused.error.name() == "UNKNOWN_MEMBER_ID"
    assert offset_of(admin, group, topic) == 10
    assert refusal(admin.delete_consumer_groups([group])) == "NON_EMPTY_GROUP"
    member.close()


def test_an_empty_group_is_deleted_with_its_offsets(admin: AdminClient, topic: str, group: str) -> None:
    result(admin.delete_consumer_groups([group]))
    assert refusal(admin.delete_consumer_groups([group])) == "GROUP_ID_NOT_FOUND"
    assert offset_of(admin, group, topic) == -1


# --- The cluster.


def test_the_cluster_has_one_node_which_is_its_controller(admin: AdminClient, bootstrap: str) -> None:
    described = result(admin.describe_cluster())
    (node,) = described.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert described.controller.id == node.id == 1
    assert len(described.cluster_id) == 22


def test_log_dirs_name_the_directory_and_the_size_of_each_partition(
    python_admin: Any, bootstrap: str, topic: str
) -> None:
    CONFLUENT.produce(bootstrap, topic, [Message(bytes(1000))])
    (node,) = python_admin.describe_log_dirs()
    (directory,) = node["log_dirs"] if isinstance(node, dict) else node[1]
    sizes = {
        (one["name"], partition["partition_index"]): partition["partition_size"]
        for one in directory["topics"]
        for partition in one["partitions"]
    }
    assert sizes[topic, 0] > 1000


def test_a_relative_log_directory_is_reported_as_an_absolute_path(tmp_path: Path) -> None:
    relative = Path(os.path.relpath(tmp_path / "data"))
    with BrokerProcess(relative) as broker:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        (node,) = client.describe_log_dirs()
        client.close()
        (directory,) = node["log_dirs"] if isinstance(node, dict) else node[1]
        assert directory["log_dir"] == str(relative.absolute())


def test_producers_of_a_partition_are_described(python_admin: Any, bootstrap: str, topic: str) -> None:
    CONFLUENT.produce(bootstrap, topic, [Message(b"v")] * 5)
    (found,) = python_admin.describe_producers([PythonTopicPartition(topic, 0)]).values()
    (producer,) = found.active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 4)
    assert producer.current_transaction_start_offset == -1


def test_the_one_replica_stays_leads_and_votes(python_admin: Any, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "stays", partitions=2)
    partition = PythonTopicPartition(topic, 0)
    (node,) = python_admin.describe_log_dirs()
    assert python_admin.alter_partition_reassignments({partition: [node["broker"]]}) == {partition: None}
    assert python_admin.list_partition_reassignments([partition]) == {}
    replica = TopicPartitionReplica(topic, 0, node["broker"])
    moved = python_admin.alter_replica_log_dirs({replica: node["log_dirs"][0]["log_dir"]})
    assert moved[replica] is NoError
    (elected,) = python_admin.elect_leaders(0, {topic: [0, 1]}).replica_election_results
    assert [(one[0], one[1]) for one in elected[1]] == [(index, ElectionNotNeededError.errno) for index in (0, 1)]
    (metadata,) = python_admin.describe_metadata_quorum()["topics"]
    assert metadata["partitions"][0]["leader_id"] == node["broker"]
