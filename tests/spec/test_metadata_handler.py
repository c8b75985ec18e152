"""Tests that Metadata and DescribeTopicPartitions show a client the same topics as Kafka 4.3.1."""

from typing import Any

import pytest

from odradek.broker.api.authorized_operations import NOT_ASKED_FOR
from odradek.broker.handlers.topics.metadata import describe_topic_partitions, metadata
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, RegisterBrokerRecord
from tests.support.broker_scene import BrokerScene, answer_of
from tests.support.fake_disk import FakeDisk

E = ErrorCode
UNKNOWN_ID = b"nobody's topic i"
VERSIONS = range(14)
ALL_TOPIC_OPERATIONS, ALL_CLUSTER_OPERATIONS = 3576, 8096


@pytest.fixture
def scene() -> BrokerScene:
    scene = BrokerScene(FakeDisk(), "/data")
    scene.topic("a", 2)
    scene.topic("b")
    return scene


def ask(scene: BrokerScene, *names: str, version: int = 13, everything: bool = False, **more: Any) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return answer(scene, MetadataRequest(topics=None if everything else topics, **more), version)


def by_id(scene: BrokerScene, *topic_ids: bytes, name: str | None = None, version: int = 13) -> MetadataResponse:
    topics = [MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id in topic_ids]
    return answer(scene, MetadataRequest(topics=topics), version)


def answer(scene: BrokerScene, request: MetadataRequest, version: int) -> MetadataResponse:
    """Returns the response after it has been encoded and decoded."""
    response = answer_of(metadata(request, scene.context(ApiKey.METADATA, version), scene.broker))
    return decode(MetadataResponse, version, encode(response, version))


def codes(response: MetadataResponse) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


def only(response: MetadataResponse) -> MetadataResponseTopic:
    (topic,) = response.topics
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_returned_with_its_partitions_and_their_leader(scene: BrokerScene, version: int) -> None:
    topic = only(ask(scene, "a", version=version))
    assert (topic.error_code, topic.name) == (0, "a")
    partitions = [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions]
    assert partitions == [(0, 1, [1], [1]), (1, 1, [1], [1])]
    if version >= 10:
        assert topic.topic_id == scene.image.topics["a"].topic_id


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_is_returned_with_the_address_of_the_requested_listener(scene: BrokerScene, version: int) -> None:
    response = ask(scene, "a", version=version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(1, "localhost", 9092)]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == "cluster"


def test_null_means_all_topics_and_in_version_0_an_empty_list_does(scene: BrokerScene) -> None:
    assert set(codes(ask(scene, everything=True))) == {"a", "b"}
    assert set(codes(ask(scene, version=0))) == {"a", "b"}
    assert codes(ask(scene, version=1)) == {}


