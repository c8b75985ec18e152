"""Tests rules at every point and with each action, with a real client (docs/testing.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.broker.control.faults.rules import MANY
from odradek.client import TopicPartition as OwnPartition
from odradek.client import sync as own
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.share_fetch_request import ShareFetchRequest
from odradek.protocol.records import NewRecord, build_batch
from odradek.testing.sync import Cluster, Odradek, Unused
from tests.clients.admin import list_topics
from tests.support.requests import produce_request
from tests.support.wire import ClosedByBroker, Wire

PATIENCE_S = 10


@pytest.fixture
def kafka(odradek: Odradek) -> Iterator[Cluster]:
    with odradek.cluster() as cluster:
        make_topic(cluster, "orders", 2)
        yield cluster


def make_topic(kafka: Cluster, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(10)


def in_transaction(kafka: Cluster) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("orders", "a", partition=partition)
    producer.flush(10)
    return producer


def end_offset(kafka: Cluster, partition: int) -> int:
    offset: int = kafka.wait(topic="orders", partition=partition, log_end_offset=0)["log_end_offset"]
    return offset


def has_left(kafka: Cluster, client_id: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while any(each["client_id"] == client_id for each in kafka.connections()):
        assert time.monotonic() < until_s


def send(kafka: Cluster, *, idempotent: bool = False) -> dict[int | None, KafkaError | None]:
    """Produces a record to each partition. Returns the error that the client reports for each partition, or None."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 50, "enable.idempotence": idempotent})
    errors: dict[int | None, KafkaError | None] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        errors[message.partition()] = error

    for partition in (0, 1):
        producer.produce("orders", "a", partition=partition, on_delivery=delivered)
    assert producer.flush(20) == 0
    return errors


def test_a_decision_is_held_before_its_first_marker(kafka: Cluster) -> None:
    kafka.fault({"at": "prepared", "match": {"transactional_id": "t"}, "do": {"hold": "decided"}})
    producer = in_transaction(kafka)
    with pytest.raises(Exception, match="imed out"):
        producer.commit_transaction(1)
    kafka.wait(hold="decided")
    facts = kafka.wait(transaction="t", state="PrepareCommit")
    assert facts["partitions"] == ["orders-0", "orders-1"]
    assert [end_offset(kafka, each) for each in (0, 1)] == [1, 1]  # No markers have been written.
    kafka.release("decided")
    producer.commit_transaction(10)
    kafka.wait(transaction="t", state="CompleteCommit")


def test_a_transaction_is_held_behind_its_last_marker(kafka: Cluster) -> None:
    kafka.fault({"at": "completed", "match": {"transactional_id": "t"}, "do": {"hold": "written"}, "times": 1})
    producer = in_transaction(kafka)
    with pytest.raises(Exception, match="imed out"):
        producer.commit_transaction(1)
    kafka.wait(hold="written")
    for partition in (0, 1):
        kafka.wait(topic="orders", partition=partition, last_stable_offset=2)
    kafka.wait(transaction="t", state="PrepareCommit")
    kafka.release("written")
    producer.commit_transaction(10)
    kafka.wait(transaction="t", state="CompleteCommit")


def test_a_decision_that_is_delayed_goes_on_by_the_clusters_clock(kafka: Cluster) -> None:
    kafka.fault({"at": "prepared", "do": {"delay_ms": 3_600_000}, "times": 1})
    producer = in_transaction(kafka)
    with pytest.raises(Exception, match="imed out"):
        producer.commit_transaction(1)
    kafka.wait(transaction="t", state="PrepareCommit")
    kafka.clock.advance(3_600_000)
    kafka.wait(transaction="t", state="CompleteCommit")


def test_a_decision_that_is_held_survives_a_crash(kafka: Cluster) -> None:
    kafka.fault({"at": "prepared", "do": {"hold": "decided"}, "times": 1})
    producer = in_transaction(kafka)
    with pytest.raises(Exception, match="imed out"):
        producer.commit_transaction(1)
    kafka.wait(hold="decided")
    kafka.crash()
    kafka.restart()
    kafka.wait(transaction="t", state="CompleteCommit")
    for partition in (0, 1):
        kafka.wait(topic="orders", partition=partition, last_stable_offset=2)


