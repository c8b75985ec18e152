"""Tests that real clients can work with all nodes of a controlled cluster while leaders and coordinators move and nodes
stop.

The node ids have gaps. Other test files also use clusters with several nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place

from odradek.broker.api.served import SERVED
from odradek.client import ShareRecord
from odradek.client import TopicPartition as ClientTopicPartition
from odradek.client.sync import Admin
from odradek.protocol.api_facts import Coordinator, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import request_class
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct
from odradek.testing.sync import Cluster, Odradek, Refused, Unmet
from tests.clients.admin import list_topics
from tests.clients.client_work import CLIENTS, GROUP, TOPIC, TRANSACTIONAL_ID
from tests.clients.own_share_consumers import more, share_group, worker
from tests.clients.speakers import wait_for
from tests.support.wire import Wire

NODES = (4, 1, 2**31 - 1)


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster(nodes=NODES) as cluster:
        yield cluster


def make_topic(kafka: Cluster, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(10)


def leaders(kafka: Cluster, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    partitions = list_topics(admin, topic).topics[topic].partitions
    return [partitions[index].leader for index in sorted(partitions)]


def produce(kafka: Cluster, topic: str, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    failures: list[object] = []
    for value in values:
        note_failure = lambda error, _: failures.append(error) if error else None  # noqa: E731
        producer.produce(topic, value, partition=partition, on_delivery=note_failure)
    assert producer.flush(20) == 0
    assert failures == []


def read(consumer: Consumer, count: int) -> list[bytes]:
    found = []
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        if len(found) == count:
            return found
    raise AssertionError(found)


def until_the_end(consumer: Consumer) -> list[bytes]:
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if (error := message.error()) is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            return found


def test_clients_see_all_nodes_and_the_leaders_are_distributed(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 6)
    brokers = list_topics(AdminClient({"bootstrap.servers": kafka.bootstrap})).brokers
    assert sorted(brokers) == sorted(NODES)
    assert len({broker.port for broker in brokers.values()}) == 3
    assert sorted(leaders(kafka, "orders")) == sorted([*NODES, *NODES])


def test_as_many_replicas_as_nodes_are_made_and_no_more(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("orders", 2, 3)])["orders"].result(10)
    partitions = list_topics(admin, "orders").topics["orders"].partitions.values()
    assert [sorted(one.replicas) for one in partitions] == [sorted(NODES)] * 2
    with pytest.raises(KafkaException, match="only 3 broker"):
        admin.create_topics([NewTopic("payments", 1, 4)])["payments"].result(10)


def test_a_partition_is_led_by_the_first_running_node_that_a_client_assigns(kafka: Cluster) -> None:
    admin, (first, second, third) = AdminClient({"bootstrap.servers": kafka.bootstrap}), NODES
    assigned = NewTopic("orders", 3, replica_assignment=[[third], [first, third], [second]])
    admin.create_topics([assigned])["orders"].result(10)
    more = NewPartitions("orders", 4, replica_assignment=[[third, first]])
    admin.create_partitions([more])["orders"].result(10)
    assert leaders(kafka, "orders") == [third, first, second, third]
    partitions = list_topics(admin, "orders").topics["orders"].partitions
    # Replicas that the request does not list come last.
    assert partitions[0].replicas == partitions[0].isrs == [third, first, second]
    assert partitions[1].replicas == partitions[1].isrs == [first, third, second]
    kafka.stop_node(third)
    admin.create_topics([NewTopic("payments", 1, replica_assignment=[[third, second]])])["payments"].result(10)
    assert leaders(kafka, "payments") == [second]
    payments = list_topics(admin, "payments").topics["payments"].partitions[0]
    assert (payments.replicas, payments.isrs) == ([third, second, first], [second, first])
    nobody = NewTopic("bills", 1, replica_assignment=[[max(NODES) + 1]])
    with pytest.raises(KafkaException, match="no such broker"):
        admin.create_topics([nobody])["bills"].result(10)


def test_replicas_of_a_node_that_is_stopped_are_out_of_sync_until_it_is_back(kafka: Cluster) -> None:
    admin, (first, second, third) = AdminClient({"bootstrap.servers": kafka.bootstrap}), NODES
    assigned = NewTopic("orders", 2, replica_assignment=[[first, second, third], [second, third, first]])
    admin.create_topics([assigned])["orders"].result(10)

    def in_sync() -> list[list[int]]:
        partitions = list_topics(admin, "orders").topics["orders"].partitions
        return [sorted(partitions[index].isrs) for index in range(2)]

    kafka.stop_node(first)
    assert in_sync() == [sorted([second, third])] * 2
    assert leaders(kafka, "orders")[1] == second
    kafka.start_node(first)
    assert in_sync() == [sorted(NODES)] * 2


def test_a_producer_and_a_consumer_follow_a_leader_that_moves(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    for turn in range(6):
        kafka.move_leader("orders", 0, NODES[turn % 3])
        producer.produce("orders", str(turn))
        assert producer.flush(20) == 0
        assert read(consumer, 1) == [str(turn).encode()]
    consumer.close()
    assert kafka.wait(topic="orders", log_end_offset=6)["log_end_offset"] == 6


def test_a_node_that_is_not_the_leader_names_the_leader(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("orders", "a")
    producer.flush(10)
    (old,) = leaders(kafka, "orders")
    new = next(each for each in NODES if each != old)
    kafka.move_leader("orders", 0, new)
    assert kafka.wait(topic="orders", leader=new, leader_epoch=1, timeout_s=0)["leader"] == new
    producer.produce("orders", "b")
    assert producer.flush(20) == 0
    refused = kafka.requests(api="Produce")[1]["answer"]
    partition = refused["responses"][0]["partitionResponses"][0]
    assert partition["errorCode"] == 6
    assert partition["currentLeader"] == {"leaderId": new, "leaderEpoch": 1}
    assert [each["nodeId"] for each in refused["nodeEndpoints"]] == [new]


def test_a_transaction_goes_on_while_its_coordinator_moves(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(20)
    for node in (*NODES, *NODES):
        producer.begin_transaction()
        producer.produce("orders", "a", partition=0)
        kafka.move_coordinator("transaction", "t", node)
        producer.produce("orders", "b", partition=1)
        producer.commit_transaction(30)
    kafka.wait(transaction="t", state="CompleteCommit")
    kafka.wait(topic="orders", partition=1, last_stable_offset=12)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_while_its_coordinator_moves(kafka: Cluster, protocol: str) -> None:
    make_topic(kafka, "orders")
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    for node in NODES:
        produce(kafka, "orders", str(node))
        assert read(consumer, 1) == [str(node).encode()]
        kafka.move_coordinator("group", "g", node)
        consumer.commit(asynchronous=False)
    assert kafka.wait(group="g", state="Stable", members=1)["members"] == 1
    assert [each.offset for each in consumer.committed([TopicPartition("orders", 0)], 10)] == [3]
    consumer.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_work_at_each_node_and_without_each(kafka: Cluster, client: str) -> None:
    make_topic(kafka, TOPIC)
    work = [CLIENTS[client][name] for name in ("produce", "transact", "consume")]
    for each in work:
        each(kafka, 10_000)
    for node in NODES:
        kafka.move_leader(TOPIC, 0, node)
        kafka.move_coordinator("group", GROUP, node)
        kafka.move_coordinator("transaction", TRANSACTIONAL_ID, node)
        for each in work:
            each(kafka, 10_000)
        kafka.stop_node(node)
        for each in work:
            each(kafka, 10_000)
        kafka.start_node(node)
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "r", "enable.partition.eof": True})
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    assert until_the_end(reader) == [b"a"] * 2 * (1 + 2 * len(NODES))
    reader.close()


def test_other_nodes_lead_the_partitions_of_a_stopped_node(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 3)
    gone = leaders(kafka, "orders")[0]
    survivors = ",".join(f"{each['host']}:{each['port']}" for each in kafka.nodes() if each["id"] != gone)
    kafka.stop_node(gone)
    admin = AdminClient({"bootstrap.servers": survivors})
    assert set(list_topics(admin).brokers) == set(NODES) - {gone}
    assert {list_topics(admin).controller_id, admin.describe_cluster().result(10).controller.id} <= set(NODES) - {gone}
    for partition in list_topics(admin, "orders").topics["orders"].partitions.values():
        assert partition.leader != gone
    kafka.start_node(gone)
    produce(kafka, "orders", "a")
    assert set(list_topics(AdminClient({"bootstrap.servers": kafka.bootstrap})).brokers) == set(NODES)


def test_clients_see_a_killed_node_until_its_session_ends(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 3)
    kafka.clock.freeze()
    gone = leaders(kafka, "orders")[0]
    survivors = ",".join(f"{each['host']}:{each['port']}" for each in kafka.nodes() if each["id"] != gone)
    kafka.stop_node(gone, clean=False)
    admin = AdminClient({"bootstrap.servers": survivors})
    assert list_topics(admin, "orders").topics["orders"].partitions[0].leader == gone
    kafka.clock.advance(9_000)
    assert list_topics(admin, "orders").topics["orders"].partitions[0].leader != gone


def test_a_cluster_without_a_node_that_runs_comes_back(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 2)
    produce(kafka, "orders", "a")
    for node in NODES:
        kafka.stop_node(node)
    with pytest.raises(Refused, match="node 1 is stopped"):
        kafka.move_leader("orders", 0, 1)
    for node in NODES:
        kafka.start_node(node)
    produce(kafka, "orders", "b")
    assert kafka.wait(topic="orders", log_end_offset=2)["log_end_offset"] == 2


def test_a_node_is_unreachable_for_one_client(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    (leader,) = leaders(kafka, "orders")
    kafka.cut_off(leader, "unlucky")
    unlucky = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "unlucky", "log_level": 0})
    unlucky.produce("orders", "a")
    assert unlucky.flush(2) == 1
    produce(kafka, "orders", "b")
    kafka.clear_faults()
    assert unlucky.flush(20) == 0


def test_leaders_and_ports_stay_over_a_restart(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 3)
    produce(kafka, "orders", "a")
    before, led = kafka.nodes(), leaders(kafka, "orders")
    kafka.restart(clean=False)
    assert (kafka.nodes(), leaders(kafka, "orders")) == (before, led)
    produce(kafka, "orders", "b")


def test_a_fork_and_a_rewound_cluster_keep_the_node_ids(odradek: Odradek, kafka: Cluster) -> None:
    make_topic(kafka, "orders", 3)
    kafka.checkpoint("before")
    kafka.stop_node(NODES[2])
    with odradek.cluster(fork=kafka) as fork:
        assert [each["id"] for each in fork.nodes()] == [*NODES]
        assert leaders(fork, "orders") == [*NODES]
        produce(fork, "orders", "a", partition=2)
    kafka.rewind("before")
    assert [each["id"] for each in kafka.nodes() if each["state"] == "running"] == [*NODES]
    produce(kafka, "orders", "a", partition=2)


@pytest.mark.parametrize("more", [3, [7, 40, 12]])
def test_a_fork_may_have_more_nodes(odradek: Odradek, more: int | list[int]) -> None:
    with odradek.cluster(settings={"node.id": 7}, topics={"orders": 1}) as one:
        produce(one, "orders", "a")
        with odradek.cluster(fork=one, nodes=more) as fork:
            ids = [each["id"] for each in fork.nodes()]
            assert ids == ([7, 8, 9] if more == 3 else more)
            for node in reversed(ids):
                fork.move_leader("orders", 0, node)
                produce(fork, "orders", "b")
            admin = AdminClient({"bootstrap.servers": fork.bootstrap})
            partition = list_topics(admin, "orders").topics["orders"].partitions[0]
            assert (partition.leader, sorted(partition.replicas)) == (7, sorted(ids))
        with pytest.raises(Refused, match="a list that begins with the ids of the existing nodes: 7"):
            odradek.cluster(fork=one, nodes=[1, 7])


@pytest.mark.parametrize(
    ("nodes", "settings", "field"),
    [
        ([], {}, "nodes"),
        ([*range(17)], {}, "nodes"),
        (0, {}, "nodes"),
        (17, {}, "nodes"),
        ("3", {}, "nodes"),
        (True, {}, "nodes"),
        (2, {"node.id": 2**31 - 1}, "nodes"),
        ([1, 4, 1], {}, "nodes[2]"),
        ([1, -4], {}, "nodes[1]"),
        ([1, 2**31], {}, "nodes[1]"),
        ([1, "4"], {}, "nodes[1]"),
        ([4, 1], {"node.id": 1}, "settings.node.id"),
        (None, {"node.id": "x"}, "settings.node.id"),
    ],
)
def test_ids_that_no_node_can_have_are_refused(
    odradek: Odradek, nodes: object, settings: dict[str, object], field: str
) -> None:
    before = odradek.call("GET", "/clusters")[1]
    with pytest.raises(Refused) as refused:
        odradek.call("POST", "/clusters", {"nodes": nodes, "settings": settings})
    assert (refused.value.status, refused.value.problem["field"]) == (400, field)
    assert odradek.call("GET", "/clusters")[1] == before


def test_unknown_nodes_are_refused(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    for method, path, body in (
        ("POST", "/partitions/orders/0/leader", {"node": 9}),
        ("POST", "/partitions/orders/0/leader", {}),
        ("POST", "/partitions/orders/7/leader", {"node": 1}),
        ("POST", "/coordinators/groups/g", {"node": 1}),
        ("POST", "/nodes/1/start", {}),
        ("POST", "/nodes/9/stop", {}),
        ("POST", "/nodes/x/stop", {}),
    ):
        with pytest.raises(Refused):
            kafka.call(method, path, body)
    with pytest.raises(Unmet):
        kafka.wait(topic="orders", log_end_offset=1, timeout_s=0)


def test_connections_of_different_nodes_have_different_ids(kafka: Cluster) -> None:
    """The ids distinguish connections in recordings and in sessions that end with their connection."""
    make_topic(kafka, "orders", 6)
    for partition in range(6):
        produce(kafka, "orders", "a", partition=partition)
    live = AdminClient({"bootstrap.servers": ",".join(f"{each['host']}:{each['port']}" for each in kafka.nodes())})
    assert len(live.list_topics(timeout=10).brokers) == 3
    ids = [each["connection"] for each in kafka.requests(api="ApiVersions")]
    assert len(ids) == len(set(ids))
    assert len(ids) > 3


def test_the_broker_of_the_process_is_forked_with_its_id() -> None:
    with Odradek.start(**{"node.id": "5"}) as odradek, odradek.cluster(fork=odradek.default, nodes=2) as fork:
        assert [each["id"] for each in fork.nodes()] == [5, 6]


def test_a_node_lists_the_groups_that_it_coordinates(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    groups = [f"group-{number}" for number in range(3)]
    for node, group in zip(NODES, groups, strict=True):
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        kafka.move_coordinator("group", group, node)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    listed = admin.list_consumer_groups().result(10)
    assert listed.errors == []
    assert sorted(each.group_id for each in listed.valid) == groups
    listings = [each["answer"]["groups"] for each in kafka.requests(api="ListGroups")]
    assert sorted(len(each) for each in listings) == [1, 1, 1]


def test_a_node_lists_the_transactions_that_it_coordinates(kafka: Cluster) -> None:
    for node, transactional_id in zip(NODES, "abc", strict=True):
        Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional_id}).init_transactions(20)
        kafka.move_coordinator("transaction", transactional_id, node)
    for node, transactional_id in zip(NODES, "abc", strict=True):
        with Wire(address(kafka, node)) as wire:
            listed = wire.ask(ListTransactionsRequest(), 2, ListTransactionsResponse).transaction_states
        assert [each.transactional_id for each in listed] == [transactional_id]


def test_a_node_writes_no_markers_into_partitions_that_another_node_leads(kafka: Cluster) -> None:
    """Also checks that a marker without partitions, and a marker whose partitions other nodes lead, change nothing."""
    make_topic(kafka, "orders", 3)
    for partition, node in enumerate(NODES):
        kafka.move_leader("orders", partition, node)
    topic = WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1, 2, 3])
    elsewhere = WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 2])
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(producer_id=8, producer_epoch=0, topics=[elsewhere]),
            WritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic]),
            WritableTxnMarker(producer_id=6, producer_epoch=0),
        ]
    )
    with Wire(address(kafka, NODES[1])) as wire:
        answer = wire.ask(request, 2, WriteTxnMarkersResponse)
    codes = {
        (marker.producer_id, partition.partition_index): ErrorCode(partition.error_code)
        for marker in answer.markers
        for topic_result in marker.topics
        for partition in topic_result.partitions
    }
    refused, unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {
        (8, 0): refused,
        (8, 2): refused,
        (7, 0): refused,
        (7, 1): ErrorCode.NONE,
        (7, 2): refused,
        (7, 3): unknown,
    }
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", partition), 10)[1] for partition in range(3)]
    consumer.close()
    assert ends == [0, 1, 0]


# The ids that `filled` puts into requests, for each kind of coordinator.
KEYS = {
    Coordinator.GROUP: ("group", "g"),
    Coordinator.TRANSACTION: ("transaction", "t"),
    Coordinator.SHARE: ("share", "g:AAAAAAAAAAAAAAAAAAAAAA:0"),
}
COORDINATED = [api for api in SERVED if facts_of(api).coordinator is not None]


def filled(struct: Struct, schema: Schema, fields: tuple[Field, ...], version: int) -> Struct:
    """Fills a request with the group id `g`, the transactional id `t` and one element in each array."""
    module = __import__(type(struct).__module__, fromlist=["*"])
    for field in fields:
        name = field.attribute
        if version not in field.versions:
            continue
        value: object = "t" if "transaction" in name else "g"
        if field.is_array and field.is_struct:
            element = filled(getattr(module, field.type)(), schema, schema.structs[field.type], version)
            setattr(struct, name, [element])
        elif field.is_array and field.type in ("string", "int32"):
            setattr(struct, name, [value if field.type == "string" else 0])
        elif field.type == "string" and ("group_id" in name or name.endswith("transactional_id")):
            setattr(struct, name, value)
    return struct


def filled_request(api: ApiKey) -> tuple[Message, int]:
    """Returns a filled request of the API's newest version, and that version."""
    message = request_class(api.value)
    schema, version = load(message.__module__.rpartition(".")[2]), SERVED[api].max_version
    request = filled(message(), schema, schema.fields, version)
    assert isinstance(request, Message)
    return request, version


