"""Tests that Odradek's admin client manages topics and ends transactions whose owner has disappeared."""

from collections.abc import Iterator

import pytest

from odradek.client import ClientError, NewTopic, ProducerFenced, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from odradek.protocol.errors import ErrorCode
from tests.clients.conftest import StartBroker
from tests.clients.speakers import wait_for
from tests.support.broker_process import IS_KAFKA


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap, retry_backoff_ms=20) as admin:
        yield admin


def wait_for_topic(admin: Admin, name: str) -> None:
    """Waits until the topic is listed. Kafka answers CreateTopics before every Metadata response contains the topic."""
    wait_for(f"{name} to be known", lambda: name in admin.list_topics())


def test_a_topic_is_created_described_and_deleted(admin: Admin) -> None:
    admin.create_topics([NewTopic("administered", 3, 1, {"cleanup.policy": "compact"}), NewTopic("by-default")])
    wait_for_topic(admin, "by-default")
    wait_for_topic(admin, "administered")
    found = admin.describe_topics(["administered"])["administered"]
    assert [(each.partition, each.replicas, each.in_sync_replicas) for each in found.partitions] == [
        (index, found.partitions[0].replicas, found.partitions[0].replicas) for index in range(3)
    ]
    assert not found.is_internal
    admin.delete_topics(["administered", "by-default"])
    wait_for("the topics to go", lambda: not {"administered", "by-default"} & set(admin.list_topics()))


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("no such name!", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("too-many-replicas", 1, 7), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd-setting", 1, configs={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_an_invalid_topic_is_refused_with_kafka_s_error_code(admin: Admin, new: NewTopic, code: ErrorCode) -> None:
    with pytest.raises(ClientError) as refused:
        admin.create_topics([new])
    assert refused.value.code is code


def test_a_topic_is_created_once(admin: Admin) -> None:
    admin.create_topics([NewTopic("once", 1)])
    with pytest.raises(ClientError) as refused:
        admin.create_topics([NewTopic("once", 1)])
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_validating_creates_nothing(admin: Admin) -> None:
    admin.create_topics([NewTopic("only-validated", 1)], validate_only=True)
    assert "only-validated" not in admin.list_topics()


def test_internal_topics_are_listed_on_request(admin: Admin, bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id="makes-the-offsets-topic") as consumer:
        consumer.committed([TopicPartition("anything", 0)])
    assert "__consumer_offsets" in admin.list_topics(include_internal=True)
    assert "__consumer_offsets" not in admin.list_topics()


def test_open_transactions_are_listed_and_described(admin: Admin, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="listed", transaction_timeout_ms=50_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        assert "listed" in [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
        assert "listed" not in [each.transactional_id for each in admin.list_transactions(states=["Empty"])]
        assert "listed" not in [each.transactional_id for each in admin.list_transactions(longer_than_ms=600_000)]
        found = admin.describe_transactions(["listed"])["listed"]
        assert (found.state, found.timeout_ms, found.partitions) == ("Ongoing", 50_000, (TopicPartition(topic, 0),))
        assert found.started_ms is not None
        listed = admin.list_transactions(producer_ids=[found.producer_id])
        assert [(each.transactional_id, each.state) for each in listed] == [("listed", "Ongoing")]
        producer.commit_transaction()


def test_a_transactional_id_that_is_not_known_is_refused(admin: Admin) -> None:
    with pytest.raises(ClientError) as refused:
        admin.describe_transactions(["never heard of"])
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_unknown_transaction_state_is_refused(admin: Admin) -> None:
    with pytest.raises(ClientError, match="Undecided"):
        admin.list_transactions(states=["Undecided"])


def test_a_transaction_is_ended_by_force_and_its_owner_fenced(admin: Admin, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="forced", retry_backoff_ms=20) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never to be seen")
        producer.flush()
        admin.force_terminate_transaction("forced")
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"after")
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.getone().value == b"after"


@pytest.mark.skipif(IS_KAFKA, reason="no released Kafka keeps prepared transactions")
def test_a_prepared_transaction_in_doubt_is_ended_by_force(start_broker: StartBroker) -> None:
    bootstrap = start_broker({"transaction.two.phase.commit.enable": "true"}).bootstrap
    with Producer(bootstrap_servers=bootstrap, transactional_id="doubt", two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"in doubt")
        producer.prepare_transaction()
    with Admin(bootstrap_servers=bootstrap, retry_backoff_ms=20) as admin:
        found = admin.describe_transactions(["doubt"])["doubt"]
        assert (found.state, found.timeout_ms) == ("Ongoing", None)
        admin.force_terminate_transaction("doubt")
        found = admin.describe_transactions(["doubt"])["doubt"]
        assert (found.state, found.partitions) == ("Empty", ())
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        assert consumer.end_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 2}