def test_a_coordinator_is_kept_loading(kafka: Cluster) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    send(kafka)
    while consumer.poll(0.2) is None:
        pass
    consumer.commit(asynchronous=False)
    kafka.fault({"name": "slow", "at": "loading", "match": {"topic": "__consumer_offsets"}, "do": {"hold": "load"}})
    kafka.restart()
    kafka.wait(hold="load")
    before = kafka.requests()[-1]["number"]
    other = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    other.subscribe(["orders"])
    other.poll(1)
    codes = [each["answer"]["errorCode"] for each in kafka.requests(since=before, api="JoinGroup")]
    assert set(codes) <= {14}  # COORDINATOR_LOAD_IN_PROGRESS
    kafka.release("load")
    kafka.wait(group="g", state="Stable")
    consumer.close()
    other.close()


@pytest.mark.parametrize("how", [True, "fin", "rst"])
def test_a_connection_is_cut_when_it_is_accepted(kafka: Cluster, how: object) -> None:
    kafka.fault({"name": "cut", "at": "accepted", "do": {"disconnect": how}, "times": 2})
    assert send(kafka) == {0: None, 1: None}
    kafka.wait(fault="cut", hits=2)


def test_a_connection_that_is_cut_has_no_first_request(kafka: Cluster) -> None:
    kafka.fault({"name": "cut", "at": "accepted", "do": {"disconnect": True}, "times": 1})
    with Wire(kafka.bootstrap) as wire, pytest.raises(ClosedByBroker):
        wire.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    assert {each["answer"] for each in kafka.requests(client_id="wire")} <= {
        None
    }  # The request may have arrived, but it was not handled.


def test_a_version_that_is_refused_is_answered_with_the_range(kafka: Cluster) -> None:
    """Kafka's response has the format of version 0 (KIP-511), so the client can choose another version."""
    do = {"error": "UNSUPPORTED_VERSION"}
    kafka.fault({"at": "received", "match": {"api": "ApiVersions", "versions": "4+"}, "do": do, "times": 1})
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    with Wire(kafka.bootstrap) as wire:
        refused = wire.ask(request, 4, ApiVersionsResponse)
        (row,) = refused.api_keys
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION.value
        assert (row.api_key, row.min_version, row.max_version) == (ApiKey.API_VERSIONS.value, 0, 5)
        assert wire.ask(request, 3, ApiVersionsResponse).error_code == 0


@pytest.mark.parametrize("at", ["received", "applied"])
def test_a_client_recovers_from_a_reset_connection(kafka: Cluster, at: str) -> None:
    kafka.fault({"name": "rst", "match": {"api": "Produce"}, "at": at, "do": {"disconnect": "rst"}, "times": 1})
    assert send(kafka, idempotent=True) == {0: None, 1: None}
    kafka.wait(fault="rst")
    assert [end_offset(kafka, each) for each in (0, 1)] == [1, 1]


def test_an_error_of_one_partition_leaves_the_other_alone(kafka: Cluster) -> None:
    error = {"error": "MESSAGE_TOO_LARGE", "partitions": [1]}
    kafka.fault({"match": {"api": "Produce", "topic": "orders"}, "do": error, "times": 1})
    errors = send(kafka)
    assert errors[0] is None
    assert errors[1] is not None
    assert errors[1].name() == "MSG_SIZE_TOO_LARGE"
    assert [end_offset(kafka, each) for each in (0, 1)] == [1, 0]


def test_an_error_of_one_partition_after_it_was_written(kafka: Cluster) -> None:
    error = {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "partitions": [1]}
    kafka.fault({"name": "late", "match": {"api": "Produce"}, "at": "applied", "do": error, "times": 1})
    assert send(kafka, idempotent=True) == {0: None, 1: None}
    kafka.wait(fault="late")
    # The batch was sent twice, and the broker detected the duplicate.
    assert [end_offset(kafka, each) for each in (0, 1)] == [1, 1]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets"])
