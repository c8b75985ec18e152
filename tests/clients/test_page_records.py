"""Tests the page's list of records over HTTP. The list contains the records of all partitions and can be filtered, long
values are sent in pieces, and the work that a request can cause is limited."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.broker.http.page.record_browsing import MAX_BYTES, MAX_RECORDS
from odradek.broker.http.page.records import PIECE_BYTES, SHOWN
from tests.support.broker_process import IS_KAFKA, BrokerProcess

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="Kafka has no such page")

BEGIN_MS = 1_700_000_000_000
PARTITIONS = 3
COUNT = 300
WRITTEN = '{"id":9007199254740993,"price":10.00,"id":1,"text":"\\u00e9"}'
MANY = 120_000
LARGE = ("é" * 200_000 + "\n").encode() * 5
BYTES = bytes(range(256)) * 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"message.max.bytes": "16000000"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        assert isinstance(running, BrokerProcess)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for name, partitions in (("orders", PARTITIONS), ("many", 1)):
            admin.create_topics([NewTopic(name, partitions)])[name].result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap, "message.max.bytes": 16_000_000})
        for number in range(COUNT):
            value = json.dumps({"order": {"id": number, "lines": [{"price": f"{number}.00"}]}})
            producer.produce(
                "orders",
                value,
                key=f"key-{number}",
                partition=number % PARTITIONS,
                timestamp=BEGIN_MS + number,
                headers=[("trace", f"t{number}".encode())],
            )
            if number % 7 == 0:
                producer.flush(30)
        for number in range(MANY):
            producer.produce("many", f"value-{number}", timestamp=BEGIN_MS + number)
            if number % 20_000 == 0:
                producer.flush(30)
        producer.produce("values", WRITTEN)
        producer.produce("values", LARGE, headers=[("bytes", BYTES), ("empty", None)])
        assert producer.flush(60) == 0
        yield running


def ask(broker: BrokerProcess, view: str, **query: object) -> Any:
    with urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/api/{view}?{urlencode(query)}", timeout=60) as answer:
        return json.loads(answer.read())


def all_of(broker: BrokerProcess, **query: object) -> list[Any]:
    """Returns all records of a list, requested page by page."""
    found, at = [], ""
    while True:
        page = ask(broker, "records", **query, **({"at": at} if at else {}))
        assert len(page["records"]) <= SHOWN
        assert page["looked_at"] < 2 * MAX_RECORDS
        found += page["records"]
        at = page["next"]
        if page["is_done"]:
            return found


def offsets(found: list[Any]) -> list[int]:
    return [each["timestamp"] - BEGIN_MS for each in found]


def test_all_partitions_are_one_list_with_the_newest_first(broker: BrokerProcess) -> None:
    found = all_of(broker, topic="orders")
    assert offsets(found) == list(reversed(range(COUNT)))
    assert [each["partition"] for each in found[:3]] == [2, 1, 0]


def test_all_partitions_are_one_list_with_the_oldest_first(broker: BrokerProcess) -> None:
    assert offsets(all_of(broker, topic="orders", order="oldest")) == list(range(COUNT))


def test_partitions_offsets_and_times_narrow_the_list(broker: BrokerProcess) -> None:
    one = all_of(broker, topic="orders", partition=1)
    assert offsets(one) == list(reversed(range(1, COUNT, PARTITIONS)))
    two = all_of(broker, topic="orders", partition="0,2", offset=90)
    assert offsets(two) == sorted([*range(270, COUNT, PARTITIONS), *range(272, COUNT, PARTITIONS)])
    times = all_of(broker, topic="orders", timestamp=BEGIN_MS + 100, until=BEGIN_MS + 103)
    assert offsets(times) == [100, 101, 102, 103]
    assert offsets(all_of(broker, topic="orders", until=BEGIN_MS + 1, order="newest")) == [1, 0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"find": "key-29"}, [*range(299, 289, -1), 29]),
        ({"find": "key-29", "in": "value"}, []),
        ({"find": "key-29", "in": "key"}, [*range(299, 289, -1), 29]),
        ({"find": "t123", "in": "headers"}, [123]),
        ({"find": '"id": 7,'}, [7]),
        ({"path": "$.order.id == 250"}, [250]),
        ({"path": "$.order.lines[0].price == \"12.00\""}, [12]),
        ({"path": "$..price == \"12.00\""}, [12]),
        ({"path": "$.order.lines[1]"}, []),
        ({"path": "$['order']['id'] == 3", "find": "key-4"}, []),
        ({"state": "committed"}, []),
    ],
)  # fmt: skip
def test_records_are_found(broker: BrokerProcess, query: dict[str, str], expected: list[int]) -> None:
    assert offsets(all_of(broker, topic="orders", **query)) == expected


def test_a_tail_requests_only_later_records(broker: BrokerProcess) -> None:
    before = ask(broker, "records", topic="values")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("values", b"later")
    assert producer.flush(30) == 0
    after = ask(broker, "records", topic="values", order="oldest", at=before["ends"])
    assert [each["value"]["text"] for each in after["records"]] == ["later"]
    again = ask(broker, "records", topic="values", order="oldest", at=after["next"])
    assert again["records"] == []


def test_the_work_of_a_request_does_not_grow_with_the_topic(broker: BrokerProcess) -> None:
    newest = ask(broker, "records", topic="many")
    assert offsets(newest["records"]) == list(range(MANY - 1, MANY - 1 - SHOWN, -1))
    rare = ask(broker, "records", topic="many", path="$.no.such")
    assert 0 < rare["looked_at"] < 2 * MAX_RECORDS
    assert not rare["is_done"]
    assert offsets(all_of(broker, topic="many", find="value-77777")) == [77_777]
    assert MANY * 60 < MAX_BYTES * 2  # A few requests were enough above, because all records fit into twice MAX_BYTES.


def test_json_is_as_it_was_written(broker: BrokerProcess) -> None:
    assert ask(broker, "records", topic="values", offset=0)["records"][0]["value"] == {"text": WRITTEN}
    assert ask(broker, "record", topic="values", partition=0, offset=0)["text"] == WRITTEN


def test_a_large_value_comes_in_pieces(broker: BrokerProcess) -> None:
    pieces, at = [], 0
    while at is not None:
        piece = ask(broker, "record", **{"topic": "values", "partition": 0, "offset": 1, "from": at})
        assert len(piece["text"].encode()) <= PIECE_BYTES
        pieces.append(piece["text"])
        at = piece["next"]
    assert "".join(pieces).encode() == LARGE
    assert piece["size"] == len(LARGE)
    assert piece["headers"] == ["bytes", "empty"]


def test_whatever_a_record_holds_is_downloaded(broker: BrokerProcess) -> None:
    base = f"http://127.0.0.1:{broker.ready['http_port']}/download?topic=values&partition=0&offset=1"
    for of, expected in (("value", LARGE), ("header:0", BYTES), ("header:1", b""), ("key", b"")):
        with urlopen(f"{base}&of={of}", timeout=60) as answer:
            assert answer.read() == expected
            assert answer.headers["Content-Disposition"].startswith("attachment;")
            assert answer.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "query",
    ["order=up", "in=body", "state=lost", "path=order", "path=$..a..b", "path=$.a+==+b", "at=x", "partition=-1",
     "timestamp=noon", "path=$[x]", "path=$."],
)  # fmt: skip
def test_an_invalid_query_is_refused_with_an_error_message(broker: BrokerProcess, query: str) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://127.0.0.1:{broker.ready['http_port']}/api/records?topic=orders&{query}", timeout=60)
    assert json.loads(refused.value.read())["code"] == "INVALID_REQUEST"
