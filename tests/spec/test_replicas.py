"""Tests that ElectLeaders and the reassignment APIs on a single broker give the same answers as Kafka 4.3.1."""

from collections.abc import Iterator

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.replicas import ElectionType, Reassignment, elect_leader, reassign
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.struct import Message
from tests.support.in_process_broker import InProcessBroker, M
from tests.support.metadata import NODE, apply, image_with

UNKNOWN, NOT_NEEDED = E.UNKNOWN_TOPIC_OR_PARTITION, E.ELECTION_NOT_NEEDED
ELSEWHERE = NODE.node_id + 1


def said(error: KafkaError | None) -> tuple[E | None, str | None]:
    return (None, None) if error is None else (error.code, error.message)


def image_of_a_larger_cluster(*replicas: int, leader: int = NODE.node_id) -> MetadataImage:
    """Returns the metadata of a topic "t" with one partition, as in a directory once used by one of several brokers."""
    image = image_with("t")
    partition = image.topics["t"].partitions[0]
    partition.replicas, partition.leader, partition.isr = list(replicas), leader, [leader]
    partition.directories = [NODE.directory_id if one == NODE.node_id else bytes(16) for one in replicas]
    return image


# --- ElectLeaders


@pytest.mark.parametrize("election", list(ElectionType))
def test_an_existing_leader_is_not_elected_again(election: ElectionType) -> None:
    error = elect_leader(image_with("t"), "t", 0, election)
    assert said(error) == (E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


@pytest.mark.parametrize(
    ("name", "index", "words"),
    [
        ("none", 0, "No such topic as none"),
        ("t", 1, "No such partition as t-1"),
        ("t", -1, "No such partition as t--1"),
    ],
)
def test_no_leader_is_elected_for_a_missing_partition(name: str, index: int, words: str) -> None:
    error = elect_leader(image_with("t"), name, index, ElectionType.PREFERRED)
    assert said(error) == (E.UNKNOWN_TOPIC_OR_PARTITION, words)


def test_a_preferred_leader_on_another_broker_is_not_available() -> None:
    image = image_of_a_larger_cluster(ELSEWHERE, NODE.node_id)
    assert elect_leader(image, "t", 0, ElectionType.PREFERRED).code is E.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect_leader(image, "t", 0, ElectionType.UNCLEAN).code is E.ELECTION_NOT_NEEDED


def test_a_partition_that_only_other_brokers_have_gets_no_leader() -> None:
    image = image_of_a_larger_cluster(ELSEWHERE)
    image.topics["t"].partitions[0].leader = None
    assert elect_leader(image, "t", 0, ElectionType.UNCLEAN).code is E.ELIGIBLE_LEADERS_NOT_AVAILABLE


# --- AlterPartitionReassignments


def decision_texts(
    image: MetadataImage, *wishes: tuple[str, int, list[int] | None], factor_may_change: bool = True
) -> list[tuple[E | None, str | None]]:
    decision = reassign(image, [Reassignment(*wish) for wish in wishes], node=NODE, factor_may_change=factor_may_change)
    assert decision.records == ()
    return [said(error) for error in decision.response]


def test_a_reassignment_to_the_current_broker_changes_nothing() -> None:
    assert decision_texts(image_with("t"), ("t", 0, [1]), ("t", 0, [1])) == [(None, None)] * 2


def test_there_is_no_reassignment_to_cancel() -> None:
    assert decision_texts(image_with("t"), ("t", 0, None)) == [(E.NO_REASSIGNMENT_IN_PROGRESS, None)]


@pytest.mark.parametrize(
    ("name", "index", "words"),
    [
        ("none", 0, "Unable to find a topic named none."),
        ("t", 1, "Unable to find partition t:1."),
        ("t", -1, "Unable to find partition t:-1."),
    ],
)
@pytest.mark.parametrize("replicas", [[1], [], None])
def test_an_unknown_partition_does_not_affect_existing_ones(
    name: str, index: int, words: str, replicas: list[int] | None
) -> None:
    answers = decision_texts(image_with("t"), (name, index, replicas), ("t", 0, [1]))
    assert answers == [(E.UNKNOWN_TOPIC_OR_PARTITION, words), (None, None)]


@pytest.mark.parametrize("factor_may_change", [True, False])
@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        ([1, 2], "The manual partition assignment includes broker 2, but no such broker is registered."),
        ([1, 1], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_replicas_are_on_this_broker_once(replicas: list[int], words: str, factor_may_change: bool) -> None:
    answers = decision_texts(image_with("t"), ("t", 0, replicas), factor_may_change=factor_may_change)
    assert answers == [(E.INVALID_REPLICA_ASSIGNMENT, words)]


def test_replicas_on_brokers_that_are_not_there_can_be_given_up() -> None:
    image = image_of_a_larger_cluster(ELSEWHERE, NODE.node_id)
    partition = image.topics["t"].partitions[0]
    led = (partition.leader, partition.leader_epoch)

    decision = reassign(image, [Reassignment("t", 0, [NODE.node_id])], node=NODE, factor_may_change=True)
    assert decision.response == [None]
    (record,) = decision.records
    assert isinstance(record, PartitionChangeRecord)
    apply(image, decision)
    assert (partition.replicas, partition.isr) == ([NODE.node_id], [NODE.node_id])
    assert partition.directories == [NODE.directory_id]
    assert (partition.leader, partition.leader_epoch) == led
    assert elect_leader(image, "t", 0, ElectionType.PREFERRED).code is E.ELECTION_NOT_NEEDED


def test_nodes_that_share_a_log_stay_replicas_and_a_leader_is_kept_among_them() -> None:
    image, nodes = image_of_a_larger_cluster(NODE.node_id, ELSEWHERE), NODE._replace(other_ids=(ELSEWHERE,))
    for replicas, code in (
        ([NODE.node_id], None),
        ([ELSEWHERE, NODE.node_id], None),
        ([ELSEWHERE], E.INVALID_REPLICA_ASSIGNMENT),  # The broker ELSEWHERE is not running.
        ([NODE.node_id, ELSEWHERE + 1], E.INVALID_REPLICA_ASSIGNMENT),
    ):
        decision = reassign(image, [Reassignment("t", 0, replicas)], node=nodes, factor_may_change=True)
        assert [said(each)[0] for each in decision.response] == [code]
        assert decision.records == ()


def test_a_leader_outside_the_new_assignment_is_replaced_by_the_first_in_sync_replica() -> None:
    stopped, runs, too = ELSEWHERE, ELSEWHERE + 1, ELSEWHERE + 2
    image = image_of_a_larger_cluster(NODE.node_id, stopped, runs, too)
    partition = image.topics["t"].partitions[0]
    partition.isr = [NODE.node_id, too, runs]
    replicas, epoch = partition.replicas, partition.leader_epoch

    nodes = NODE._replace(other_ids=(stopped, runs, too))
    wish = Reassignment("t", 0, [stopped, runs, too])
    decision = reassign(image, [wish], node=nodes, factor_may_change=True)
    assert decision.response == [None]
    apply(image, decision)
    assert (partition.leader, partition.leader_epoch, partition.replicas) == (runs, epoch + 1, replicas)


def test_replicas_on_missing_brokers_are_kept_if_the_replication_factor_must_not_change() -> None:
    image = image_of_a_larger_cluster(ELSEWHERE, NODE.node_id)
    for node in (NODE, NODE._replace(other_ids=(ELSEWHERE,))):
        decision = reassign(image, [Reassignment("t", 0, [NODE.node_id])], node=node, factor_may_change=False)
        answers = [said(each) for each in decision.response]
        assert answers == [(E.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 1")]


def test_a_partition_of_other_brokers_cannot_be_moved_to_this_one() -> None:
    image = image_of_a_larger_cluster(ELSEWHERE, leader=ELSEWHERE)
    ((code, _),) = decision_texts(image, ("t", 0, [NODE.node_id]))
    assert code is E.INVALID_REPLICA_ASSIGNMENT


# --- Requests to a running broker.


class Client:
    """A client of a broker that has a topic "t" with two partitions."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self._connection = broker.connection("User:ANONYMOUS")
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        broker.ask(self._connection, CreateTopicsRequest(topics=[topic]), 7)

    def ask(self, request: Message, version: int, answer: type[M]) -> M:
        return self._broker.answer(self._connection, request, version, answer)

    def elect(self, topics: list[TopicPartitions] | None, version: int = 2, kind: int = 0) -> ElectLeadersResponse:
        request = ElectLeadersRequest(topic_partitions=topics, election_type=kind)
        return self.ask(request, version, ElectLeadersResponse)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with InProcessBroker(tmp_path_factory.mktemp("replicas"), {}) as broker:
        yield Client(broker)


def elected(response: ElectLeadersResponse) -> dict[str, list[tuple[int, E]]]:
    return {
        topic.topic: [(each.partition_id, E(each.error_code)) for each in topic.partition_result]
        for topic in response.replica_election_results
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_partition_that_is_named_is_answered(client: Client, version: int) -> None:
    topics = [TopicPartitions(topic="t", partitions=[1, 0, 7]), TopicPartitions(topic="none", partitions=[0])]
    response = client.elect(topics, version)
    assert response.error_code == 0
    assert elected(response) == {"t": [(1, NOT_NEEDED), (0, NOT_NEEDED), (7, UNKNOWN)], "none": [(0, UNKNOWN)]}


def test_an_election_of_all_partitions_omits_those_that_need_none(client: Client) -> None:
    assert elected(client.elect(None)) == {"t": []}


def test_a_type_of_election_that_kafka_does_not_have_is_refused_for_all(client: Client) -> None:
    response = client.elect([TopicPartitions(topic="t", partitions=[0])], kind=2)
    assert E(response.error_code) is E.INVALID_REQUEST
    assert elected(response) == {"t": [(0, E.INVALID_REQUEST)]}
    assert client.elect([], kind=2).error_code == 0


@pytest.mark.parametrize("version", [0, 1])
def test_each_reassignment_is_answered_on_its_own(client: Client, version: int) -> None:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in ((1, [1]), (0, [1, 2]), (0, None))
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    response = client.ask(request, version, AlterPartitionReassignmentsResponse)
    (topic,) = response.responses
    assert (response.error_code, response.error_message, topic.name) == (0, None, "t")
    assert [(each.partition_index, E(each.error_code)) for each in topic.partitions] == [
        (1, E.NONE),
        (0, E.INVALID_REPLICA_ASSIGNMENT),
        (0, E.NO_REASSIGNMENT_IN_PROGRESS),
    ]


def test_an_empty_list_of_reassignments_succeeds(client: Client) -> None:
    response = client.ask(AlterPartitionReassignmentsRequest(), 1, AlterPartitionReassignmentsResponse)
    assert (response.error_code, response.responses) == (0, [])


@pytest.mark.parametrize("names", [None, [], ["t", "none"]])
def test_no_reassignment_is_ever_in_progress(client: Client, names: list[str] | None) -> None:
    request = ListPartitionReassignmentsRequest(topics=None)
    if names is not None:
        request.topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in names]
    response = client.ask(request, 0, ListPartitionReassignmentsResponse)
    assert (response.error_code, response.topics) == (0, [])
