"""Tests the control interface with a real client: clusters, faults, holds, and the clock (docs/testing.md).

Each test runs with both values of `odradek.testing`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.testing.sync import Cluster, Odradek, Refused, Unmet, Unused
from tests.clients.admin import list_topics
from tests.support.batches import good_batch
from tests.support.blocking_testing import blocking
from tests.support.requests import produce_request
from tests.support.wire import ClosedByBroker, Wire

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module", params=["sync", "asyncio"])
def odradek(request: pytest.FixtureRequest) -> Iterator[Odradek]:
    with Odradek.start() if request.param == "sync" else blocking() as started:
        yield started


def make_topic(kafka: Cluster, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(10)


def transactional(kafka: Cluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(10)
    return producer


def produce(kafka: Cluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    failures: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(10) == 0
    assert failures == []


def consume(kafka: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    until_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def end_offset(kafka: Cluster, topic: str) -> int:
    offset: int = kafka.wait(topic=topic, log_end_offset=0)["log_end_offset"]
    return offset


def test_a_cluster_begins_with_topics(odradek: Odradek) -> None:
    with odradek.cluster(topics={"orders": 3, "payments": 1}, nodes=2) as kafka:
        found = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
        assert {name: len(each.partitions) for name, each in found.items()} == {"orders": 3, "payments": 1}


@pytest.mark.parametrize("topics", [{"orders": 0}, {"orders": 2, "not/a name": 1}])
def test_a_refused_topic_leaves_no_cluster_behind(odradek: Odradek, topics: dict[str, int]) -> None:
    before = odradek.call("GET", "/clusters")[1]
    with pytest.raises(Refused, match=r"topic|TOPIC"):
        odradek.cluster(topics=topics)
    assert odradek.call("GET", "/clusters")[1] == before


def test_clusters_know_nothing_of_one_another(odradek: Odradek) -> None:
    with odradek.cluster() as one, odradek.cluster() as other:
        make_topic(one, "orders")
        produce(one, "orders", "a")
        assert "orders" in list_topics(AdminClient({"bootstrap.servers": one.bootstrap})).topics
        assert "orders" not in list_topics(AdminClient({"bootstrap.servers": other.bootstrap})).topics


def test_a_commit_is_caught_between_its_two_markers(kafka: Cluster) -> None:
    make_topic(kafka, "orders", 2)
    kafka.fault({"at": "marker", "match": {"topic": "orders", "partition": 1}, "do": {"hold": "second"}})
    producer = transactional(kafka, "t")
    producer.begin_transaction()
    producer.produce("orders", "a", partition=0)
    producer.produce("orders", "b", partition=1)
    producer.commit_transaction(10)
    kafka.wait(hold="second")
    assert kafka.wait(transaction="t", state="PrepareCommit")["partitions"] == ["orders-1"]
    kafka.wait(topic="orders", partition=0, last_stable_offset=2)
    with pytest.raises(Unmet):
        kafka.wait(topic="orders", partition=1, last_stable_offset=1, timeout_s=0)
    kafka.release("second")
    kafka.wait(topic="orders", partition=1, last_stable_offset=2)


def test_an_id_that_is_not_used_expires(odradek: Odradek) -> None:
    settings = {"transactional.id.expiration.ms": DAY_MS}
    with odradek.cluster(settings=settings) as kafka:
        transactional(kafka, "t")
        kafka.wait(transaction="t", state="Empty")
        kafka.clock.freeze()
        before_ms = kafka.clock.now_ms
        kafka.clock.advance(DAY_MS + 3_600_000)
        assert kafka.clock.now_ms == before_ms + DAY_MS + 3_600_000
        with pytest.raises(Unmet) as gone:
            kafka.wait(transaction="t", state="Empty", timeout_s=0)
        assert gone.value.facts["state"] is None


def test_advancing_a_week_without_due_timers_takes_milliseconds(odradek: Odradek) -> None:
    with odradek.cluster() as kafka:
        make_topic(kafka, "orders")
        produce(kafka, "orders", "a")
        kafka.clock.advance(3600_000)  # This closes idle connections.
        began_s = time.monotonic()
        kafka.clock.advance(6 * DAY_MS)
        # This takes 10 ms on a quiet machine. It would take 6 s if each skipped log scan were run separately.
        assert time.monotonic() - began_s < 1
        assert end_offset(kafka, "orders") == 1
        kafka.clock.advance(2 * DAY_MS)
        kafka.wait(topic="orders", log_start_offset=1)


def test_a_topic_is_deleted_and_made_again_while_the_clock_stands(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.clock.freeze()
    kafka.preset("recreated-topic", topic="orders", partitions=2)
    assert kafka.wait(topic="orders", partition=1, log_end_offset=0)


def test_a_transaction_times_out_when_the_clock_is_advanced(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    producer = transactional(kafka, "t")
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.flush(10)
    kafka.clock.advance(70_000)
    kafka.wait(transaction="t", state="CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)


def test_an_error_is_returned_as_often_as_the_rule_says(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.fault({"name": "busy", "match": {"api": "EndTxn"}, "do": {"error": "CONCURRENT_TRANSACTIONS"}, "times": 3})
    producer = transactional(kafka, "t")
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.commit_transaction(20)
    kafka.wait(fault="busy", hits=3)
    assert [each["hits"] for each in kafka.faults()] == [3]


def test_a_refused_produce_says_where_the_log_starts_as_kafkas_does(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "times": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("orders", "a")
    assert producer.flush(10) == 0
    responses = [each["answer"]["responses"][0]["partitionResponses"][0] for each in kafka.requests(api="Produce")]
    (refused,) = [each for each in responses if each["errorCode"] == 59]
    assert refused["logStartOffset"] == 0


def test_a_lost_answer_to_a_produce_leaves_one_record(kafka: Cluster) -> None:
    """The first response is lost, so the idempotent producer sends the batch again. The broker must detect the
    duplicate."""
    make_topic(kafka, "orders")
    kafka.fault({"name": "lost", "match": {"api": "Produce"}, "at": "applied", "do": {"disconnect": True}, "times": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    producer.produce("orders", "a")
    assert producer.flush(20) == 0
    kafka.wait(fault="lost")
    assert end_offset(kafka, "orders") == 1


@pytest.mark.parametrize("edit", [{"Topics[*].Nothing": 1}, {"Topics[*].Name": 7}])
def test_an_edit_that_cannot_be_made_is_refused_with_its_rule(kafka: Cluster, edit: dict[str, object]) -> None:
    (path,) = edit
    with pytest.raises(Refused) as refused:
        kafka.fault({"name": "odd", "match": {"api": "Metadata"}, "at": "applied", "do": {"edit": edit}})
    assert (refused.value.status, refused.value.problem["field"]) == (400, f"do.edit.{path}")
    assert kafka.faults() == []


def test_an_edit_that_does_not_apply_is_no_hit_and_is_reported_with_the_rule(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    edit = {"topics[7].errorCode": 3}
    kafka.fault({"name": "odd", "match": {"api": "Metadata"}, "at": "applied", "do": {"edit": edit}, "times": 1})
    assert "orders" in list_topics(AdminClient({"bootstrap.servers": kafka.bootstrap})).topics
    (rule,) = kafka.faults()
    assert rule["hits"] == 0
    assert rule["unmade"] == rule["matched"] > 0
    assert rule["unmade_because"] == "the answer has no topics[7]: the array has 1 element"
    with pytest.raises(Unmet, match="the array has 1 element"):
        kafka.wait(fault="odd", timeout_s=0.1)
    with pytest.raises(Unused, match="no answer could be edited by odd: ") as unused:
        kafka.check_faults()
    assert unused.value.rules == ["odd"]
    kafka.clear_faults()


def test_the_last_exchanges_are_listed_as_the_client_saw_them(kafka: Cluster) -> None:
    make_topic(kafka, "seen")
    before = kafka.requests()[-1]["number"]
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 1})
    produce(kafka, "seen", "value")
    first, second = kafka.requests(since=before, api="Produce", client_id="rdkafka")
    codes = [each["answer"]["responses"][0]["partitionResponses"][0]["errorCode"] for each in (first, second)]
    assert codes == [6, 0]
    assert first["request"]["acks"] == -1
    assert first["received_ms"] <= first["answered_ms"] <= second["received_ms"]
    assert not first["closed"]


def test_waiting_and_disconnected_exchanges_are_marked(kafka: Cluster) -> None:
    make_topic(kafka, "cut")
    kafka.fault({"match": {"api": "Produce"}, "at": "applied", "do": {"disconnect": True}, "times": 1})
    produce(kafka, "cut", "value")
    assert [each["closed"] for each in kafka.requests(api="Produce")] == [True, False]
    kafka.fault({"match": {"api": "Produce"}, "do": {"hold": "h"}})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("cut", "held")
    producer.poll(0)
    kafka.wait(hold="h", waiting=1)
    assert kafka.requests(api="Produce")[-1]["answered_ms"] is None
    kafka.release("h")
    assert producer.flush(10) == 0


def test_exchanges_hold_no_secrets(kafka: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("alice", scram, b"the-secret", b"salt")
    for altered in admin.alter_user_scram_credentials([change]).values():
        altered.result(10)
    (found,) = kafka.requests(api="AlterUserScramCredentials")
    assert (found["request"], found["answer"]) == (None, None)
    assert found["request_bytes"] > 0


def test_a_held_request_is_not_done_before_it_is_released(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.fault({"name": "gate", "match": {"api": "Produce", "topic": "orders"}, "do": {"hold": "gate"}, "times": 1})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("orders", "a")
    producer.poll(0)
    kafka.wait(hold="gate")
    assert end_offset(kafka, "orders") == 0
    assert kafka.release("gate") == 1
    assert producer.flush(10) == 0
    assert end_offset(kafka, "orders") == 1


def test_deleting_the_rules_releases_the_requests_that_they_hold(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    kafka.fault({"match": {"api": "Produce"}, "do": {"hold": "gate"}})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("orders", "a")
    producer.poll(0)
    kafka.wait(hold="gate")
    kafka.clear_faults()
    assert producer.flush(10) == 0
    assert (kafka.faults(), kafka.holds()) == ([], {})


def test_a_crash_keeps_acknowledged_records(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    produce(kafka, "orders", "a", "b")
    kafka.crash()
    with pytest.raises(Refused, match="restart it first"):
        kafka.wait(topic="orders", log_end_offset=2, timeout_s=0)
    kafka.restart()
    assert consume(kafka, "orders", 2) == [b"a", b"b"]


def test_a_crash_during_writes_keeps_acknowledged_records(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    acknowledged, crash = 0, Thread(target=kafka.crash)
    with Wire(kafka.bootstrap) as wire, suppress(ClosedByBroker, OSError):
        while True:
            wire.ask(produce_request("orders", bytes(good_batch(1))), 9, ProduceResponse)
            acknowledged += 1
            if acknowledged == 20:
                crash.start()
    crash.join()
    kafka.restart()
    assert end_offset(kafka, "orders") >= acknowledged


def test_a_cluster_returns_to_a_checkpoint_and_a_fork_diverges_from_its_source(
    odradek: Odradek, kafka: Cluster
) -> None:
    make_topic(kafka, "orders")
    produce(kafka, "orders", "a")
    kafka.checkpoint("one")
    produce(kafka, "orders", "b")
    with odradek.cluster(fork=kafka) as fork:
        produce(fork, "orders", "c")
        assert end_offset(fork, "orders") == 3
    assert end_offset(kafka, "orders") == 2
    kafka.rewind("one")
    assert end_offset(kafka, "orders") == 1
    assert consume(kafka, "orders", 1) == [b"a"]


def test_requests_after_a_rewind_have_times_of_the_restored_clock(kafka: Cluster) -> None:
    kafka.clock.freeze()
    then_ms = kafka.clock.now_ms
    kafka.checkpoint("one")
    kafka.clock.advance(3_600_000)
    kafka.rewind("one")
    make_topic(kafka, "orders")
    assert {each["received_ms"] for each in kafka.requests(api="CreateTopics")} == {then_ms}


def test_a_group_is_waited_for(kafka: Cluster) -> None:
    make_topic(kafka, "orders")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    assert kafka.wait(group="g", state="Stable", members=1)["members"] == 1
    consumer.close()


def test_a_deleted_cluster_is_gone(odradek: Odradek) -> None:
    cluster = odradek.cluster()
    cluster.delete()
    with pytest.raises(Refused, match="there is no cluster"):
        cluster.delete()


def test_a_lease_that_ends_takes_its_cluster_along(odradek: Odradek) -> None:
    cluster = odradek.cluster(ttl_s=1)
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s and cluster.id in {each["id"] for each in odradek.call("GET", "/clusters")[1]}:
        time.sleep(0.05)
    assert cluster.id not in {each["id"] for each in odradek.call("GET", "/clusters")[1]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/clusters", b"{", 400),
        ("POST", "/clusters", b"[" * 100_000, 400),
        ("POST", "/clusters", b'{"setting": {}}', 400),
        ("POST", "/clusters", b'{"settings": {"num.partition": 1}}', 400),
        ("POST", "/clusters", b'{"settings": {"num.partitions": "many"}}', 400),
        ("POST", "/clusters", b'{"settings": {"log.dirs": "/"}}', 400),
        ("POST", "/clusters", b'{"settings": {"advertised.listeners": "PLAINTEXT://there:9092"}}', 400),
        ("POST", "/clusters", b'{"fork": "nothing"}', 404),
        ("POST", "/clock/advance", b'{"ms": -1}', 400),
        ("POST", "/clock/fly", b"{}", 404),
        ("POST", "/wait", b'{"transactoin": "t"}', 400),
        ("POST", "/wait", b'{"transaction": "t"}', 400),
        ("POST", "/faults", b'[{"do": {"observe": true}}, {}]', 400),
        ("POST", "/clusters/default/crash", b"{}", 409),
        ("DELETE", "/clusters/default", b"", 409),
        ("GET", "/clusters/nothing/clock", b"", 404),
    ],
)
def test_bad_input_is_refused_and_nothing_is_half_applied(
    odradek: Odradek, method: str, path: str, body: bytes, status: int
) -> None:
    before = odradek.call("GET", "/clusters")[1], odradek.call("GET", "/faults")[1]
    connection = HTTPConnection(odradek.host, odradek.port, timeout=10)
    connection.request(method, "/control/v1" + path, body)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    assert (response.status, document["status"]) == (status, status)
    assert response.headers["Content-Type"].startswith("application/problem+json")
    assert (odradek.call("GET", "/clusters")[1], odradek.call("GET", "/faults")[1]) == before


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_pages_elsewhere_control_nothing(odradek: Odradek, headers: dict[str, str]) -> None:
    connection = HTTPConnection(odradek.host, odradek.port, timeout=10)
    connection.request("GET", "/control/v1/clusters", headers=headers)
    assert connection.getresponse().status == 403
    connection.close()


def test_the_openapi_document_has_every_call_and_every_field(odradek: Odradek, kafka: Cluster) -> None:
    """Sends an unknown field to each call and checks that the error message lists exactly the fields in the OpenAPI
    document."""
    document = odradek.call("GET", "/openapi.json")[1]
    assert document["servers"] == [{"url": "/control/v1"}]
    values = {"id": kafka.id, "node": "1", "name": "n", "how": "advance", "topic": "t", "partition": "0"}
    checked = 0
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            if "requestBody" not in call or "{id}" not in path:
                continue
            schema = call["requestBody"]["content"]["application/json"]["schema"]
            known = schema.get("oneOf", [schema])[0]["properties"]
            is_preset = path.endswith("/presets/{name}")
            named = {**values, "name": "open-transaction"} if is_preset else values
            with pytest.raises(Refused) as refused:
                odradek.call(method.upper(), path.format(type="group", key="g", **named), {"nonsense": 1})
            allowed = {each for each in refused.value.problem["allowed"].split(", ") if each}
            assert refused.value.status == 400
            says_some = is_preset or path.endswith("/wait")
            assert allowed == known.keys() or (says_some and allowed < known.keys()), path
            checked += 1
    assert checked == 19


def wrong_for(schema: dict[str, Any]) -> object:
    """Returns a value of a type that the schema does not allow."""
    kinds = schema.get("oneOf", [schema])
    is_text = any("string" in each.get("type", ()) or isinstance(each.get("enum", [0])[0], str) for each in kinds)
    return 5 if is_text else "x"


def test_each_field_is_refused_with_a_value_that_the_openapi_document_does_not_have(
    odradek: Odradek, kafka: Cluster
) -> None:
    """Sends values of a wrong type, null for fields that may not be null, and requests without a required field. All
    must be refused."""
    values = {"id": kafka.id, "node": "1", "name": "n", "how": "set", "topic": "t", "partition": "0", "type": "group"}
    checked = 0
    for path, calls in odradek.call("GET", "/openapi.json")[1]["paths"].items():
        if "post" not in calls or "requestBody" not in calls["post"] or not path.startswith("/clusters"):
            continue
        called = path.format(key="g", **{**values, "name": "open-transaction"} if "/presets/" in path else values)
        schema = calls["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema = schema.get("oneOf", [schema])[0]
        fields = schema["properties"]
        required = {
            name: {"offset": 0, "node": 1, "seed": 0, "do": {"observe": True}}.get(name, "n")
            for name in schema.get("required", ())
        }
        bodies = [{**required, name: wrong_for(field)} for name, field in fields.items()]
        bodies += [
            {**required, name: None}
            for name, field in fields.items()
            if "null" not in field.get("type", ()) and {"type": "null"} not in field.get("oneOf", ())
        ]
        bodies += [{each: value for each, value in required.items() if each != name} for name in required]
        for body in bodies:
            with pytest.raises(Refused) as refused:
                odradek.call("POST", called, body)
            assert refused.value.status == 400, (path, body)
            checked += 1
    assert checked > 100


def test_null_leaves_a_field_out_where_the_openapi_document_has_null(odradek: Odradek) -> None:
    paths = odradek.call("GET", "/openapi.json")[1]["paths"]
    fields = paths["/clusters"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    nullable = [name for name, field in fields.items() if "null" in field.get("type", ()) or "oneOf" in field]
    assert set(fields) - set(nullable) == {"settings"}
    made = odradek.call("POST", "/clusters", dict.fromkeys(nullable))[1]
    assert odradek.call("POST", f"/clusters/{made['id']}/lease", {"ttl_s": None})[1] == {"ttl_s": None}
    odradek.call("DELETE", f"/clusters/{made['id']}")


def test_answers_have_what_the_openapi_document_promises(odradek: Odradek, kafka: Cluster) -> None:
    kafka.fault({"match": {"api": "Fetch"}, "do": {"observe": True}, "unused": "ok"})
    checked = 0
    for path, calls in odradek.call("GET", "/openapi.json")[1]["paths"].items():
        content = calls["get"]["responses"]["200"]["content"] if "get" in calls else {}
        # The cluster `default` does not store its requests.
        if "schema" in content.get("application/json", {}) and path != "/requests":
            answer = odradek.call("GET", "" if path == "/" else path.format(id=kafka.id))[1]
            check_against(content["application/json"]["schema"], answer, path)
            checked += 1
    assert checked > 20


def check_against(schema: dict[str, Any], value: Any, at: str) -> None:
    """Checks that the value has the types, properties and constants of the schema."""
    if "type" in schema:
        kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert isinstance(value, tuple(kinds[name] for name in names if name in kinds)), (at, value)
    if "enum" in schema:
        assert value in schema["enum"], at
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= value.keys(), at
        for name, below in schema.get("properties", {}).items():
            if name in value:
                check_against(below, value[name], f"{at}.{name}")
    if isinstance(value, list):
        for each in value:
            check_against(schema.get("items", {}), each, f"{at}[]")


def test_the_path_of_the_cluster_default_ends_with_a_slash_or_without(odradek: Odradek) -> None:
    assert odradek.call("GET", "/")[1] == odradek.call("GET", "")[1]
