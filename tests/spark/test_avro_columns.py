"""Tests columns that `odradek.spark.avro` decodes with the schemas of a running registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from odradek.client.sync import Producer
from odradek.registry.schemas import AVRO, Json, Reference, parse
from odradek.registry.values import encode
from odradek.spark.avro import decode_avro, schema_id
from tests.clients.speakers.speaker import wait_for
from tests.spark.checks import LATE_STARTS, PATIENCE_S, finished
from tests.support.broker_process import IS_KAFKA, BrokerProcess
from tests.support.oracle import REPOSITORY
from tests.support.registry_caller import SETTINGS, RegistryCaller
from tests.support.spark_session import AVRO_JARS, environment, is_late

pytestmark = [
    pytest.mark.skipif(IS_KAFKA, reason="Kafka has no registry"),
    pytest.mark.skipif(not AVRO_JARS, reason="no spark-avro: make test-spark fetches it"),
]

MONEY = {
    "type": "record",
    "name": "shop.Money",
    "fields": [
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "GBP"]}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
Fields = list[dict[str, Any]]
ID = {"name": "id", "type": "long"}
# The second version adds fields with defaults and widens `count` from int to long.
FIRST: Fields = [ID, {"name": "price", "type": "shop.Money"}, {"name": "count", "type": "int"}]
SECOND: Fields = [
    ID,
    {"name": "price", "type": "shop.Money"},
    {"name": "count", "type": "long"},
    {"name": "ordered", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
]
THIRD: Fields = [*SECOND, {"name": "note", "type": ["null", "string"], "default": None}]
PRICE = {"currency": "GBP", "amount": "12.34"}


class Subject:
    """A subject in the registry and its topic. Registers schemas and writes records to the topic."""

    def __init__(self, broker: BrokerProcess, topic: str, part: str = "value") -> None:
        self._registry = RegistryCaller(broker)
        self._broker = broker
        self.topic = topic
        self.name = f"{topic}-{part}"
        self.url = f"http://127.0.0.1:{broker.ready['schema_registry_port']}"

    def register(self, fields: Fields) -> Callable[[Json], bytes]:
        """Registers a record schema with these fields and returns a function that encodes values with it."""
        money = {"schema": json.dumps(MONEY)}
        assert self._registry.ask("POST", "/subjects/money/versions", money)[0] == 200
        text = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})
        reference = Reference("shop.Money", "money", 1)
        body = {"schema": text, "references": [reference.as_json()]}
        status, answer = self._registry.ask("POST", f"/subjects/{self.name}/versions", body)
        assert status == 200, answer
        schema = parse(AVRO, text, [(reference, json.dumps(MONEY))])
        return lambda value: encode(value, answer["id"], AVRO, schema)

    def register_text(self, text: str) -> Callable[[Json], bytes]:
        status, answer = self._registry.ask("POST", f"/subjects/{self.name}/versions", {"schema": text})
        assert status == 200, answer
        return lambda value: encode(value, answer["id"], AVRO, parse(AVRO, text))

    def write(self, *values: bytes | None, key: bytes | None = None) -> None:
        with Producer(bootstrap_servers=self._broker.bootstrap) as producer:
            for value in values:
                producer.send(self.topic, value, key=key, partition=0)
            producer.flush()

    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._broker.bootstrap, "subscribe": self.topic}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("registry") / "data", SETTINGS) as running:
        assert isinstance(running, BrokerProcess)
        yield running


@pytest.fixture
def subject(broker: BrokerProcess, topic: str) -> Subject:
    return Subject(broker, topic)


def batch(spark: Any, subject: Subject) -> Any:
    return spark.read.format("odradek").options(**subject.options()).load()


def order(number: int, **more: object) -> dict[str, object]:
    return {"id": number, "price": PRICE, "count": 2, **more}


def test_records_of_all_versions_get_the_latest_schema(spark: Any, broker: BrokerProcess, subject: Subject) -> None:
    keys = Subject(broker, subject.topic, "key")
    key = keys.register_text('"long"')
    subject.write(subject.register(FIRST)(order(1)), key=key(7))
    more = {"ordered": "2026-11-30T10:00:00.123Z", "due": "2026-12-24", "tags": ["gift"]}
    subject.write(subject.register(SECOND)(order(2, **more)), None, key=key(8))
    decoded = decode_avro(batch(spark, subject), "value", subject.name, registry=subject.url)
    decoded = decode_avro(decoded, "key", keys.name, registry=keys.url, into="number")
    found = [(row.number, row.value) for row in decoded.orderBy("offset").collect()]
    price = ("GBP", Decimal("12.34"))
    first: tuple[Any, ...] = (1, price, 2, datetime(1970, 1, 1, tzinfo=UTC), None, [])
    second = (2, price, 2, datetime(2026, 11, 30, 10, 0, 0, 123_000, tzinfo=UTC), date(2026, 12, 24), ["gift"])
    assert [(number, value and plain(value)) for number, value in found] == [(7, first), (8, second), (8, None)]
    assert decoded.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,price:struct<currency:string,amount:decimal(9,2)>,count:bigint,ordered:timestamp,due:date,"
        "tags:array<string>>"
    )
    assert decoded.where("value.count > 1 and value.due is null").count() == 1
    files = spark.read.format("odradek").options(path=str(broker.data_dir), subscribe=subject.topic).load()
    of_files = decode_avro(files, "value", subject.name, registry=subject.url).select("value.id")
    assert sorted(row.id for row in of_files.where("id is not null").collect()) == [1, 2]


def plain(row: Any) -> tuple[Any, ...]:
    """Converts a row and its nested rows to tuples, with times in UTC."""
    return tuple(
        plain(each) if hasattr(each, "asDict") else each.astimezone(UTC) if isinstance(each, datetime) else each
        for each in row
    )


def test_the_readers_version_can_be_named_and_deleted_versions_are_read(
    spark: Any, broker: BrokerProcess, subject: Subject
) -> None:
    subject.write(subject.register(FIRST)(order(1)))
    subject.write(subject.register(SECOND)(order(2)), subject.register(THIRD)(order(3, note="gift")))
    assert RegistryCaller(broker).ask("DELETE", f"/subjects/{subject.name}/versions/1")[0] == 200
    decoded = decode_avro(batch(spark, subject), "value", subject.name, registry=subject.url, version=2)
    assert [row.id for row in decoded.orderBy("offset").select("value.*").collect()] == [1, 2, 3]
    assert "note" not in decoded.schema["value"].dataType.names


FOREIGN = b'{"id": 1}'


def test_a_value_that_is_not_avro_fails_the_query_or_becomes_null(spark: Any, subject: Subject) -> None:
    good = subject.register(FIRST)(order(1))
    cut = good[:-3]
    subject.write(good, FOREIGN, b"", b"\0\0\0\0\0\0\0\5", cut)

    def rows(mode: str, where: str = "true") -> list[Any]:
        frame = batch(spark, subject).where(where)
        decoded = decode_avro(frame, "value", subject.name, registry=subject.url, mode=mode, into="order")
        return [None if row.order is None else row.order.id for row in decoded.orderBy("offset").collect()]

    with pytest.raises(
        Exception, match=f"the value of the record at offset 1 of {subject.topic}-0 does not begin with a zero"
    ):
        rows("failfast", "offset < 2")
    with pytest.raises(Exception, match="Malformed"):
        rows("FAILFAST", "offset = 4")
    assert rows("PERMISSIVE") == [1, None, None, None, None]


def test_an_id_of_another_subject_fails_the_query_in_every_mode(
    spark: Any, broker: BrokerProcess, subject: Subject
) -> None:
    other = Subject(broker, f"{subject.topic}-other")
    subject.write(subject.register(FIRST)(order(1)), other.register_text('"string"')("tea"))
    for mode in ("FAILFAST", "PERMISSIVE"):
        decoded = decode_avro(batch(spark, subject), "value", subject.name, registry=subject.url, mode=mode)
        with pytest.raises(Exception, match=f"at offset 1 of .* the subject {subject.name} did not have"):
            decoded.collect()
    ids = [row.id for row in batch(spark, subject).select(schema_id("value").alias("id")).collect()]
    ours = batch(spark, subject).where(schema_id("value") == ids[0])
    assert decode_avro(ours, "value", subject.name, registry=subject.url).select("value.id").collect() == [(1,)]


def test_a_version_registered_while_a_stream_runs_is_read_after_a_restart(
    spark: Any, subject: Subject, checkpoint: str
) -> None:
    subject.write(subject.register(FIRST)(order(1)))
    found: list[Any] = []

    def start(**trigger: Any) -> Any:
        frame = spark.readStream.format("odradek").options(**subject.options(), startingOffsets="earliest").load()
        decoded = decode_avro(frame, "value", subject.name, registry=subject.url)
        return (
            decoded.select("value.*")
            .writeStream.option("checkpointLocation", checkpoint)
            .foreachBatch(lambda frame, _number: found.extend(frame.collect()))
            .trigger(**trigger)
            .start()
        )

    query = running(lambda: start(processingTime="0 seconds"), lambda: found)
    subject.write(subject.register(SECOND)(order(2, tags=["gift"])))
    wait_for("the end of the query", lambda: not query.isActive, PATIENCE_S)
    assert "start the query again" in str(query.exception())
    assert [row.id for row in found] == [1]
    assert finished(lambda: start(availableNow=True)).exception() is None
    assert [(row.id, row.asDict().get("tags")) for row in found] == [(1, None), (2, ["gift"])]


def test_a_stream_that_decodes_each_batch_reads_new_versions_without_a_restart(
    spark: Any, subject: Subject, checkpoint: str
) -> None:
    subject.write(subject.register(FIRST)(order(1)))
    found: list[int] = []

    def process(frame: Any, _number: int) -> None:
        decoded = decode_avro(frame, "value", subject.name, registry=subject.url)
        found.extend(row.id for row in decoded.select("value.id").collect())

    def start() -> Any:
        frame = spark.readStream.format("odradek").options(**subject.options(), startingOffsets="earliest").load()
        return frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(process).start()

    query = running(start, lambda: found)
    subject.write(subject.register(SECOND)(order(2)))
    query = query if query.isActive else start()
    wait_for("the second record", lambda: len(found) > 1 or not query.isActive, PATIENCE_S)
    query.stop()
    assert found == [1, 2]


def running(start: Callable[[], Any], condition: Callable[[], object]) -> Any:
    """Starts a query and returns it when the condition holds."""
    for _ in range(LATE_STARTS):
        query = start()
        wait_for("the first batch", lambda query=query: condition() or not query.isActive, PATIENCE_S)  # type: ignore[misc]
        if not is_late(query):
            assert query.exception() is None
            return query
    raise AssertionError(f"the machine is too slow for Spark: {query.exception()}")


def test_an_invalid_argument_of_decode_avro_is_refused_and_named(
    spark: Any, broker: BrokerProcess, subject: Subject
) -> None:
    frame = batch(spark, subject)

    def refused(match: str, column: str = "value", name: str = subject.name, **more: Any) -> None:
        with pytest.raises(ValueError, match=match):
            decode_avro(frame, column, name, **{"registry": subject.url} | more)

    refused("40401|not found")
    subject.register(FIRST)
    refused("the columns are key, value", column="values")
    refused("topic is string, not binary", column="topic")
    refused("mode must be FAILFAST or PERMISSIVE", mode="DROPMALFORMED")
    refused("use the parameter version", options={"avroSchema": "{}"})
    refused("registry=URL", registry="http://127.0.0.1:1")
    refused("Version 9 not found", version=9)
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    tree = Subject(broker, f"{subject.name}-tree")
    tree.register_text(json.dumps(node))
    refused("recursi", name=tree.name)
    assert decode_avro(frame, "value", tree.name, registry=tree.url, options={"recursiveFieldMaxDepth": "3"}).schema


def test_a_session_without_the_avro_package_gets_an_error_that_names_it(subject: Subject, tmp_path: Path) -> None:
    subject.register(FIRST)
    program = f"""
from odradek.spark.avro import decode_avro
from tests.support.spark_session import new_session
frame = new_session("local[1]").sql("select X'00' value")
decode_avro(frame, "value", {subject.name!r}, registry={subject.url!r})
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment(tmp_path), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "spark-submit --packages org.apache.spark:spark-avro_2.13:4" in done.stderr
