"""Tests the dual write over the network, with SQLite and the producer in `odradek.client`."""

import sqlite3
from pathlib import Path

import pytest

from odradek.client import (
    AbortableError,
    AcknowledgedRange,
    ConsumerRecord,
    FatalError,
    ShareGroupMetadata,
    TopicPartition,
)
from odradek.client.sync import Admin, Consumer, Producer
from odradek.dualwrite import DualWrite, Fate, Fenced, InDoubt, NotCommitted, NotRecovered, Observer, Result, Step
from odradek.dualwrite.kafka import KafkaParticipant
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_consumers import produce
from tests.clients.transactions import READERS
from tests.support.broker_process import IS_KAFKA, Broker

pytestmark = pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")

TOPIC, TRANSACTIONAL_ID = "orders", "orders-1"
SHORT_MS = 5_000


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    running = start_broker({"transaction.two.phase.commit.enable": "true"})
    create_topic(running.bootstrap, TOPIC)
    return running


class Orders:
    """A database table of orders and a topic, with dual writes to both."""

    def __init__(self, path: Path, broker: Broker) -> None:
        self._path, self.broker = path, broker
        connection = self.connect()
        connection.execute("CREATE TABLE orders (name text)")
        connection.close()

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)

    def dual(
        self, *, observe: Observer = lambda step, result: None, timeout_ms: int = 20_000
    ) -> DualWrite[sqlite3.Connection]:
        return DualWrite(
            connect=self.connect,
            bootstrap_servers=self.broker.bootstrap,
            transactional_id=TRANSACTIONAL_ID,
            timeout_ms=timeout_ms,
            observe=observe,
        )

    @property
    def rows(self) -> list[bytes]:
        connection = self.connect()
        found = [name for (name,) in connection.execute("SELECT name FROM orders")]
        connection.close()
        return found

    @property
    def messages(self) -> list[bytes]:
        return READERS["confluent-kafka"](self.broker.bootstrap, TOPIC, committed=True)


@pytest.fixture
def orders(tmp_path: Path, broker: Broker) -> Orders:
    return Orders(tmp_path / "orders.db", broker)


def write(dual: DualWrite[sqlite3.Connection], *names: bytes) -> None:
    with dual.transaction() as transaction:
        for name in names:
            transaction.execute("INSERT INTO orders VALUES (?)", (name,))
            transaction.send(TOPIC, name, key=b"k", headers=[("h", b"1")])


def test_transactions_follow_each_other_over_one_producer(orders: Orders) -> None:
    with orders.dual() as dual:
        for number in range(5):
            write(dual, b"%d a" % number, b"%d b" % number)
    assert orders.rows == orders.messages == [b"%d %c" % (number, which) for number in range(5) for which in b"ab"]


def test_the_future_of_a_message_has_its_partition_and_offset(orders: Orders) -> None:
    with orders.dual() as dual, dual.transaction() as transaction:
        where = transaction.send(TOPIC, b"tea", partition=0, timestamp_ms=1_700_000_000_000)
    assert where.result() == (TOPIC, 0, 0, 1_700_000_000_000)


def test_a_message_that_cannot_be_written_rolls_back_the_rows(orders: Orders) -> None:
    with orders.dual() as dual:
        with pytest.raises(NotCommitted):
            write(dual, b"tea", b"x" * 2_000_000)
        write(dual, b"milk")
    assert orders.rows == orders.messages == [b"milk"]


def test_a_block_without_messages_does_not_give_its_state_to_the_next(orders: Orders) -> None:
    def leave(step: Step, result: Result | None) -> None:
        if (step, result) == (Step.WRITE_STATE, Result.DONE):
            raise KeyboardInterrupt

    dual = orders.dual(observe=leave)
    dual.recover()
    with dual.transaction() as transaction:
        transaction.execute("INSERT INTO orders VALUES (?)", (b"tea",))
    with pytest.raises(KeyboardInterrupt):
        write(dual, b"milk")
    found = dual.recover()
    assert (found.messages, found.stored_state) == (Fate.ROLLED_BACK, "")
    dual.close()
    assert (orders.rows, orders.messages) == ([b"tea"], [])


def test_a_second_instance_fences_the_first(orders: Orders) -> None:
    with orders.dual() as first:
        write(first, b"tea")
        with orders.dual() as second:
            with pytest.raises(Fenced):
                write(first, b"milk")
            write(second, b"sugar")
    assert orders.rows == orders.messages == [b"tea", b"sugar"]


def test_the_broker_fences_a_producer_even_if_the_row_does_not(orders: Orders) -> None:
    """A second producer takes over the transactional id without changing the database. After that, the first producer
    cannot commit messages."""

    def intrude(step: Step, result: Result | None) -> None:
        if (step, result) == (Step.WRITE_STATE, Result.DONE):
            intruder = KafkaParticipant(lambda: producer(orders))
            assert intruder.take_over()
            intruder.close()

    dual = orders.dual(observe=intrude)
    dual.recover()
    with pytest.raises(Fenced) as caught:
        write(dual, b"tea")
    assert caught.value.rows is Fate.COMMITTED
    assert orders.messages == []
    assert dual.recover().messages is Fate.COMMITTED
    dual.close()
    assert orders.rows == orders.messages == [b"tea"]