@pytest.mark.parametrize("at", ["received", "applied"])
def test_readers_get_the_error_of_one_partition(kafka: Cluster, api: str, at: str) -> None:
    send(kafka)
    error = {"error": "NOT_LEADER_OR_FOLLOWER", "partitions": [1]}
    kafka.fault(
        {"name": "moved", "match": {"api": api, "topic": "orders", "partition": 1}, "at": at, "do": error, "times": 1}
    )
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = set()
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.add(message.partition())
        if found == {0, 1}:
            break
    assert found == {0, 1}
    kafka.wait(fault="moved")
    answers = [each["answer"] for each in kafka.requests(api=api)]
    partitions = [each for answer in answers if answer for topic in topics_of(answer) for each in topic["partitions"]]
    assert [each["partitionIndex"] for each in partitions if each["errorCode"]] == [1]
    consumer.close()


def topics_of(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    topics: list[Mapping[str, Any]] = answer["responses" if "responses" in answer else "topics"]
    return topics


@pytest.mark.parametrize(
    ("edit", "brokers", "topics"),
    [
        ({"Topics[0]": {"remove": True}}, 1, 0),
        ({"Topics[*]": {"remove": True}}, 1, 0),
        ({"Brokers[0]": {"duplicate": True}}, 2, 1),
        ({"Topics[0].Partitions": {"reverse": True}}, 1, 1),
    ],
)
def test_arrays_of_an_answer_are_reshaped(kafka: Cluster, edit: dict[str, object], brokers: int, topics: int) -> None:
    kafka.fault({"name": "odd", "match": {"api": "Metadata"}, "at": "applied", "do": {"edit": edit}})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    list_topics(admin, "orders")
    answer = kafka.requests(api="Metadata")[-1]["answer"]
    assert (len(answer["brokers"]), len(answer["topics"])) == (brokers, topics)
    if topics:
        indexes = [each["partitionIndex"] for each in answer["topics"][0]["partitions"]]
        assert indexes == ([1, 0] if "Topics[0].Partitions" in edit else [0, 1])


@pytest.mark.parametrize("client", ["librdkafka", "own"])
def test_a_read_uncommitted_reader_ignores_aborted_transactions(kafka: Cluster, client: str) -> None:
    """Some brokers list aborted transactions even at the isolation level read_uncommitted. A client must not drop the
    records of these transactions, as franz-go once did (twmb/franz-go#758)."""
    in_transaction(kafka).abort_transaction(10)
    (producer_id,) = {each["producer_id"] for each in kafka.producers()}
    aborted = {"ProducerId": producer_id, "FirstOffset": 0}
    kafka.fault(
        {
            "match": {"api": "Fetch", "when": "IsolationLevel == 0"},
            "at": "applied",
            "do": {"edit": {"Responses[*].Partitions[*].AbortedTransactions": [aborted]}},
        }
    )
    isolation = "read_uncommitted"
    if client == "own":
        with own.Consumer(bootstrap_servers=kafka.bootstrap, isolation_level=isolation) as consumer:
            consumer.assign([OwnPartition("orders", 0)])
            consumer.seek_to_beginning()
            assert consumer.getone().value == b"a"
    else:
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "isolation.level": isolation}
        plain = Consumer(settings)
        plain.assign([TopicPartition("orders", 0, 0)])
        message = plain.poll(20)
        plain.close()
        assert message is not None
        assert message.value() == b"a"
    answers = [each["answer"]["responses"] for each in kafka.requests(api="Fetch") if each["answer"]]
    listed = [part["abortedTransactions"] for topics in answers for each in topics for part in each["partitions"]]
    assert [{"producerId": producer_id, "firstOffset": 0}] in listed