# Requests with their versions, for APIs whose filled request would be refused before the broker checks the coordinator,
# as in Kafka.
REQUESTS: dict[ApiKey, tuple[Message, int]] = {
    ApiKey.SYNC_GROUP: (
        SyncGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"),
        5,
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 0),
    ApiKey.OFFSET_COMMIT: (
        OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition()])],
        ),
        9,
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[TxnOffsetCommitRequestPartition()])],
        ),
        5,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        ),
        3,
    ),
}


def codes_in(answer: object) -> set[int]:
    """Returns all error codes in a response, at any depth."""
    if isinstance(answer, list):
        return {code for each in answer for code in codes_in(each)}
    if not isinstance(answer, Struct):
        return set()
    found = {getattr(answer, name) for name in type(answer).__slots__ if name.endswith("error_code")}
    return found | {code for name in type(answer).__slots__ for code in codes_in(getattr(answer, name))}


def address(kafka: Cluster, node_id: int) -> str:
    (node,) = [each for each in kafka.nodes() if each["id"] == node_id]
    return f"{node['host']}:{node['port']}"


def test_a_node_that_is_not_the_coordinator_returns_the_right_error_for_each_api(kafka: Cluster) -> None:
    coordinator, *others = NODES
    with Wire(kafka.bootstrap.split(",")[0]) as wire:
        for key_type, (kind, key) in enumerate(KEYS.values()):
            wire.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
            kafka.move_coordinator(kind, key, coordinator)
    make_topic(kafka, "orders")
    answers: dict[int, dict[ApiKey, set[int]]] = {}
    for node in NODES:
        answers[node] = {}
        for api in COORDINATED:
            request, version = REQUESTS.get(api) or filled_request(api)
            with Wire(address(kafka, node)) as wire:
                answers[node][api] = codes_in(wire.ask(request, version))
    refused = ErrorCode.NOT_COORDINATOR.value
    for node in others:
        assert [api for api, codes in answers[node].items() if codes - {0} != {refused}] == []
    assert [api for api, codes in answers[coordinator].items() if refused in codes] == []


