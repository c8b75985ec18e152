"""Tests that DescribeQuorum answers like Kafka 4.3.1 with one voter. `security/test_authorization_matrix.py` tests the
required rights."""

from types import SimpleNamespace

import pytest

from odradek.broker.handlers.cluster.cluster import describe_quorum
from odradek.broker.metadata.image import Node
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import describe_quorum_request as quorum
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData
from tests.support.broker_scene import NODE_ID, NOW_MS, BrokerScene
from tests.support.fake_disk import FakeDisk

E = ErrorCode
EPOCH, END_OFFSET = 5, 77


@pytest.fixture
def scene() -> BrokerScene:
    scene = BrokerScene(FakeDisk(), "/data")
    scene.topic("t", 2)
    scene.image.next_offset = END_OFFSET
    node = Node(NODE_ID, b"directory of one")
    scene.broker.metadata = SimpleNamespace(image=scene.image, node=node, leader_epoch=EPOCH)
    return scene


def described(
    scene: BrokerScene, version: int, **indexes_by_topic: list[int]
) -> tuple[dict[str, list[PartitionData]], list[int]]:
    topics = [
        quorum.TopicData(topic_name=name, partitions=[quorum.PartitionData(partition_index=one) for one in indexes])
        for name, indexes in indexes_by_topic.items()
    ]
    context = scene.context(ApiKey.DESCRIBE_QUORUM, version)
    response = describe_quorum(quorum.DescribeQuorumRequest(topics=topics), context, scene.broker)
    answer = decode(DescribeQuorumResponse, version, encode(response, version))
    assert answer.error_code == 0
    return {topic.topic_name: topic.partitions for topic in answer.topics}, [node.node_id for node in answer.nodes]


@pytest.mark.parametrize("version", range(3))
def test_this_broker_is_the_leader_and_the_only_voter(scene: BrokerScene, version: int) -> None:
    topics, nodes = described(scene, version, __cluster_metadata=[0])
    ((name, (partition,)),) = topics.items()
    assert (name, E(partition.error_code)) == ("__cluster_metadata", E.NONE)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (NODE_ID, EPOCH, END_OFFSET)
    assert partition.observers == []
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, END_OFFSET)
    last = NOW_MS if version >= 1 else -1
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (last, last)
    assert nodes == ([NODE_ID] if version >= 2 else [])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "indexes_by_topic",
    [{"__cluster_metadata": [1]}, {"__cluster_metadata": [0, 1]}, {"t": [0]}, {"__cluster_metadata": [0], "t": [0]}],
)
def test_only_the_metadata_log_alone_has_a_quorum(
    scene: BrokerScene, version: int, indexes_by_topic: dict[str, list[int]]
) -> None:
    topics, nodes = described(scene, version, **indexes_by_topic)
    errors = {name: [(one.partition_index, E(one.error_code)) for one in each] for name, each in topics.items()}
    assert errors == {
        name: [(index, E.UNKNOWN_TOPIC_OR_PARTITION) for index in each] for name, each in indexes_by_topic.items()
    }
    assert nodes == []
    if version >= 2:
        (message,) = {one.error_message for each in topics.values() for one in each}
        assert message == "This server does not host this topic-partition."


@pytest.mark.parametrize("indexes_by_topic", [{}, {"__cluster_metadata": list[int]()}])
def test_a_request_without_partitions_gets_no_partitions(
    scene: BrokerScene, indexes_by_topic: dict[str, list[int]]
) -> None:
    topics, nodes = described(scene, 2, **indexes_by_topic)
    assert (list(topics), nodes) == (list(indexes_by_topic), [])
    assert not any(topics.values())