class ComparedName(str):
    """A topic name that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_unknown_names_are_not_compared_with_one_another(scene: BrokerScene) -> None:
    names = [ComparedName(f"unknown-{number}") for number in range(100)]
    ComparedName.comparisons = 0
    assert set(codes(ask(scene, *names)).values()) == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert ComparedName.comparisons < 20 * len(names)


def test_a_topic_named_twice_is_returned_once(scene: BrokerScene) -> None:
    assert [topic.name for topic in ask(scene, "a", "b", "a").topics] == ["a", "b"]


def test_a_missing_topic_is_created_and_meanwhile_unknown(scene: BrokerScene) -> None:
    assert codes(ask(scene, "a", "new")) == {"a": E.NONE, "new": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert scene.created == ["new"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_may_ask_not_to_create_anything_from_version_4_on(scene: BrokerScene, version: int) -> None:
    allow = version < 4
    response = ask(scene, "new", version=version, allow_auto_topic_creation=allow)
    assert codes(response) == {"new": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert scene.created == (["new"] if allow else [])


def test_the_broker_creates_no_topic_if_auto_creation_is_off() -> None:
    scene = BrokerScene(FakeDisk(), "/data", auto_create_topics_enable=False)
    assert codes(ask(scene, "new")) == {"new": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert scene.created == []


@pytest.mark.parametrize("name", ["", ".", "..", "bad name!", "x" * 250])
def test_an_invalid_topic_name_gets_invalid_topic(scene: BrokerScene, name: str) -> None:
    assert codes(ask(scene, name)) == {name: E.INVALID_TOPIC_EXCEPTION}
    assert scene.created == []


def test_internal_topics_are_marked_and_created_too(scene: BrokerScene) -> None:
    topic = only(ask(scene, "__consumer_offsets"))
    assert (topic.error_code, topic.is_internal) == (E.UNKNOWN_TOPIC_OR_PARTITION.value, True)
    assert scene.created == ["__consumer_offsets"]


def test_topics_are_returned_by_id(scene: BrokerScene) -> None:
    topic_id = scene.image.topics["a"].topic_id
    assert codes(by_id(scene, topic_id, UNKNOWN_ID)) == {"a": E.NONE, None: E.UNKNOWN_TOPIC_ID}
    assert [topic.topic_id for topic in by_id(scene, UNKNOWN_ID).topics] == [UNKNOWN_ID]


def test_names_are_ignored_if_the_request_has_a_topic_id(scene: BrokerScene) -> None:
    """Checks that the broker, like Kafka, ignores the names in a request that contains a topic id. Clients send either
    ids or names."""
    assert codes(by_id(scene, UNKNOWN_ID, name="a")) == {None: E.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize(("version", "is_refused"), [(10, True), (11, True), (12, False)])
def test_topic_ids_in_requests_are_refused_before_version_12(
    scene: BrokerScene, version: int, is_refused: bool
) -> None:
    topic_id = scene.image.topics["a"].topic_id
    if is_refused:
        with pytest.raises(KafkaError) as refusal:
            by_id(scene, topic_id, version=version)
        assert refusal.value.code is E.INVALID_REQUEST
    else:
        assert codes(by_id(scene, topic_id, version=version)) == {"a": E.NONE}


def test_neither_name_nor_id_is_refused(scene: BrokerScene) -> None:
    with pytest.raises(KafkaError) as refusal:
        by_id(scene, bytes(16))
    assert refusal.value.code is E.INVALID_REQUEST


def test_a_partition_without_a_leader_gets_leader_not_available(scene: BrokerScene) -> None:
    topic_id = scene.image.topics["b"].topic_id
    scene.image.replay(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1))
    (partition,) = only(ask(scene, "b")).partitions
    assert (partition.error_code, partition.leader_id) == (E.LEADER_NOT_AVAILABLE.value, -1)


def fence_a_follower(scene: BrokerScene, topic: str) -> None:
    """Adds a replica of partition 0 on broker 2, which is not running."""
    topic_id = scene.image.topics[topic].topic_id
    endpoints = [BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9093)]
    scene.image.replay(RegisterBrokerRecord(broker_id=2, fenced=True, end_points=endpoints))
    scene.image.replay(PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=[2, 1], isr=[1]))


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_of_a_stopped_broker_are_offline_and_missing_in_version_0(scene: BrokerScene, version: int) -> None:
    fence_a_follower(scene, "b")
    (partition,) = only(ask(scene, "b", version=version)).partitions
    code, replicas = (E.REPLICA_NOT_AVAILABLE, [1]) if version == 0 else (E.NONE, [2, 1])
    assert (partition.error_code, partition.leader_id) == (code.value, 1)
    assert (partition.replica_nodes, partition.isr_nodes) == (replicas, [1])
    assert partition.offline_replicas == ([2] if version >= 5 else [])


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_returned_on_request(scene: BrokerScene, version: int) -> None:
    assert only(ask(scene, "a", version=version)).topic_authorized_operations == NOT_ASKED_FOR
    response = ask(scene, "a", version=version, include_topic_authorized_operations=True)
    assert only(response).topic_authorized_operations == ALL_TOPIC_OPERATIONS
    if version <= 10:
        cluster = ask(scene, version=version, include_cluster_authorized_operations=True)
        assert cluster.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


def test_authorized_operations_are_returned_for_missing_topics(scene: BrokerScene) -> None:
    response = ask(scene, "nobody", "a b", include_topic_authorized_operations=True)
    assert codes(response) == {"nobody": E.UNKNOWN_TOPIC_OR_PARTITION, "a b": E.INVALID_TOPIC_EXCEPTION}
    assert {topic.topic_authorized_operations for topic in response.topics} == {ALL_TOPIC_OPERATIONS}


# --- DescribeTopicPartitions

Page = list[tuple[str | None, list[int]]]


def page(
    scene: BrokerScene, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[Page, tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    context = scene.context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    response = answer_of(describe_topic_partitions(request, context, scene.broker))
    response = decode(DescribeTopicPartitionsResponse, 0, encode(response, 0))
    next_cursor = response.next_cursor
    topics = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]
    return topics, None if next_cursor is None else (next_cursor.topic_name, next_cursor.partition_index)


def test_a_page_lists_offline_replicas_and_has_no_error_without_a_leader(scene: BrokerScene) -> None:
    fence_a_follower(scene, "b")
    topic_id = scene.image.topics["b"].topic_id
    scene.image.replay(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1))
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")])
    context = scene.context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    (partition,) = answer_of(describe_topic_partitions(request, context, scene.broker)).topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (0, -1, [2])


A, B = ("a", [0, 1]), ("b", [0])


@pytest.mark.parametrize(
    ("limit", "expected", "next_cursor"),
    [
        (2000, [A, B], None),
        (3, [A, B], None),
        (2, [A], ("b", 0)),
        (1, [("a", [0])], ("a", 1)),
        (0, [("a", [0])], ("a", 1)),
        (-1, [("a", [0])], ("a", 1)),
    ],
)
def test_a_page_has_the_requested_number_of_partitions_and_at_least_one(
    scene: BrokerScene, limit: int, expected: Page, next_cursor: tuple[str, int] | None
) -> None:
    assert page(scene, "b", "a", limit=limit) == (expected, next_cursor)
    assert page(scene, limit=limit) == (expected, next_cursor)


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [(("a", 0), [A, B]), (("a", 1), [("a", [1]), B]), (("a", 7), [("a", []), B]), (("b", 0), [B])],
)
def test_the_next_page_begins_at_the_cursor(scene: BrokerScene, cursor: tuple[str, int], expected: Page) -> None:
    assert page(scene, "a", "b", cursor=cursor) == (expected, None)


def test_the_broker_bounds_a_page_too() -> None:
    scene = BrokerScene(FakeDisk(), "/data", max_request_partition_size_limit=1)
    scene.topic("a", 2)
    assert page(scene) == ([("a", [0])], ("a", 1))


def test_unknown_topics_cost_nothing_but_a_page_ends_before_them_when_it_is_full(scene: BrokerScene) -> None:
    assert page(scene, "Z", "b", "c", limit=1) == ([("Z", []), B], ("c", 0))


def test_the_pages_together_contain_every_partition_once(scene: BrokerScene) -> None:
    cursor, seen = None, []
    while True:
        topics, cursor = page(scene, limit=1, cursor=cursor)
        seen += [(name, index) for name, indexes in topics for index in indexes]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize("cursor", [("a", -1), ("c", 0)])
def test_a_cursor_that_points_nowhere_is_refused(scene: BrokerScene, cursor: tuple[str, int]) -> None:
    with pytest.raises(KafkaError) as refusal:
        page(scene, "a", "b", cursor=cursor)
    assert refusal.value.code is E.INVALID_REQUEST