def test_a_node_checks_rights_before_it_says_that_another_node_coordinates_the_group(odradek: Odradek) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with odradek.cluster(nodes=NODES, settings=settings) as kafka:
        with Wire(kafka.bootstrap.split(",")[0]) as wire:
            wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
        coordinator, other, _ = NODES
        kafka.move_coordinator("group", "g", coordinator)
        heartbeat = HeartbeatRequest(group_id="g", member_id="m")
        with Wire(address(kafka, other)) as wire:
            assert codes_in(wire.ask(heartbeat, 4)) == {ErrorCode.NOT_COORDINATOR.value}
        denied = AclBinding(
            ResourceType.GROUP,
            "g",
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.READ,
            AclPermissionType.DENY,
        )
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_acls([denied])[denied].result(10)
        with Wire(address(kafka, other)) as wire:
            assert codes_in(wire.ask(heartbeat, 4)) == {ErrorCode.GROUP_AUTHORIZATION_FAILED.value}


def test_a_reassignment_that_leaves_the_leader_out_moves_it(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.move_leader("orders", 0, NODES[0])
    produce(kafka, "orders", "a")
    (before,) = [each for each in kafka.partitions() if each["topic"] == "orders"]
    kafka.stop_node(NODES[1])
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    moved = admin.alter_partition_reassignments({Place("orders", 0): [NODES[1], NODES[2]]})
    admin.close()
    assert moved == {Place("orders", 0): None}
    assert leaders(kafka, "orders") == [NODES[2]]
    kafka.wait(topic="orders", partition=0, leader=NODES[2], leader_epoch=before["leader_epoch"] + 1)
    produce(kafka, "orders", "b")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert read(consumer, 2) == [b"a", b"b"]
    consumer.close()


def test_records_of_every_leader_are_shared_and_acknowledged(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 3)
    assert sorted(leaders(kafka, "orders")) == sorted(NODES)
    for partition in range(3):
        produce(kafka, "orders", str(partition), partition=partition)
    places = [ClientTopicPartition("orders", partition) for partition in range(3)]
    with worker(
        kafka.bootstrap, "orders", share_group(kafka.bootstrap.split(",")[0], "workers"), "implicit"
    ) as consumer:
        found: list[ShareRecord] = []
        wait_for("the records of three leaders", lambda: len(more(found, consumer)) == 3)
        assert set(consumer.commit().values()) <= {None}
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        wait_for("them to be done", lambda: lags(admin, "workers") == dict.fromkeys(places, 0))


def lags(admin: Admin, group: str) -> dict[ClientTopicPartition, int | None]:
    return {place: offset.lag for place, offset in admin.list_share_group_offsets(group).items()}


def test_a_client_that_names_a_node_id_gets_no_response_from_another_node(kafka: Cluster) -> None:
    for node in kafka.nodes():
        with Wire(f"{node['host']}:{node['port']}") as wire:
            cluster_id = wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse).cluster_id
            answers = {}
            for meant in NODES:
                names = ApiVersionsRequest(
                    client_software_name="x", client_software_version="1", cluster_id=cluster_id, node_id=meant
                )
                answers[meant] = wire.ask(names, 5, ApiVersionsResponse).error_code
            refused = ErrorCode.REBOOTSTRAP_REQUIRED.value
            assert answers == {meant: 0 if meant == node["id"] else refused for meant in NODES}


