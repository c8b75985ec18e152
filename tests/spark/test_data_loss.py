"""Tests that a query reports the records that its source has lost since the checkpoint, for each way in which a source
can shrink. With failOnDataLoss=true the query fails and names the lost records. With failOnDataLoss=false it warns and
continues with the remaining records (docs/using-spark.md#when-records-are-lost).

Starting a query is slow, so each query covers all ways that can be detected at the same time.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from odradek.client import NewTopic, TopicPartition
from odradek.client.administration.configs import AlterOperation, ConfigChange, ConfigResource, ConfigType
from odradek.client.sync import Admin, Consumer, Producer
from tests.clients.speakers import wait_for
from tests.spark.checks import PATIENCE_S, finished
from tests.support.broker_process import Broker, new_broker

RETENTION = {"log.retention.check.interval.ms": "200"}
LONG_AGO_MS = 1_000
FOR_EVER, FOR_AN_HOUR = {"retention.ms": "-1"}, "3600000"


class NotWritten(Exception):
    """Raised by the sink. The batch is then planned but not done."""


@dataclass(slots=True)
class Reading:
    """A query on all topics whose names start with `name` and a hyphen. It collects the values that it reads, and keeps
    them across restarts."""

    spark: Any
    broker: Broker
    checkpoint: str
    workers_log: Path
    name: str
    values: list[bytes] = field(default_factory=list)

    def run(self, *, fails: bool, is_written: bool = True) -> Any:
        """Runs the query until it has read all records or has failed, and returns it.

        fails       value of failOnDataLoss
        is_written  False if the sink must fail
        """

        def write(frame: Any, batch: int) -> None:
            if not is_written:
                raise NotWritten
            self.values[:] = sorted([*self.values, *(bytes(row.value) for row in frame.collect())])

        def start() -> Any:
            return (
                self.spark.readStream.format("odradek")
                .options(**{"kafka.bootstrap.servers": self.broker.bootstrap, "subscribePattern": f"{self.name}-.*"})
                .options(startingOffsets="earliest", failOnDataLoss=str(fails).lower())
                .load()
                .select("value")
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", self.checkpoint)
                .trigger(availableNow=True)
                .start()
            )

        return finished(start)

    def create(self, topic: str, partitions: int = 2, configs: Mapping[str, str] | None = None) -> None:
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions=partitions, configs=configs or {})])

    def delete(self, topic: str) -> None:
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.delete_topics([topic])

    def write(self, topic: str, *values: bytes, partition: int = 0, at_ms: int | None = None) -> None:
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            for value in values:
                producer.send(topic, value, partition=partition, timestamp_ms=at_ms)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def earliest(self, topic: str, partition: int) -> int:
        at = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=self.broker.bootstrap) as consumer:
            return consumer.beginning_offsets([at])[at]

    def names(self, *names: str) -> list[str]:
        return [f"{self.name}-{name}" for name in names]

    def read(self, *names: str) -> list[str]:
        """Creates topics with three records each, reads them with the query, and returns their names."""
        topics = self.names(*names)
        for topic in topics:
            self.create(topic, configs=FOR_EVER)
            self.write(topic, b"0", b"1", b"2", at_ms=LONG_AGO_MS)
        assert self.run(fails=True).exception() is None
        assert self.values == sorted([b"0", b"1", b"2"] * len(topics))
        self.values.clear()
        return topics

    def warnings(self) -> list[str]:
        """Returns the losses in this query's topics that the workers have logged warnings about."""
        lost = [line.partition("records were lost: ")[2] for line in self.workers_log.read_text().splitlines()]
        return [each for each in lost if self.name in each]

    def plan(self) -> None:
        """Plans a batch that fails in the sink, so that the next start repeats it."""
        assert "NotWritten" in str(self.run(fails=True, is_written=False).exception())


# Ways in which a topic shrinks after three records of partition 0 have been read. Each function returns the loss that
# the query must report, and the remaining values.


def recreate_topic(q: Reading, topic: str, *values: bytes, partitions: int = 2) -> None:
    q.delete(topic)
    q.create(topic, partitions)
    q.write(topic, *values)