def producer(orders: Orders) -> Producer:
    return Producer(bootstrap_servers=orders.broker.bootstrap, transactional_id=TRANSACTIONAL_ID, two_phase_commit=True)


@pytest.mark.slow  # runs in `make test-slow`
def test_messages_stay_pending_without_a_broker_and_a_later_recovery_commits_them(
    orders: Orders, broker: Broker
) -> None:
    def lose_the_broker(step: Step, result: Result | None) -> None:
        if (step, result) == (Step.COMMIT_DATABASE, Result.DONE):
            broker.kill9()

    with orders.dual() as first:  # This makes the broker load its coordinators, because the next timeout is short.
        write(first, b"milk")
    dual = orders.dual(observe=lose_the_broker, timeout_ms=SHORT_MS)
    dual.recover()
    with pytest.raises(InDoubt) as caught:
        write(dual, b"tea")
    assert (caught.value.rows, caught.value.messages) == (Fate.COMMITTED, Fate.PENDING)
    with pytest.raises(NotRecovered):
        dual.recover()
    broker.start()
    patient = orders.dual()
    assert patient.recover().messages is Fate.COMMITTED
    patient.close()
    dual.close()
    assert orders.rows == orders.messages == [b"milk", b"tea"]


def test_recovery_refuses_an_unreadable_state(orders: Orders) -> None:
    with orders.dual() as dual:
        write(dual, b"tea")

    def leave(step: Step, result: Result | None) -> None:
        if (step, result) == (Step.COMMIT_DATABASE, Result.DONE):
            raise KeyboardInterrupt

    dual = orders.dual(observe=leave)
    dual.recover()
    with pytest.raises(KeyboardInterrupt):
        write(dual, b"milk")
    dual.close()
    connection = orders.connect()
    with connection:
        connection.execute("UPDATE kafka_transaction_state SET prepared_transaction_state = 'nonsense'")
    connection.close()
    with pytest.raises(NotRecovered) as caught:
        orders.dual().recover()
    assert isinstance(caught.value.__cause__, ValueError)
    assert orders.messages == [b"tea"]


def test_without_permission_for_two_phase_commit_recovery_names_the_error(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    orders = Orders(tmp_path / "orders.db", start_broker({}))
    with pytest.raises(NotRecovered) as caught:
        orders.dual().recover()
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(caught.value.__cause__)


def test_offsets_of_consumed_records_are_committed_with_the_rows(orders: Orders) -> None:
    jobs = TopicPartition(create_topic(orders.broker.bootstrap, "jobs"), 0)
    produce(orders.broker.bootstrap, jobs.topic, b"tea", b"milk", b"sugar")
    with (
        orders.dual() as dual,
        Consumer(jobs.topic, bootstrap_servers=orders.broker.bootstrap, group_id="kitchen") as consumer,
    ):

        def take(record: ConsumerRecord, *, fails: bool = False) -> None:
            with dual.transaction() as transaction:
                transaction.send_offsets({jobs: record.offset + 1}, consumer.group_metadata())
                transaction.execute("INSERT INTO orders VALUES (?)", (None if fails else record.value,))
                assert not fails

        first, second, third = (consumer.getone() for _ in range(3))
        take(first)
        take(second)
        with pytest.raises(AssertionError):
            take(third, fails=True)
        committed = consumer.committed([jobs])[jobs]
        assert committed is not None
        assert committed.offset == 2
    assert orders.rows == [b"tea", b"milk"]


def test_a_broker_without_kip_1289_is_noticed_and_the_block_rolled_back(orders: Orders) -> None:
    group = ShareGroupMetadata("workers", "member", 1)
    with orders.dual() as dual:

        def acknowledge() -> None:
            with dual.transaction() as transaction:
                transaction.execute("INSERT INTO orders VALUES (?)", (b"tea",))
                transaction.acknowledge({TopicPartition(TOPIC, 0): [AcknowledgedRange(0, 1)]}, group)

        with pytest.raises(AbortableError, match="KIP-1289") as refused:
            acknowledge()
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        write(dual, b"milk")
    assert orders.rows == orders.messages == [b"milk"]


@pytest.mark.parametrize("restart", ["no restart", "restart"])
def test_an_ordinary_transaction_that_was_left_open_passes_no_timeout_on(orders: Orders, restart: str) -> None:
    """The application may have left an ordinary transaction open under its transactional id before it introduced the
    dual write."""
    before = Producer(
        bootstrap_servers=orders.broker.bootstrap, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=3_000
    )
    before.start()
    before.init_transactions()
    before.begin_transaction()
    before.send(TOPIC, b"never committed").result()
    if restart == "restart":
        orders.broker.restart()
    with orders.dual() as dual, Admin(bootstrap_servers=orders.broker.bootstrap) as admin:
        with dual.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (?)", (b"tea",))
            transaction.send(TOPIC, b"tea").result()
            (described,) = admin.describe_transactions([TRANSACTIONAL_ID]).values()
            assert (described.state, described.timeout_ms) == ("Ongoing", None)
        write(dual, b"scones")
    assert orders.rows == orders.messages == [b"tea", b"scones"]
    with pytest.raises(FatalError):
        before.commit_transaction()
    before.close()
