"""Tests that clients continue to work when the broker's wall clock jumps by hours.

Sessions, acquisition locks and waits are not affected, because Kafka measures them with its monotonic clock. Everything
else behaves as in Kafka.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from odradek.broker.runtime.controlled_time import ControlledTime
from odradek.broker.serving import ServingBroker
from odradek.client import ClientError, TopicPartition
from odradek.client.sync import Admin, Consumer
from tests.clients.admin import create_topic
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import SETTINGS, first_of, share_group, worker
from tests.clients.own_share_transactions import producer_of
from tests.clients.speakers import wait_for
from tests.support.metadata import config_with

pytestmark = pytest.mark.slow  # runs in `make test-slow`

HOUR_MS = 3_600_000
LOCK_MS = 4_000
SESSION_MS = 6_000
JUMPS = [-3 * HOUR_MS, HOUR_MS]
BROKER = SETTINGS | {
    # The clients' clocks do not jump, so after a jump back their timestamps are in the broker's future.
    "log.message.timestamp.after.max.ms": 2**63 - 1,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.share.session.timeout.ms": 60_000,
    "group.share.max.session.timeout.ms": 60_000,
}


class BrokerInThread(threading.Thread):
    """A broker whose wall clock can be set. Its timers follow the event loop's monotonic clock."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(daemon=True)
        settings = {name.replace(".", "_"): str(value) for name, value in BROKER.items()}
        self._config = config_with(
            log_dirs=str(data_dir), listeners="PLAINTEXT://127.0.0.1:0", odradek_http_port="-1", **settings
        )
        self._address: Future[str] = Future()

    @property
    def bootstrap(self) -> str:
        return self._address.result(60)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        self._time = ControlledTime(self._loop)
        try:
            serving = ServingBroker(self._config, self._loop, time=self._time, is_alone=False)
            await serving.start()
        except BaseException as error:
            self._address.set_exception(error)
            raise
        bound = serving.broker.bound[0]
        self._address.set_result(f"{bound.host}:{bound.port}")
        await self._is_over.wait()
        await serving.stop(5)

    def jump(self, ms: int) -> None:
        self._loop.call_soon_threadsafe(self._time.jump, ms)

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self.join(60)
        assert not self.is_alive()


@pytest.fixture(params=JUMPS, ids=["3 h back", "1 h forward"])
def jump_ms(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerInThread]:
    made = BrokerInThread(tmp_path / "data")
    made.start()
    assert made.bootstrap
    with Admin(bootstrap_servers=made.bootstrap) as admin:
        admin.update_features({"odradek.share.transactions": 1})
    yield made
    made.finish()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_keeps_its_partitions_and_gets_every_record(
    broker: BrokerInThread, protocol: str, jump_ms: int
) -> None:
    at = broker.bootstrap
    create_topic(at, "orders")
    found: list[bytes | None] = []
    lost: list[TopicPartition] = []
    quick = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=at, group_id="g", group_protocol=protocol, **quick) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(["orders"], on_lost=lost.extend, on_revoked=lost.extend)

        def read(count: int) -> bool:
            for records in consumer.getmany(timeout_ms=100).values():
                found.extend(record.value for record in records)
            return len(found) >= count

        produce(at, "orders", b"0")
        wait_for("the first record", lambda: read(1))
        before = consumer.group_metadata()
        broker.jump(jump_ms)
        ends_at = time.monotonic() + 1.2 * SESSION_MS / 1000
        count = 1
        while time.monotonic() < ends_at:
            produce(at, "orders", b"%d" % count)
            count += 1
            wait_for("a record", lambda count=count: read(count))  # type: ignore[misc]
            read(count + 1)
        consumer.commit()
        assert consumer.group_metadata() == before
        assert lost == []
    assert found == [b"%d" % number for number in range(count)]


def test_the_lock_of_a_worker_that_is_silent_ends_when_it_should(broker: BrokerInThread, jump_ms: int) -> None:
    """Checks that the record is not locked for hours after a jump back, and not released early after a jump forward."""
    at = broker.bootstrap
    create_topic(at, "queue")
    produce(at, "queue", b"job")
    share_group(at, "queue", share_record_lock_duration_ms=LOCK_MS)
    with worker(at, "queue", "queue") as silent, worker(at, "queue", "queue") as other:
        began_s = time.monotonic()
        (held,) = first_of(silent)
        broker.jump(jump_ms)
        (again,) = first_of(other)
        assert time.monotonic() - began_s > 0.95 * LOCK_MS / 1000
        assert (again.offset, again.delivery_count) == (held.offset, 2)
        other.acknowledge(again)
        other.commit()


def test_a_record_is_acknowledged_after_the_jump(broker: BrokerInThread, jump_ms: int) -> None:
    at = broker.bootstrap
    create_topic(at, "queue")
    produce(at, "queue", b"job")
    share_group(at, "queue")
    with worker(at, "queue", "queue") as consumer:
        (record,) = first_of(consumer)
        broker.jump(jump_ms)
        consumer.acknowledge(record)
        assert list(consumer.commit().values()) == [None]


def test_an_open_transaction_is_committed_after_a_jump_back(broker: BrokerInThread) -> None:
    at = broker.bootstrap
    create_topic(at, "results")
    with producer_of(at, "pay") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send("results", b"%d" % number).result()
            broker.jump(-3 * HOUR_MS)
            producer.commit_transaction()
    assert committed(at, "results") == [b"0", b"1", b"2"]


def test_a_transaction_that_is_older_than_its_timeout_by_the_wall_clock_is_aborted(broker: BrokerInThread) -> None:
    """Every 10 s, Kafka checks by the wall clock whether open transactions have exceeded their timeouts. A producer
    that begins a transaction after the jump is not affected."""
    at = broker.bootstrap
    create_topic(at, "results")
    with producer_of(at, "old") as old, producer_of(at, "idempotent") as producer, Admin(bootstrap_servers=at) as admin:
        producer.init_transactions()
        old.init_transactions()
        old.begin_transaction()
        old.send("results", b"too late").result()
        broker.jump(HOUR_MS)
        wait_for("the abort", lambda: admin.describe_transactions(["old"])["old"].state == "CompleteAbort")
        with pytest.raises(ClientError):
            old.commit_transaction()
        producer.begin_transaction()
        producer.send("results", b"in time").result()
        producer.commit_transaction()
    assert committed(at, "results") == [b"in time"]


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes | None] = []
        while consumer.position(partition) < end:
            found += [record.value for each in consumer.getmany(timeout_ms=100).values() for record in each]
    return found