def recreated_shorter(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    recreate_topic(q, topic, b"shorter")
    return f"{topic} was deleted and created again", [b"shorter"]


def recreated_longer(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    values = [b"longer%d" % number for number in range(5)]
    recreate_topic(q, topic, *values)
    return f"{topic} was deleted and created again", values


def recreated_with_fewer_partitions(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    recreate_topic(q, topic, b"narrower", partitions=1)
    return f"{topic}-1 no longer exists; the checkpoint has its offset 0", [b"narrower"]


def deleted_with_unread_records(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    q.write(topic, b"unread")
    q.delete(topic)
    return f"{topic}-0 no longer exists; the checkpoint has its offset 3", []


def widened_by_a_partition_without_its_first_records(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    with Admin(bootstrap_servers=q.broker.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    q.write(topic, b"unread", b"wider", partition=2)
    q.delete_records(topic, 2, before=1)
    return f"{topic}-2 is new and begins at 1 instead of 0", [b"wider"]


def shortened_by_delete_records(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    q.write(topic, b"unread", b"unread", b"kept")
    q.delete_records(topic, 0, before=5)
    return f"the offsets 3 to 5 of {topic}-0 are no longer in the log", [b"kept"]


def shortened_by_retention(q: Reading, topic: str) -> tuple[str, list[bytes]]:
    q.write(topic, b"unread", b"unread", at_ms=LONG_AGO_MS)
    with Admin(bootstrap_servers=q.broker.bootstrap) as admin:
        changes = [ConfigChange(AlterOperation.SET, "retention.ms", FOR_AN_HOUR)]
        admin.alter_configs({ConfigResource(ConfigType.TOPIC, topic): changes})
    wait_for("retention", lambda: q.earliest(topic, 0) == 5, PATIENCE_S)
    q.write(topic, b"young")
    return f"the offsets 3 to 5 of {topic}-0 are no longer in the log", [b"young"]


Way = Callable[[Reading, str], tuple[str, list[bytes]]]
BETWEEN_BATCHES: list[Way] = [
    recreated_shorter,
    recreated_longer,
    recreated_with_fewer_partitions,
    deleted_with_unread_records,
    widened_by_a_partition_without_its_first_records,
]
RECORDS_DELETED: list[Way] = [shortened_by_delete_records, shortened_by_retention]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yields a separate broker for these tests, because they replace its data directory."""
    with new_broker(tmp_path_factory.mktemp("shrinking") / "data", RETENTION) as running:
        yield running


@pytest.fixture
def query(spark: Any, broker: Broker, checkpoint: str, workers_log: Path) -> Reading:
    return Reading(spark, broker, checkpoint, workers_log, f"q{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("ways", [BETWEEN_BATCHES, RECORDS_DELETED], ids=["between batches", "records deleted"])
def test_a_topic_that_has_shrunk_fails_or_warns(query: Reading, ways: Sequence[Way]) -> None:
    topics = query.read(*(way.__name__ for way in ways))
    messages, left = zip(*(way(query, topic) for way, topic in zip(ways, topics, strict=True)), strict=True)
    fails_or_warns(query, messages, [value for values in left for value in values])


def test_a_topic_that_shrinks_after_a_batch_was_planned_fails_or_warns(query: Reading) -> None:
    """The next start resumes the planned batch, whose offsets no longer exist."""
    anew, gone = query.read("anew", "gone")
    for topic in (anew, gone):
        query.write(topic, b"unread", b"unread")
    query.plan()
    recreate_topic(query, anew, b"shorter")
    query.delete(gone)
    messages = [f"{anew} was deleted and created again", f"{gone}-0 no longer exists; the checkpoint has its offset 5"]
    fails_or_warns(query, messages, [b"shorter"])


@pytest.mark.parametrize("is_planned", [False, True], ids=["between batches", "after a batch was planned"])
def test_a_broker_restored_from_an_older_copy_of_its_directory_fails_or_warns(query: Reading, is_planned: bool) -> None:
    (topic,) = query.read("topic")
    if is_planned:
        query.write(topic, b"kept")
    older = query.broker.data_dir.with_name("older")
    query.broker.stop()
    shutil.copytree(query.broker.data_dir, older)
    query.broker.start()
    query.write(topic, b"lost", b"lost")
    if is_planned:
        query.plan()
    else:
        assert query.run(fails=True).exception() is None
    query.values.clear()
    query.broker.kill9()
    shutil.rmtree(query.broker.data_dir)
    older.rename(query.broker.data_dir)
    query.broker.start()
    end, read = (4, 6) if is_planned else (3, 5)
    messages = f"{topic}-0 ends at {end}, before the offset {read} of the checkpoint"
    fails_or_warns(query, [messages], [b"kept"] if is_planned else [])


def fails_or_warns(query: Reading, messages: Sequence[str], left: Sequence[bytes]) -> None:
    failed = str(query.run(fails=True).exception())
    assert "DataLost" in failed
    assert [each for each in messages if each not in failed] == []
    assert query.values == []

    assert query.warnings() == []
    assert query.run(fails=False).exception() is None
    assert set(messages) <= set(query.warnings())
    assert query.values == sorted(left)

    # The query continues from there and reports no further loss.
    (late,) = query.names("late")
    query.create(late)
    query.write(late, b"later")
    assert query.run(fails=True).exception() is None
    assert query.values == sorted([*left, b"later"])