def test_an_election_of_the_preferred_leader_moves_the_partition_back(kafka: Cluster) -> None:
    """As in Kafka, an election is not needed if the preferred replica already leads, and not possible while its node is
    stopped."""
    make_topic(kafka, "elected", len(NODES))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    places = [TopicPartition("elected", index) for index in range(len(NODES))]

    def elect() -> list[int]:
        outcomes = admin.elect_leaders(ElectionType.PREFERRED, places).result(20)
        return [0 if outcomes[place] is None else outcomes[place].code() for place in places]

    preferred = leaders(kafka, "elected")
    not_needed, not_available = ErrorCode.ELECTION_NOT_NEEDED.value, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE.value
    assert elect() == [not_needed] * len(NODES)
    kafka.move_leader("elected", 0, preferred[1])
    kafka.move_leader("elected", 2, preferred[1])
    assert elect() == [0, not_needed, 0]
    assert leaders(kafka, "elected") == preferred
    kafka.stop_node(preferred[2])
    assert elect() == [not_needed, not_needed, not_available]


def test_each_node_describes_and_alters_its_own_settings(kafka: Cluster) -> None:
    """As in Kafka, a client sends the request to the node itself, and a node refuses requests for another node."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for node in NODES:
        entry = ConfigEntry("log.cleaner.threads", str(node % 7 + 2), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)
    for node in NODES:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
        settings = admin.describe_configs([resource])[resource].result(20)
        assert (settings["node.id"].value, settings["log.cleaner.threads"].value) == (str(node), str(node % 7 + 2))