def test_a_held_request_is_handled_after_its_client_has_disconnected(kafka: Cluster) -> None:
    """Such a late Produce request once caused hanging transactions (KIP-890)."""
    kafka.fault({"match": {"api": "Produce"}, "do": {"hold": "late"}})
    batch = build_batch([NewRecord(None, b"late", 0)])
    with Wire(kafka.bootstrap, "gone") as wire:
        wire.send(produce_request("orders", batch), 12)
        kafka.wait(hold="late")
    has_left(kafka, "gone")
    assert end_offset(kafka, 0) == 0
    assert kafka.release("late") == 1
    assert kafka.wait(topic="orders", partition=0, log_end_offset=1)["log_end_offset"] == 1


def test_above_a_limit_held_requests_of_disconnected_clients_are_dropped(kafka: Cluster) -> None:
    kafka.fault({"match": {"api": "Metadata", "client_id": "gone"}, "do": {"hold": "late"}})
    wires = [Wire(kafka.bootstrap, "gone") for _ in range(MANY + 10)]
    for wire in wires:
        wire.send(MetadataRequest(), 12)
    kafka.wait(hold="late", waiting=MANY + 10)
    for wire in wires:
        wire.close()
    has_left(kafka, "gone")
    assert kafka.release("late") == MANY


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.SHARE_FETCH])
def test_a_held_request_of_a_session_ends_with_its_connection(kafka: Cluster, api: ApiKey) -> None:
    kafka.fault({"match": {"api": api.kafka_name}, "do": {"hold": "late"}})
    request = FetchRequest() if api is ApiKey.FETCH else ShareFetchRequest()
    with Wire(kafka.bootstrap, "gone") as wire:
        wire.send(request, 12 if api is ApiKey.FETCH else 1)
        kafka.wait(hold="late")
    has_left(kafka, "gone")
    assert kafka.release("late") == 0


def test_a_rule_that_nothing_used_is_an_error(kafka: Cluster) -> None:
    kafka.fault({"name": "used", "match": {"api": "Produce"}, "do": {"observe": True}})
    kafka.fault({"name": "spare", "match": {"api": "EndTxn"}, "do": {"observe": True}, "unused": "ok"})
    send(kafka)
    kafka.check_faults()
    kafka.fault({"name": "forgotten", "match": {"api": "EndTxn"}, "do": {"observe": True}})
    with pytest.raises(Unused, match="forgotten"):
        kafka.check_faults()
    kafka.clear_faults()


def test_a_cluster_that_is_left_says_which_rules_nothing_used(odradek: Odradek) -> None:
    with pytest.raises(Unused, match="forgotten"), odradek.cluster() as kafka:
        kafka.fault({"name": "forgotten", "match": {"api": "EndTxn"}, "do": {"observe": True}})
    failing = odradek.cluster()
    failing.fault({"name": "forgotten", "match": {"api": "EndTxn"}, "do": {"observe": True}})
    # The user sees the test's failure, not `Unused`.
    failing.__exit__(ZeroDivisionError, ZeroDivisionError(), None)


def test_a_day_passes_while_a_marker_is_held(kafka: Cluster) -> None:
    """A held marker is not retried: with a retry every 100 ms, advancing the clock by a day would take minutes. The
    marker is written when the rule is deleted."""
    kafka.preset("half-written-markers", topic="t", transactional_id="t")
    kafka.clock.advance(24 * 3600 * 1000)
    assert kafka.wait(transaction="t", state="PrepareCommit")
    kafka.clear_faults()
    kafka.wait(transaction="t", state="CompleteCommit")


def test_a_topic_whose_marker_is_held_is_deleted(kafka: Cluster) -> None:
    kafka.preset("half-written-markers", topic="t", transactional_id="t")
    kafka.clock.freeze()
    kafka.clock.advance(60_000)
    kafka.preset("recreated-topic", topic="t")
    kafka.clock.advance(60_000)
    kafka.wait(transaction="t", state="CompleteCommit")
    assert kafka.wait(topic="t", partition=1, log_end_offset=0)["log_end_offset"] == 0
