"""Tests the data that the page shows, read as JSON over HTTP from a broker that real clients use."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer

from odradek.client.sync import Consumer as OwnConsumer
from odradek.client.sync import ShareConsumer
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such page")

TOPIC = "ledger"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yields a broker with plain records, three transactions (committed, aborted and open), and a group that has read
    some of the records."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        assert isinstance(running, BrokerProcess)
        plain = Producer({"bootstrap.servers": running.bootstrap})
        plain.produce(TOPIC, b'{"amount": 1}', key=b"k", headers=[("kind", b"\xff\x00")])
        plain.flush(30)
        producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "pay"})
        producer.init_transactions(30)
        for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(TOPIC, value)
            producer.flush(30)
            end(30)
        consumer = Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        consumer.commit(message=consumer.consume(1, 30)[0], asynchronous=False)
        consumer.close()
        producer.begin_transaction()
        producer.produce(TOPIC, b"open")
        producer.flush(30)
        yield running


def get(broker: BrokerProcess, path: str, headers: dict[str, str] | None = None) -> tuple[int, str, str | None]:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("Content-Security-Policy")
    finally:
        connection.close()


def view(broker: BrokerProcess, view_name: str, /, **query: str) -> Any:
    status, text, _ = get(broker, f"/api/{view_name}?{urlencode(query)}")
    assert status == 200, text
    return json.loads(text)


def test_the_page_is_one_file_that_loads_nothing_from_elsewhere(broker: BrokerProcess) -> None:
    status, page, policy = get(broker, "/")
    assert status == 200
    assert len(page) < 150_000
    assert '"cluster_id"' in page  # The page contains the data of the first view.
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "src=" not in page
    assert "https://" not in page


def test_the_overview_counts_topics_groups_and_transactions(broker: BrokerProcess) -> None:
    shown = view(broker, "overview")
    assert (shown["topics"], shown["offline"]) == (1, [])
    assert shown["groups"] == {"classic": 1, "consumer": 0, "share": 0}
    assert (shown["transactions"]["open"], shown["transactions"]["oldest"]["id"]) == (1, "pay")


def test_a_topic_names_the_transaction_that_holds_readers_back(broker: BrokerProcess) -> None:
    (listed,) = view(broker, "topics", find=TOPIC)["topics"]
    assert listed["held_records"] == 1
    (partition,) = view(broker, "topic", name=TOPIC)["partitions"]
    assert partition["high_watermark"] - partition["last_stable_offset"] == 1
    assert partition["held"]["holder"]["transactional_id"] == "pay"


def test_records_show_their_status_for_readers_of_committed_data(broker: BrokerProcess) -> None:
    shown = view(broker, "records", topic=TOPIC, partition="0", offset="0")["records"]
    assert [each["status"] for each in shown] == ["plain", "committed", "control", "aborted", "control", "open"]
    assert shown[0]["key"] == {"text": "k"}
    assert shown[0]["headers"] == [["kind", {"hex": "ff 00"}]]
    committed = view(broker, "records", topic=TOPIC, partition="0", offset="0", isolation="committed")["records"]
    assert [each["value"]["text"] for each in committed] == ['{"amount": 1}', "kept"]


def test_records_of_internal_topics_are_decoded(broker: BrokerProcess) -> None:
    found = [
        each
        for partition in range(50)
        for each in view(broker, "records", topic="__transaction_state", partition=str(partition))["records"]
    ]
    assert {each["state"] for each in found} >= {"Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort"}


def test_a_transactional_id_has_a_timeline_and_the_command_that_ends_its_transaction(broker: BrokerProcess) -> None:
    shown = view(broker, "transaction", id="pay")
    assert shown["call"] == "odradek transactions abort --transactional-id pay"
    kinds = [each["kind"] for each in shown["timeline"]]
    assert kinds == ["fence", "open", "commit", "commit", "open", "abort", "abort", "open", "ahead"]
    assert view(broker, "transaction", id="nobody")["state"] is None


def test_a_group_has_its_lag(broker: BrokerProcess) -> None:
    (position,) = view(broker, "group", id="g")["offsets"]
    assert (position["partition"], position["committed"], position["lag"]) == (f"{TOPIC}-0", 1, 5)


def test_a_group_has_its_rebalances(broker: BrokerProcess) -> None:
    history = [each["what"] for each in view(broker, "group", id="g")["history"]]
    created, joined, left = history
    assert created == "generation 0: empty"
    assert joined.startswith("generation 1: 1 member, ")
    assert joined.endswith(f" has {TOPIC}-0")
    assert left.startswith("generation 2: empty; ")


@pytest.mark.parametrize("protocol", ["consumer", "share"])
def test_a_group_with_epochs_has_its_rebalances(broker: BrokerProcess, protocol: str) -> None:
    group = f"epochs-{protocol}"
    if protocol == "share":
        with ShareConsumer(TOPIC, bootstrap_servers=broker.bootstrap, group_id=group) as sharer:
            sharer.getmany(timeout_ms=500)
            history = until_given(broker, group)
    else:
        with OwnConsumer(TOPIC, bootstrap_servers=broker.bootstrap, group_id=group, group_protocol="consumer") as one:
            one.getone()
            history = until_given(broker, group)
    assert {"group epoch 2", "assignment of epoch 2 computed"} <= set(history)
    assert any(" joined (odradek, " in each and each.endswith(f": {TOPIC}") for each in history)
    after = [each["what"] for each in view(broker, "group", id=group)["history"]]
    assert any(each.endswith(" left") for each in after)


def until_given(broker: BrokerProcess, group: str) -> list[str]:
    deadline = time.monotonic() + 30
    while True:
        history = [each["what"] for each in view(broker, "group", id=group)["history"]]
        if any(f" has {TOPIC}-0" in each for each in history):
            return history
        assert time.monotonic() < deadline, history


def test_a_partition_has_a_timeline_of_its_batches_and_of_coordinators(broker: BrokerProcess) -> None:
    shown = view(broker, "partition", topic=TOPIC, partition="0", offset="0")
    assert shown["held"]["holder"]["transactional_id"] == "pay"
    kinds = [(each["by"], each["kind"]) for each in shown["timeline"]]
    once = [("coordinator", "open"), ("log", "open")]
    assert kinds == [
        ("log", "plain"),
        ("coordinator", "fence"),
        *once, *((by, "commit") for by in ("coordinator", "log", "coordinator")),
        *once, *((by, "abort") for by in ("coordinator", "log", "coordinator")),
        *once, ("coordinator", "ahead"),
    ]  # fmt: skip


def test_connections_are_listed_by_client_software(broker: BrokerProcess) -> None:
    assert "confluent-kafka-python" in str(view(broker, "connections")["software"])


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/nothing", 404), ("/api/topic", 400), ("/api/topic?name=none", 404), ("/api/group?id=none", 404),
     (f"/api/records?topic={TOPIC}&partition=one", 404), (f"/api/records?topic={TOPIC}&partition=7", 404)],
)  # fmt: skip
def test_a_missing_object_is_refused_with_an_error_message(broker: BrokerProcess, path: str, status: int) -> None:
    found, text, _ = get(broker, path)
    assert found == status
    assert json.loads(text)["error"]


@pytest.mark.parametrize("headers", [{"Host": "rebound.example"}, {"Origin": "https://elsewhere.example"}])
def test_a_page_of_another_site_is_refused(broker: BrokerProcess, headers: dict[str, str]) -> None:
    assert get(broker, "/", headers)[0] == get(broker, "/api/overview", headers)[0] == 403


def test_changes_are_pushed(broker: BrokerProcess) -> None:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    connection.request("GET", f"/live/topic?name={TOPIC}")
    answer = connection.getresponse()
    first = answer.readline()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("pushed", b"1")
    producer.produce(TOPIC, b"1")
    producer.flush(30)
    lines = iter(answer.readline, b"")
    changed = next(line for line in lines if line.startswith(b"data:"))
    connection.close()
    before, after = (
        json.loads(line.removeprefix(b"data: "))["partitions"][0]["high_watermark"] for line in (first, changed)
    )
    assert (before, after) == (6, 7)


def test_a_page_that_is_left_is_no_warning(broker: BrokerProcess) -> None:
    connection = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    connection.request("GET", "/live/overview")
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data:")
    answer.close()
    connection.close()
    after = HTTPConnection("127.0.0.1", broker.ready["http_port"], timeout=30)
    after.request("GET", "/live/topics")
    beats = after.getresponse()
    # By the time of this heartbeat, the broker has also written to the first connection, which is closed.
    while beats.readline() != b":\n":
        pass
    beats.readline()
    beats.readline()
    after.close()
    warnings = view(broker, "warnings")["warnings"]
    # On a busy machine the event loop may be late.
    assert [each for each in warnings if each["logger"] != "odradek.loop"] == []


def test_a_client_that_leaves_before_the_first_event_causes_no_traceback(broker: BrokerProcess) -> None:
    reset = struct.pack("ii", 1, 0)  # This option makes `close` send a RST.
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", broker.ready["http_port"])) as left:
            left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            left.sendall(b"GET /live/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert get(broker, "/healthz")[0] == 200
