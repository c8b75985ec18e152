"""Tests transactions that client libraries write and read. All clients except Odradek's add partitions with a separate
request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.clients.admin import create_topic, new_admin
from tests.clients.conftest import StartBroker
from tests.clients.speakers import PATIENCE_S, TooSlow, wait_for
from tests.clients.transactions import PRODUCERS, READERS, Open, Transactional, TransactionFenced

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
LONG_MS = 600_000  # The transaction timeout must be longer than a broker restart takes.
Producer = Callable[..., Transactional]


@pytest.fixture(params=PRODUCERS)
def library(request: pytest.FixtureRequest) -> Open:
    return PRODUCERS[request.param]


@pytest.fixture
def open_producer(library: Open, bootstrap: str) -> Iterator[Producer]:
    opened: list[Transactional] = []

    def open_it(transactional_id: str, **more: object) -> Transactional:
        opened.append(library(bootstrap, transactional_id, **more))
        return opened[-1]

    yield open_it
    for each in opened:
        each.close()


def new_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def committed_offset(bootstrap: str, group: str, topic: str) -> int | None:
    """Returns the committed offset as an administrator sees it, without offsets in open transactions."""
    admin: AdminClient = new_admin(bootstrap)
    request = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([request])[group].result(PATIENCE_S).topic_partitions
    return found.offset if found.offset >= 0 else None


def offset_becomes(bootstrap: str, group: str, topic: str, expected: int | None) -> None:
    """Waits until the offset is committed. Kafka answers EndTxn before it writes the markers."""
    found: list[int | None] = []

    def is_there() -> bool:
        found.append(committed_offset(bootstrap, group, topic))
        return found[-1] == expected

    try:
        wait_for(f"offset {expected}", is_there)
    except TooSlow:
        raise AssertionError(f"offset {found[-1]}, not {expected}") from None


def commit_plainly(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commits an offset outside any transaction.

    The first commit also creates the offsets topic. If the topic did not exist, librdkafka would wait a long time for
    it.
    """
    admin: AdminClient = new_admin(bootstrap)

    def is_committed() -> bool:
        group_offsets = confluent_kafka.ConsumerGroupTopicPartitions(
            group, [confluent_kafka.TopicPartition(topic, 0, offset)]
        )
        (altered,) = admin.alter_consumer_group_offsets([group_offsets])[group].result(PATIENCE_S).topic_partitions
        return altered.error is None  # The coordinator of a new offsets topic may still be loading.

    wait_for("offsets to be kept", is_committed)


def everybody_reads(
    bootstrap: str, topic: str, *, committed: list[bytes], uncommitted: list[bytes], is_open: bool = False
) -> None:
    """Checks the values that all clients read at both isolation levels.

    is_open  whether an open transaction keeps the last stable offset from advancing
    """
    if not is_open:  # Kafka answers EndTxn before it writes the markers.
        wait_for("the markers", lambda: is_decided(bootstrap, topic))
    for name, values in READERS.items():
        assert values(bootstrap, topic, committed=True) == committed, name
        assert values(bootstrap, topic, committed=False) == uncommitted, name


def is_decided(bootstrap: str, topic: str) -> bool:
    """Returns whether read_committed consumers can read as far as read_uncommitted consumers."""
    admin = new_admin(bootstrap)
    place = confluent_kafka.TopicPartition(topic, 0)
    ends = set()
    for level in (confluent_kafka.IsolationLevel.READ_COMMITTED, confluent_kafka.IsolationLevel.READ_UNCOMMITTED):
        latest = {place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]  # not annotated there
        ends.add(admin.list_offsets(latest, isolation_level=level)[place].result(PATIENCE_S).offset)
    return len(ends) == 1


def test_committed_readers_get_committed_and_no_aborted_records(
    open_producer: Producer, bootstrap: str, topic: str
) -> None:
    producer = open_producer(new_id())
    for number in range(6):
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.flush()
        if number % 3:
            producer.commit()
        else:
            producer.abort()
    everybody_reads(
        bootstrap,
        topic,
        committed=[b"1", b"2", b"4", b"5"],
        uncommitted=[b"0", b"1", b"2", b"3", b"4", b"5"],
    )


def test_an_open_transaction_is_read_by_uncommitted_readers_only(
    open_producer: Producer, bootstrap: str, topic: str
) -> None:
    producer, other = open_producer(new_id()), open_producer(new_id())
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    other.begin()
    other.send(topic, b"behind it")
    other.flush()
    other.commit()
    everybody_reads(bootstrap, topic, committed=[], uncommitted=[b"open", b"behind it"], is_open=True)
    producer.commit()
    everybody_reads(bootstrap, topic, committed=[b"open", b"behind it"], uncommitted=[b"open", b"behind it"])


def test_records_of_several_partitions_are_committed_together(open_producer: Producer, bootstrap: str) -> None:
    topics = [create_topic(bootstrap, name) for name in ("one", "two", "three")]
    producer = open_producer(new_id())
    for commit in (False, True):
        producer.begin()
        for topic in topics:
            producer.send(topic, b"kept" if commit else b"dropped")
        producer.flush()
        if commit:
            producer.commit()
        else:
            producer.abort()
    for topic in topics:
        everybody_reads(bootstrap, topic, committed=[b"kept"], uncommitted=[b"dropped", b"kept"])


