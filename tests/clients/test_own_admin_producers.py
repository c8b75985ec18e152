"""Tests that `Admin` describes and fences the producers of other applications, and aborts hanging transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.client import Admin as AsyncAdmin
from odradek.client import ClientError, ProducerFenced, RetriableError, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.support.broker_process import Broker, new_broker
from tests.support.hanging import leave_hanging

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 4,
    "transaction.partition.verification.enable": "false",  # allows the test to create a hanging transaction
}
E = ErrorCode


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    return create_topic(bootstrap, request.node.name)


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap, retry_backoff_ms=20) as admin:
        yield admin


def end_of(bootstrap: str, topic: str) -> int:
    """Returns the last stable offset of partition 0."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        return consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]


def test_the_producers_of_a_partition_are_described_with_their_open_transactions(
    admin: Admin, bootstrap: str, topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    assert admin.describe_producers([partition]) == {partition: []}
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        first = producer.send(topic, b"one").result()
        producer.send(topic, b"two").result()
        (found,) = admin.describe_producers([partition])[partition]
        owner = admin.describe_transactions([topic])[topic]
        assert (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.producer_epoch)
        assert (found.last_sequence, found.transaction_start_offset) == (1, first.offset)
        assert found.last_timestamp_ms >= first.timestamp_ms
        assert found.coordinator_epoch is None
        producer.commit_transaction()
        (found,) = admin.describe_producers([partition])[partition]
        assert found.transaction_start_offset is None
        assert found.coordinator_epoch is not None
    broker_id = admin.describe_cluster().brokers[0].broker_id
    assert len(admin.describe_producers([partition], broker_id=broker_id)[partition]) == 1


def test_a_partition_that_does_not_exist_is_refused_and_not_created(admin: Admin, topic: str) -> None:
    for partition in (TopicPartition("misspelt", 0), TopicPartition(topic, 99)):
        with pytest.raises(ClientError) as refused:
            admin.describe_producers([TopicPartition(topic, 0), partition])
        assert refused.value.code is E.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ClientError) as refused:
            admin.abort_transaction(partition, producer_id=1, producer_epoch=0)
        assert refused.value.code is E.UNKNOWN_TOPIC_OR_PARTITION
    assert "misspelt" not in admin.list_topics()


def test_asking_for_the_offsets_of_a_topic_does_not_create_it(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap, retry_backoff_ms=20, default_api_timeout_ms=300) as admin:
        with pytest.raises(RetriableError):
            admin.list_offsets({TopicPartition("misspelt-too", 0): -1})
        assert "misspelt-too" not in admin.list_topics()


def test_fenced_producers_cannot_commit_and_their_open_transactions_are_aborted(
    admin: Admin, bootstrap: str, topic: str
) -> None:
    ids = [f"{topic}-{number}" for number in range(3)]
    producers = [Producer(bootstrap_servers=bootstrap, transactional_id=each, retry_backoff_ms=20) for each in ids]
    for producer in producers:
        producer.start()
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never seen").result()
    before = admin.describe_transactions(ids)
    assert end_of(bootstrap, topic) == 0
    fenced = admin.fence_producers([*ids, "fenced before it was ever used"])
    assert list(fenced) == [*ids, "fenced before it was ever used"]
    for transactional_id, producer in zip(ids, producers, strict=True):
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
        producer.close()
        now = admin.describe_transactions([transactional_id])[transactional_id]
        assert (now.state, now.partitions) == ("Empty", ())
        assert (now.producer_id, now.producer_epoch) == fenced[transactional_id]
        assert fenced[transactional_id].producer_epoch > before[transactional_id].producer_epoch
    assert end_of(bootstrap, topic) == 6  # The log contains three records and three markers.


def test_a_hanging_transaction_is_aborted_by_its_numbers(admin: Admin, bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    # This raises the producer epoch, because the hanging transaction must not have the first epoch.
    admin.fence_producers([topic])
    leave_hanging(bootstrap, topic, topic)
    assert end_of(bootstrap, topic) == 0
    (found,) = admin.describe_producers([partition])[partition]
    with pytest.raises(ClientError) as refused:
        admin.abort_transaction(partition, producer_id=found.producer_id, producer_epoch=found.producer_epoch - 1)
    assert refused.value.code is E.INVALID_PRODUCER_EPOCH
    assert end_of(bootstrap, topic) == 0
    admin.abort_transaction(
        partition,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        coordinator_epoch=found.coordinator_epoch,
    )
    assert end_of(bootstrap, topic) == 2
    (found,) = admin.describe_producers([partition])[partition]
    assert found.transaction_start_offset is None


async def test_an_administrator_on_asyncio_aborts_a_hanging_transaction(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    leave_hanging(bootstrap, topic, topic)
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        (found,) = (await admin.describe_producers([partition]))[partition]
        await admin.abort_transaction(
            partition, producer_id=found.producer_id, producer_epoch=found.producer_epoch, coordinator_epoch=None
        )
        assert (await admin.fence_producers([topic]))[topic].producer_id == found.producer_id
    assert end_of(bootstrap, topic) == 2
