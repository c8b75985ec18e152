"""Tests the page's actions, sent as JSON over HTTP to a broker that real clients use."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.clients.own_share_consumers import first_of, share_group, worker
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such page")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "odradek.http.actions": "true",
        "transaction.two.phase.commit.enable": "true",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        yield running


def http(
    broker: BrokerProcess, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def token(broker: BrokerProcess) -> str:
    found = http(broker, "GET", "/api/actions")[1]["token"]
    assert isinstance(found, str)
    return found


def act(broker: BrokerProcess, action: str, /, **fields: object) -> tuple[int, Any]:
    headers = {"X-Odradek-Token": token(broker), "Content-Type": "application/json"}
    return http(broker, "POST", f"/api/actions/{action}", fields, headers)


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, timestamp=1_000 + number)
    assert producer.flush(30) == 0


def open_transaction(broker: BrokerProcess, transactional_id: str, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(30) == 0
    return producer


def view(broker: BrokerProcess, path: str, find: str = "") -> Any:
    status, shown = http(broker, "GET", f"/api/{path}?find={find}" if find else f"/api/{path}")
    assert status == 200, shown
    return shown


def test_a_topic_is_created_and_deleted(broker: BrokerProcess) -> None:
    status, done = act(broker, "create-topic", topic="made", partitions=3, configs={"retention.ms": "1000"})
    assert (status, done["partitions"]) == (200, 3)
    shown = view(broker, "topic?name=made")
    assert len(shown["partitions"]) == 3
    assert {"name": "retention.ms", "value": "1000", "source": "TOPIC"} in shown["settings"]
    assert act(broker, "create-topic", topic="made")[1]["code"] == "TOPIC_ALREADY_EXISTS"
    assert act(broker, "delete-topic", topic="made")[0] == 200
    assert http(broker, "GET", "/api/topic?name=made")[0] == 404


def test_records_are_deleted_before_an_offset(broker: BrokerProcess) -> None:
    produce(broker, "shrinks", 10)
    status, done = act(broker, "delete-records", topic="shrinks", partition=0, before_offset=4)
    assert (status, done["log_start_offset"]) == (200, 4)
    assert view(broker, "topic?name=shrinks")["partitions"][0]["log_start_offset"] == 4
    refused, answer = act(broker, "delete-records", topic="shrinks", partition=0, before_offset=99)
    assert (refused, answer["code"]) == (409, "OFFSET_OUT_OF_RANGE")


@pytest.mark.parametrize(
    ("where", "offset"),
    [({"to": "earliest"}, 0), ({"to": "latest"}, 10), ({"offset": 3}, 3), ({"offset": 99}, 10),
     ({"timestamp": 1_006}, 6), ({"timestamp": 9_999}, 10)],
)  # fmt: skip
def test_the_offsets_of_a_group_are_reset(broker: BrokerProcess, where: dict[str, object], offset: int) -> None:
    topic = "reset-" + "-".join(map(str, next(iter(where.items()))))
    produce(broker, topic, 10)
    status, done = act(broker, "reset-offsets", group="readers", topic=topic, **where)
    assert (status, done["offsets"]) == (200, {"0": offset})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    consumer.close()
    assert committed.offset == offset


def test_a_group_with_members_is_left_alone(broker: BrokerProcess) -> None:
    produce(broker, "busy", 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "at-work", "auto.offset.reset": "earliest"})
    consumer.subscribe(["busy"])
    assert consumer.consume(1, 30)
    status, answer = act(broker, "reset-offsets", group="at-work", topic="busy", to="earliest")
    consumer.close()
    assert (status, answer["code"]) == (409, "NON_EMPTY_GROUP")


@pytest.mark.parametrize("action", ["abort", "force-terminate"])
def test_an_open_transaction_is_aborted_and_its_producer_fenced(broker: BrokerProcess, action: str) -> None:
    name = f"stays-open-{action}"
    producer = open_transaction(broker, name, name)
    assert view(broker, f"topic?name={name}")["partitions"][0]["held"] is not None
    status, done = act(broker, action, transactional_id=name)
    assert status == 200, done
    assert view(broker, f"topic?name={name}")["partitions"][0]["held"] is None
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_an_id_without_an_open_transaction_is_not_aborted(broker: BrokerProcess) -> None:
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "idle"}).init_transactions(30)
    assert act(broker, "abort", transactional_id="idle")[1]["code"] == "INVALID_TXN_STATE"
    status, answer = act(broker, "abort", transactional_id="nobody")
    assert (status, answer["code"]) == (404, "TRANSACTIONAL_ID_NOT_FOUND")


@pytest.mark.parametrize(
    ("action", "fields"),
    [("create-topic", {}), ("create-topic", {"topic": 7}), ("create-topic", {"topic": "t", "colour": "red"}),
     ("create-topic", {"topic": "t", "configs": {"retention.ms": 1}}),
     ("create-topic", {"topic": "t", "partitions": 0}),
     ("delete-records", {"topic": "t", "partition": True, "before_offset": 1}),
     ("reset-offsets", {"group": "g", "topic": "t"}),
     ("reset-offsets", {"group": "g", "topic": "t", "to": "earliest", "offset": 1})],
)  # fmt: skip
def test_a_body_that_says_something_else_is_refused(
    broker: BrokerProcess, action: str, fields: dict[str, object]
) -> None:
    status, answer = act(broker, action, **fields)
    assert (status, answer["code"]) == (400, "INVALID_REQUEST")


def test_without_the_token_nothing_is_done(broker: BrokerProcess) -> None:
    good = {"X-Odradek-Token": token(broker), "Content-Type": "application/json"}
    for headers, status in (
        ({"Content-Type": "application/json"}, 403),
        ({**good, "X-Odradek-Token": "guessed"}, 403),
        ({**good, "Content-Type": "text/plain"}, 415),  # A form on another site can send this content type.
        ({**good, "Origin": "https://elsewhere.example"}, 403),
        ({**good, "Origin": "http://127.0.0.1:1"}, 403),  # A different port is a different origin.
        ({**good, "Host": "rebound.example"}, 403),
    ):
        assert http(broker, "POST", "/api/actions/create-topic", {"topic": "forged"}, headers)[0] == status
    assert http(broker, "GET", "/api/topic?name=forged")[0] == 404


def test_actions_are_off_unless_configured(tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert isinstance(broker, BrokerProcess)
        assert http(broker, "GET", "/api/actions")[1] == {"token": None, "actions": {}}
        headers = {"X-Odradek-Token": "None", "Content-Type": "application/json"}
        status, answer = http(broker, "POST", "/api/actions/create-topic", {"topic": "t"}, headers)
        assert status == 403
        assert "odradek.http.actions" in answer["error"]


def test_a_record_is_produced_as_it_was_typed(broker: BrokerProcess) -> None:
    typed = '{"id": 9007199254740993, "id": 10.00}'
    act(broker, "create-topic", topic="typed", partitions=2)
    status, done = act(broker, "produce", topic="typed", partition=1, key="k", value=typed, headers={"trace": "abc"})
    assert (status, done["offset"]) == (200, 0)
    # A request without key and value writes null for both.
    assert act(broker, "produce", topic="typed", partition=1)[0] == 200
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reads-typed"})
    consumer.assign([TopicPartition("typed", 1, 0)])
    one, two = consumer.consume(2, 30)
    consumer.close()
    assert (one.key(), one.value(), one.headers()) == (b"k", typed.encode(), [("trace", b"abc")])
    assert (two.key(), two.value(), two.headers()) == (None, None, None)
    assert act(broker, "produce", topic="typed", partition=9)[0] == 404
    assert act(broker, "produce", topic="typed", headers={"trace": 7})[0] == 400


def test_produced_keys_and_values_are_not_logged(broker: BrokerProcess) -> None:
    act(broker, "create-topic", topic="quiet")
    assert act(broker, "produce", topic="quiet", value="a-secret-value", key="a-secret-key")[0] == 200
    assert "a-secret" not in broker.log_text()


def test_partitions_are_added_and_settings_changed(broker: BrokerProcess) -> None:
    act(broker, "create-topic", topic="changed")
    assert act(broker, "add-partitions", topic="changed", partitions=3)[0] == 200
    assert act(broker, "add-partitions", topic="changed", partitions=2)[0] == 409
    assert act(broker, "alter-topic", topic="changed", configs={"retention.ms": "1234"})[0] == 200
    _, shown = http(broker, "GET", "/api/topic?name=changed")
    assert len(shown["partitions"]) == shown["total"] == 3
    assert [each["value"] for each in shown["settings"] if each["name"] == "retention.ms"] == ["1234"]
    assert act(broker, "alter-topic", topic="changed", reset="retention.ms")[0] == 200
    _, shown = http(broker, "GET", "/api/topic?name=changed")
    assert [each["source"] for each in shown["settings"] if each["name"] == "retention.ms"] == ["DEFAULT"]
    assert act(broker, "alter-topic", topic="changed", configs={"retention.ms": "soon"})[0] in (400, 409)
    assert act(broker, "alter-topic", topic="changed")[0] == 400


def test_without_a_partition_the_key_determines_it_as_for_other_clients(broker: BrokerProcess) -> None:
    act(broker, "create-topic", topic="keyed", partitions=7)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    chosen: dict[str, int] = {}
    keys = ["", *(f"key-{number}" for number in range(20))]

    def delivered(error: object, message: Message) -> None:
        assert error is None
        chosen[str((message.key() or b"").decode())] = message.partition() or 0

    for key in keys:
        producer.produce("keyed", b"1", key.encode(), on_delivery=delivered)
    assert producer.flush(30) == 0
    for key in keys[1:]:
        status, done = act(broker, "produce", topic="keyed", key=key, value="2")
        assert (status, done["partition"]) == (200, chosen[key])
    assert act(broker, "produce", topic="keyed", value="without a key")[1]["partition"] in range(7)


def test_an_acl_is_added_and_removed(broker: BrokerProcess) -> None:
    given = {
        "principal": "User:alice",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "orders",
        "pattern": "PREFIXED",
    }
    assert act(broker, "add-acl", **given)[0] == 200
    (row,) = view(broker, "acls")["acls"]
    assert (row["permission"], row["host"], row["pattern"]) == ("ALLOW", "*", "prefixed")
    assert act(broker, "remove-acl", **given | {"operation": "WRITE"}) == (
        404,
        {"error": "There is no such ACL.", "code": "RESOURCE_NOT_FOUND"},
    )
    assert act(broker, "remove-acl", **row)[0] == 200  # The request contains the row exactly as the page shows it.
    assert view(broker, "acls")["acls"] == []
    assert act(broker, "add-acl", **given | {"operation": "ANY"})[0] == 400
    assert act(broker, "add-acl", **given | {"principal": "alice"})[0] in (400, 409)


def test_a_user_is_added_and_deleted_and_the_password_is_in_no_log(broker: BrokerProcess) -> None:
    assert act(broker, "set-password", user="carol", password="hard-to-guess")[0] == 200
    (row,) = view(broker, "users", find="carol")["users"]
    assert (row["mechanism"], row["iterations"]) == ("SCRAM-SHA-512", 4096)
    assert "hard-to-guess" not in broker.log_text()
    assert act(broker, "set-password", user="carol", password="p", iterations=2**40)[0] == 400
    assert act(broker, "delete-password", user="carol", mechanism="SCRAM-SHA-512")[0] == 200
    assert view(broker, "users", find="carol")["users"] == []
    assert act(broker, "delete-password", user="carol")[0] == 404


def test_a_quota_is_set_and_removed(broker: BrokerProcess) -> None:
    assert act(broker, "set-quota", user="dave", client_id="", limit="producer_byte_rate", value=1024)[0] == 200
    (row,) = view(broker, "quotas")["quotas"]
    assert (row["entity"], row["limit"], row["value"]) == (
        "user dave, client-id (default)",
        "producer_byte_rate",
        1024,
    )
    assert act(broker, "set-quota", **row["of"], limit=row["limit"])[0] == 200
    assert view(broker, "quotas")["quotas"] == []
    assert act(broker, "set-quota", limit="producer_byte_rate", value=1)[0] == 400
    assert act(broker, "set-quota", user="dave", limit="speed", value=1)[0] in (400, 409)


@pytest.mark.parametrize(
    ("where", "offset"), [({"to": "earliest"}, 0), ({"to": "latest"}, 3), ({"timestamp": 1001}, 1)]
)
def test_a_share_group_is_reset_only_to_positions_that_kafka_allows(
    broker: BrokerProcess, where: dict[str, object], offset: int
) -> None:
    topic = "shared-" + "-".join(map(str, next(iter(where.items()))))
    produce(broker, topic, 3)
    group = share_group(broker.bootstrap, f"workers-{topic}")
    with worker(broker.bootstrap, topic, group) as consumer:
        assert first_of(consumer)
    status, done = act(broker, "reset-offsets", group=group, topic=topic, **where)
    assert (status, done["offsets"]) == (200, {"0": offset})
    status, answer = act(broker, "reset-offsets", group=group, topic=topic, offset=1)
    assert status == 400
    assert "share group" in answer["error"]
