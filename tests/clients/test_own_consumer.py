"""Tests those features of Odradek's consumer that the shared tests (tests/clients/speakers) do not cover: positions,
errors for invalid calls, and recovery from faults."""

from collections import Counter
from collections.abc import Iterator

import pytest

from odradek.client import (
    ClientError,
    IllegalState,
    OffsetAndMetadata,
    OffsetOutOfRange,
    RetriableError,
    TopicPartition,
)
from odradek.client.sync import Consumer, Producer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.conftest import StartBroker
from tests.clients.own_consumers import QUICK, member, produce, values_of
from tests.clients.speakers import wait_for
from tests.support.broker_process import Broker
from tests.support.flaky_proxy import FlakyProxy


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    """Yields a consumer without a group."""
    with Consumer(bootstrap_servers=bootstrap, **QUICK) as consumer:  # type: ignore[arg-type]
        yield consumer


# --- Positions.


def test_records_come_one_by_one_and_the_position_follows(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b", b"c")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    seen = []
    for record in consumer:
        seen.append((record.value, record.offset, consumer.position(partition)))
        if len(seen) == 3:
            break
    assert seen == [(b"a", 0, 1), (b"b", 1, 2), (b"c", 2, 3)]


def test_getmany_does_not_repeat_records_that_getone_returned(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b", b"c")
    consumer.assign([TopicPartition(topic, 0)])
    assert next(consumer).value == b"a"
    assert values_of(consumer, 2) == [b"b", b"c"]


def test_getmany_returns_no_more_records_than_requested(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(25)))
    consumer.assign([TopicPartition(topic, 0)])
    sizes: list[int] = []
    while sum(sizes) < 25:
        sizes.append(sum(map(len, consumer.getmany(max_records=10).values())))
    assert max(sizes) <= 10


def test_seek_goes_to_any_record_while_others_are_on_their_way(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, *(b"%d" % number for number in range(100)))
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert next(consumer).value == b"0"
    consumer.seek(partition, 40)
    assert next(consumer).value == b"40"
    consumer.seek_to_beginning()
    assert next(consumer).value == b"0"
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 100


def test_a_paused_partition_gives_nothing_until_it_is_resumed(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a", b"b")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert next(consumer).value == b"a"
    consumer.pause(partition)
    assert consumer.paused() == {partition}
    assert consumer.getmany(timeout_ms=200) == {}
    consumer.resume(partition)
    assert next(consumer).value == b"b"


def test_latest_starts_after_the_existing_records(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"before")
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        assert consumer.position(partition) == 1
        produce(bootstrap, topic, b"after")
        assert consumer.getone().value == b"after"


def test_without_a_reset_policy_the_application_gets_an_error_and_can_seek(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a")
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none", group_id="chooses") as consumer:
        consumer.assign([partition])
        for _ in range(2):  # The error is raised again until the application seeks.
            with pytest.raises(OffsetOutOfRange) as raised:
                consumer.getone()
            assert (raised.value.topic_partition, raised.value.offset) == (partition, None)
        consumer.seek(partition, 5)
        with pytest.raises(OffsetOutOfRange) as raised:
            consumer.getone()
        assert raised.value.offset == 5
        consumer.seek(partition, 0)
        assert consumer.getone().value == b"a"


def test_a_position_that_the_log_does_not_have_is_reset(consumer: Consumer, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, b"a")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 1_000)
    assert consumer.getone().value == b"a"


def test_the_ends_of_a_log_depend_on_open_transactions(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with (
        Consumer(bootstrap_servers=bootstrap) as committed,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as everything,
        Producer(bootstrap_servers=bootstrap, transactional_id="holds up") as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        assert committed.end_offsets([partition]) == {partition: 0}
        assert everything.end_offsets([partition]) == {partition: 1}
        everything.assign([partition])
        assert everything.getone().value == b"open"
        committed.assign([partition])
        assert committed.getmany(timeout_ms=200) == {}
        producer.commit_transaction()
        assert committed.getone().value == b"open"


def test_records_of_many_partitions_are_all_given(consumer: Consumer, bootstrap: str) -> None:
    topic = create_topic(bootstrap, "many-partitions", partitions=8)
    for index in range(8):
        produce(bootstrap, topic, *(b"%d" % number for number in range(50)), partition=index)
    consumer.assign([TopicPartition(topic, index) for index in range(8)])
    assert Counter(values_of(consumer, 400)) == Counter(b"%d" % number for number in range(50) for _ in range(8))
    assert {consumer.position(each) for each in consumer.assignment()} == {50}


# ---- Application mistakes.


def test_a_call_that_the_state_does_not_allow_raises_an_error(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    consumer = Consumer(bootstrap_servers=bootstrap)
    with pytest.raises(IllegalState, match="not started"):
        consumer.getone()
    with consumer:
        with pytest.raises(IllegalState, match="neither subscribe nor assign"):
            consumer.getone()
        with pytest.raises(IllegalState, match="not assigned"):
            consumer.seek(partition, 0)
        with pytest.raises(IllegalState, match="group_id"):
            consumer.commit()
        with pytest.raises(IllegalState, match="group_id"):
            consumer.subscribe([topic])
    with (
        member(bootstrap, topic, group="mistakes") as subscribed,
        pytest.raises(IllegalState, match="subscribed with subscribe"),
    ):
        subscribed.assign([partition])


def test_an_invalid_topic_is_an_error_at_once(bootstrap: str) -> None:
    with member(bootstrap, "no such name!", group="mistakes") as subscribed, pytest.raises(ClientError) as refused:
        subscribed.getone()
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with Consumer(bootstrap_servers=bootstrap) as assigned:
        assigned.assign([TopicPartition("no such name!", 0)])
        with pytest.raises(ClientError) as refused:
            assigned.getone()
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_consumer_whose_start_failed_may_be_started_again(start_broker: StartBroker) -> None:
    broker: Broker = start_broker({})
    produce(broker.bootstrap, "again", b"a")
    broker.stop()
    consumer = Consumer(bootstrap_servers=broker.bootstrap)
    with pytest.raises(RetriableError):
        consumer.start()
    broker.start()
    with consumer:
        consumer.assign([TopicPartition("again", 0)])
        assert consumer.getone().value == b"a"


def test_a_consumer_whose_broker_is_away_closes_all_the_same(start_broker: StartBroker) -> None:
    broker: Broker = start_broker({})
    produce(broker.bootstrap, "away", b"a")
    with member(broker.bootstrap, "away", group="away", enable_auto_commit=True, request_timeout_ms=300) as consumer:
        assert consumer.getone().value == b"a"
        broker.kill9()


@pytest.mark.parametrize("settings", [{"isolation_level": "dirty"}, {"auto_offset_reset": "middle"}])
def test_invalid_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=settings[next(iter(settings))]):
        Consumer(bootstrap_servers="localhost", **settings)  # type: ignore[arg-type]


def test_a_group_with_another_protocol_refuses_the_member(bootstrap: str, topic: str) -> None:
    with (
        member(bootstrap, topic, group="ranges", partition_assignment_strategy=["range"]) as first,
        member(bootstrap, topic, group="ranges", partition_assignment_strategy=["roundrobin"]) as second,
    ):
        wait_for("the first to be there", lambda: first.getmany(timeout_ms=50) or first.assignment())
        with pytest.raises(ClientError, match="INCONSISTENT_GROUP_PROTOCOL"):
            second.getone()


# --- Faults.


@pytest.fixture
def proxy(start_broker: StartBroker) -> Iterator[FlakyProxy]:
    with FlakyProxy() as proxy:
        broker = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
        proxy.target = (broker.host, broker.port)
        yield proxy


def test_connections_cut_at_any_moment_lose_and_repeat_nothing(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "cut", partitions=2)
    for index in range(2):
        produce(proxy.bootstrap, topic, *(b"%d" % number for number in range(3_000)), partition=index)
    found: dict[int, list[bytes | None]] = {0: [], 1: []}
    with member(proxy.bootstrap, topic, group="cut", max_partition_fetch_bytes=4_000) as consumer:

        def read() -> bool:
            for partition, records in consumer.getmany(timeout_ms=50, max_records=200).items():
                found[partition.partition] += [record.value for record in records]
            return sum(map(len, found.values())) >= 6_000

        for _ in range(8):
            read()
            proxy.cut_all()
        wait_for("all records", read)
    assert proxy.cuts > 0
    assert found == {index: [b"%d" % number for number in range(3_000)] for index in range(2)}


@pytest.mark.parametrize(
    "key",
    [ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS,
     ApiKey.FIND_COORDINATOR, ApiKey.METADATA, ApiKey.OFFSET_COMMIT],
    ids=lambda key: key.name,
)  # fmt: skip
def test_an_answer_that_is_lost_is_asked_for_again(proxy: FlakyProxy, key: ApiKey) -> None:
    topic = create_topic(proxy.bootstrap, "lost-answer")
    produce(proxy.bootstrap, topic, b"a", b"b")
    proxy.forget()
    # `start` sends the first Metadata request and does not retry it.
    first_lost = 1 if key is ApiKey.METADATA else 0
    proxy.loses = lambda asked, _version, seen: asked == key.value and seen == first_lost
    partition = TopicPartition(topic, 0)
    with member(proxy.bootstrap, topic, group="loses") as consumer:
        assert values_of(consumer, 2) == [b"a", b"b"]
        consumer.commit()
        wait_for("the answer to be lost", lambda: consumer.getmany(timeout_ms=50) or proxy.lost)
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(2, "", 0)}


def test_a_commit_that_failed_takes_no_records_away(proxy: FlakyProxy) -> None:
    topic = create_topic(proxy.bootstrap, "failed-commit")
    produce(proxy.bootstrap, topic, b"a", b"b", b"c")
    with member(proxy.bootstrap, topic, group="fails", default_api_timeout_ms=0) as consumer:
        assert consumer.getone().value == b"a"
        proxy.forget()
        proxy.loses = lambda key, _version, _seen: key == ApiKey.OFFSET_COMMIT.value
        with pytest.raises(RetriableError):
            consumer.commit()
        assert [consumer.getone().value, consumer.getone().value] == [b"b", b"c"]


@pytest.mark.slow  # runs in `make test-slow`
def test_a_consumer_continues_after_the_broker_was_killed_and_restarted(start_broker: StartBroker) -> None:
    broker: Broker = start_broker({})
    produce(broker.bootstrap, "survives", b"a", b"b")
    with member(broker.bootstrap, "survives", group="survives") as consumer:
        assert consumer.getone().value == b"a"
        consumer.commit()
        broker.kill9()
        broker.start()
        produce(broker.bootstrap, "survives", b"c")
        assert values_of(consumer, 2)[-2:] == [b"b", b"c"]


def test_a_position_is_validated_when_its_leader_has_changed(start_broker: StartBroker) -> None:
    """No record is lost, so the position is still valid, and the consumer continues from there."""
    broker: Broker = start_broker({})
    produce(broker.bootstrap, "validated", *(b"%d" % number for number in range(10)))
    partition = TopicPartition("validated", 0)
    with Consumer(bootstrap_servers=broker.bootstrap, **QUICK) as consumer:  # type: ignore[arg-type]
        consumer.assign([partition])
        for number in range(3):
            assert consumer.getone().value == b"%d" % number
        broker.restart()
        assert values_of(consumer, 7) == [b"%d" % number for number in range(3, 10)]
        produce(broker.bootstrap, "validated", b"10")
        assert consumer.getone().offset == 10