def test_offsets_move_with_their_transaction(open_producer: Producer, bootstrap: str, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    producer = open_producer(new_id())
    expected = None
    for number, commit in enumerate([False, True, False, True], start=1):
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.flush()  # An abort discards unsent records.
        producer.send_offsets({(topic, 0): number * 10}, group)
        assert committed_offset(bootstrap, group, topic) == expected, "pending until the end"
        if commit:
            producer.commit()
            expected = number * 10
        else:
            producer.abort()
        offset_becomes(bootstrap, group, topic, expected)
    everybody_reads(bootstrap, topic, committed=[b"2", b"4"], uncommitted=[b"1", b"2", b"3", b"4"])


def test_a_second_producer_of_the_id_ends_the_firsts_transaction_and_fences_it(
    open_producer: Producer, bootstrap: str, topic: str
) -> None:
    transactional_id = new_id()
    zombie = open_producer(transactional_id)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    zombie.flush()
    successor = open_producer(transactional_id)
    successor.begin()
    successor.send(topic, b"of its successor")
    successor.flush()
    with pytest.raises(TransactionFenced):
        zombie.commit()
    successor.commit()
    everybody_reads(
        bootstrap, topic, committed=[b"of its successor"], uncommitted=[b"of the zombie", b"of its successor"]
    )


@pytest.mark.slow  # runs in `make test-slow`
def test_a_transaction_that_takes_too_long_is_aborted(start_broker: StartBroker, library: Open) -> None:
    broker = start_broker(SETTINGS)
    topic = create_topic(broker.bootstrap, "late")
    producer = library(broker.bootstrap, new_id(), timeout_ms=1_000)
    producer.begin()
    producer.send(topic, b"late")
    producer.flush()
    wait_for("readers to pass", lambda: is_decided(broker.bootstrap, topic))
    everybody_reads(broker.bootstrap, topic, committed=[], uncommitted=[b"late"])
    producer.close()


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_goes_on_over_a_restart_of_the_broker(
    start_broker: StartBroker, library: Open, how: str, commit: bool
) -> None:
    broker = start_broker(SETTINGS)
    topic = create_topic(broker.bootstrap, "restarted")
    group = "over-the-restart"
    commit_plainly(broker.bootstrap, group, topic, 3)
    producer = library(broker.bootstrap, new_id(), timeout_ms=LONG_MS)
    producer.begin()
    producer.send(topic, b"before")
    producer.flush()
    producer.send_offsets({(topic, 0): 7}, group)
    if how == "killed":
        broker.kill9()
    else:
        broker.stop()
    broker.start()
    everybody_reads(broker.bootstrap, topic, committed=[], uncommitted=[b"before"], is_open=True)
    producer.send(topic, b"after")
    producer.flush()
    if commit:
        producer.commit()
    else:
        producer.abort()
    written = [b"before", b"after"]
    everybody_reads(broker.bootstrap, topic, committed=written if commit else [], uncommitted=written)
    offset_becomes(broker.bootstrap, group, topic, 7 if commit else 3)
    producer.close()


@pytest.mark.slow  # runs in `make test-slow`
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_new_producer_aborts_the_open_transaction_of_a_lost_one_after_a_restart(
    start_broker: StartBroker, library: Open, how: str
) -> None:
    broker = start_broker(SETTINGS)
    topic = create_topic(broker.bootstrap, "left-open")
    transactional_id = new_id()
    lost = library(broker.bootstrap, transactional_id, timeout_ms=LONG_MS)
    lost.begin()
    lost.send(topic, b"lost")
    lost.flush()
    if how == "killed":
        broker.kill9()
    else:
        broker.stop()
    broker.start()
    successor = library(broker.bootstrap, transactional_id)
    assert is_decided(broker.bootstrap, topic)
    successor.begin()
    successor.send(topic, b"found")
    successor.flush()
    successor.commit()
    everybody_reads(broker.bootstrap, topic, committed=[b"found"], uncommitted=[b"lost", b"found"])
    successor.close()


def test_a_group_is_copied_exactly_once(bootstrap: str) -> None:
    """The application consumes, transforms and produces records, with its consumer's group metadata. Every third round
    is aborted."""
    source, target = create_topic(bootstrap, "source"), create_topic(bootstrap, "target")
    count, group = 60, f"copy-{uuid.uuid4().hex[:8]}"
    filler = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        filler.produce(source, b"%d" % number)
    assert filler.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([source])
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": new_id()})
    producer.init_transactions(PATIENCE_S)
    rounds = 0

    def copy() -> bool:
        nonlocal rounds
        messages = [message for message in consumer.consume(7, 0.5) if message.error() is None]
        if messages:
            rounds += 1
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, b"copy of " + (message.value() or b""))
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
            )
            if rounds % 3 == 0:
                producer.abort_transaction(PATIENCE_S)
                for message in messages[:1]:  # Seeks back to the first message of the aborted round.
                    place = confluent_kafka.TopicPartition(source, message.partition() or 0, message.offset() or 0)
                    consumer.seek(place)
            else:
                producer.commit_transaction(PATIENCE_S)
        return committed_offset(bootstrap, group, source) == count

    wait_for("all to be copied", copy, patience_s=60)
    consumer.close()
    assert rounds > 3
    for values in READERS.values():
        assert values(bootstrap, target, committed=True) == [b"copy of %d" % number for number in range(count)]
