"""Tests that each preset creates its state, and that librdkafka reacts to the state as a correct client should
(docs/testing.md)."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.testing.sync import Cluster, Odradek, Refused, Unmet
from tests.clients.admin import list_topics


def test_a_cluster_begins_in_a_preset(odradek: Odradek) -> None:
    with odradek.cluster(preset=("aborted-tail", {"topic": "tail", "records": 2})) as cluster:
        assert cluster.wait(topic="tail", partition=0, log_end_offset=3)["last_stable_offset"] > 2
    with odradek.cluster(preset="recreated-topic") as cluster:
        cluster.wait(topic="orders", partition=0, log_end_offset=0)


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("aborted-tails", "did you mean aborted-tail"),
        (("aborted-tail", {"topik": "t"}), "topic"),
        ("prepared-transaction", "transaction.two.phase.commit.enable"),
    ],
)
def test_a_preset_that_is_refused_leaves_no_cluster(
    odradek: Odradek, preset: str | tuple[str, dict[str, str]], words: str
) -> None:
    clusters = odradek.call("GET", "/clusters")[1]
    with pytest.raises(Refused, match=words):
        odradek.cluster(preset=preset)
    assert odradek.call("GET", "/clusters")[1] == clusters


def make_topic(kafka: Cluster, name: str = "orders", partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions)]).values():
        made.result(10)


def consumer_of(kafka: Cluster, **config: str | int | bool) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def poll(consumer: Consumer, count: int, *, timeout_s: float = 20) -> list[Message]:
    """Returns the messages that arrive within `timeout_s`, but at most `count`."""
    found: list[Message] = []
    until_s = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < until_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def read(kafka: Cluster, count: int, **config: str | int | bool) -> list[tuple[int | None, bytes | None]]:
    """Returns the offsets and values of the first `count` records and, if it arrives soon, of one more record."""
    consumer = consumer_of(kafka, **config)
    found = [(each.offset(), each.value()) for each in poll(consumer, count)]
    found += [(each.offset(), each.value()) for each in poll(consumer, 1, timeout_s=0.5)]
    consumer.close()
    return found


def transactional(kafka: Cluster) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})


def commit_one(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("orders", "a")
    producer.commit_transaction(20)


def produce(kafka: Cluster, producer: Producer | None = None, topic: str = "orders") -> KafkaError | None:
    """Produces a record. Returns the error that the client reports, or None."""
    producer = producer or Producer({"bootstrap.servers": kafka.bootstrap})
    errors: list[KafkaError | None] = []
    producer.produce(topic, "a", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    return errors[0]


def end_offset(kafka: Cluster) -> int:
    offset: int = kafka.wait(topic="orders", log_end_offset=0)["log_end_offset"]
    return offset


def test_a_preset_and_its_parameters_are_checked(kafka: Cluster) -> None:
    for name, parameters, said in (
        ("open-transactions", {}, "did you mean open-transaction"),
        ("open-transaction", {"topics": "orders"}, "did you mean topic"),
        ("open-transaction", {"topic": 3}, "topic must be a non-empty string"),
        ("open-transaction", {"records": "many"}, "records must be a whole number"),
        ("half-written-markers", {"decision": "undo"}, "decision: undo is unknown"),
        ("prepared-transaction", {}, "transaction.two.phase.commit.enable=true"),
    ):
        with pytest.raises(Refused, match=said):
            kafka.preset(name, **parameters)
    assert list_topics(AdminClient({"bootstrap.servers": kafka.bootstrap})).topics == {}


def test_a_preset_that_must_wait_for_others_is_refused(odradek: Odradek) -> None:
    kafka = odradek.cluster()
    kafka.preset("classic-rebalance", state="PreparingRebalance")
    with pytest.raises(Refused, match="JoinGroup was not answered"):
        kafka.preset("static-twin", instance="j")
    kafka.delete()  # Pending requests must not prevent the deletion.


@pytest.mark.parametrize("name", ["half-written-markers", "aborted-tail", "recreated-topic", "coordinator-loading"])
def test_presets_know_several_nodes(odradek: Odradek, name: str) -> None:
    with odradek.cluster(nodes=3) as kafka:
        kafka.preset(name)
        if name == "half-written-markers":
            kafka.release("marker")
        elif name == "coordinator-loading":
            kafka.release("loading")
        produce(kafka)
        assert read(kafka, 1)


def test_epochs_end_and_the_producer_goes_on_with_another_id(kafka: Cluster) -> None:
    before = kafka.preset("epoch-nearly-exhausted", epochs_left=3)
    make_topic(kafka)
    for _ in range(5):
        producer = transactional(kafka)
        producer.init_transactions(20)
        commit_one(producer)
    assert kafka.wait(transaction="t", state="CompleteCommit")["producer_id"] != before["producer_id"]
    assert len(read(kafka, 5)) == 5


def test_readers_of_committed_data_stop_at_an_open_transaction(kafka: Cluster) -> None:
    facts = kafka.preset("open-transaction", records=2, open_records=3)
    assert (facts["last_stable_offset"], facts["log_end_offset"]) == (2, 5)
    assert read(kafka, 2) == [(0, b"committed"), (1, b"committed")]
    assert len(read(kafka, 5, group_id="h", isolation_level="read_uncommitted")) == 5


def test_the_next_owner_waits_for_the_transaction_of_a_dead_producer(kafka: Cluster) -> None:
    kafka.preset("dead-producer")
    producer = transactional(kafka)
    with pytest.raises(KafkaException):
        producer.init_transactions(1)
    kafka.wait(hold="markers")
    codes = [each["answer"]["errorCode"] for each in kafka.requests(api="InitProducerId") if each["answer"]]
    assert set(codes) == {KafkaError.CONCURRENT_TRANSACTIONS}
    kafka.release("markers")
    producer.init_transactions(20)
    commit_one(producer)
    assert [value for _, value in read(kafka, 1)] == [b"a"]


@pytest.mark.parametrize(("decision", "found"), [("commit", [(0, b"decided")]), ("abort", [])])
def test_a_marker_is_written_and_the_other_is_held(
    kafka: Cluster, decision: str, found: list[tuple[int, bytes]]
) -> None:
    facts = kafka.preset("half-written-markers", decision=decision)
    kafka.wait(hold=facts["hold"])
    kafka.wait(topic="orders", partition=0, last_stable_offset=2)
    with pytest.raises(Unmet):
        kafka.wait(topic="orders", partition=1, last_stable_offset=1, timeout_s=0)
    assert read(kafka, 1) == found if found else read(kafka, 0) == []
    kafka.release(facts["hold"])
    kafka.wait(topic="orders", partition=1, last_stable_offset=2)
    assert len(read(kafka, 2 * len(found), group_id="h")) == 2 * len(found)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aborted-tail", [(0, b"committed")]),
        ("lone-marker", [(2, b"behind the marker")]),
        ("empty-aborted-transaction", [(1, b"committed")]),
        ("abort-across-segments", [(2, b"committed")]),
    ],
)
def test_a_reader_passes_aborted_records_and_markers(kafka: Cluster, name: str, found: list[tuple[int, bytes]]) -> None:
    facts = kafka.preset(name)
    assert facts["last_stable_offset"] == facts["log_end_offset"]
    assert read(kafka, 1) == found
    if name == "abort-across-segments":
        assert facts["segments"] == [0, 1]
    if name == "lone-marker":
        assert facts["log_start_offset"] == 1


def test_a_producer_whose_id_is_forgotten_goes_on(kafka: Cluster) -> None:
    make_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    assert produce(kafka, producer) is None
    kafka.preset("expired-producer-ids")
    assert produce(kafka, producer) is None
    assert end_offset(kafka) == 2


def test_an_expired_transactional_id_must_be_initialised_again(kafka: Cluster) -> None:
    make_topic(kafka)
    producer = transactional(kafka)
    producer.init_transactions(20)
    commit_one(producer)
    kafka.preset("expired-transactional-ids")
    with pytest.raises(Unmet):
        kafka.wait(transaction="t", state="CompleteCommit", timeout_s=0)
    with pytest.raises(KafkaException):
        commit_one(producer)
    again = transactional(kafka)
    again.init_transactions(20)
    commit_one(again)


def test_a_prepared_transaction_waits_for_its_coordinator_outside(odradek: Odradek) -> None:
    with odradek.cluster(settings={"transaction.two.phase.commit.enable": True}) as kafka:
        facts = kafka.preset("prepared-transaction", days=7)
        assert kafka.wait(transaction="t", state="Ongoing")["producer_id"] == facts["producer_id"]
        assert facts["last_stable_offset"] == 0
        assert read(kafka, 0) == []


def test_a_client_repeats_its_request_while_the_coordinator_loads(kafka: Cluster) -> None:
    make_topic(kafka)
    assert produce(kafka) is None
    facts = kafka.preset("coordinator-loading", type="group", key="g")
    kafka.wait(hold=facts["hold"])
    consumer = consumer_of(kafka)
    assert poll(consumer, 1, timeout_s=1) == []
    requests = [each for api in ("FindCoordinator", "JoinGroup") for each in kafka.requests(api=api)]
    assert requests
    kafka.release(facts["hold"])
    assert len(poll(consumer, 1)) == 1
    consumer.close()


def test_a_reader_whose_offset_is_deleted_resets(kafka: Cluster) -> None:
    facts = kafka.preset("log-start-behind-commit")
    assert facts["committed_offset"] < facts["log_start_offset"]
    assert read(kafka, 1) == [(facts["log_start_offset"], b"record")]


def fatal_of(consumer: Consumer) -> str | None:
    """Returns the text of the first error from polling, or None if there is none within 20 s."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        try:
            message = consumer.poll(0.1)
        except KafkaException as failure:
            return str(failure)
        if message is not None and message.error() is not None:
            return str(message.error())
    return None


def test_a_static_member_is_fenced_by_its_twin(kafka: Cluster) -> None:
    make_topic(kafka)
    assert produce(kafka) is None
    consumer = consumer_of(kafka, group_instance_id="i", heartbeat_interval_ms=100)
    assert len(poll(consumer, 1)) == 1
    kafka.preset("static-twin")
    assert "tatic consumer fenced" in (fatal_of(consumer) or "")
    consumer.close()


def test_a_static_member_is_refused_while_its_twin_is_there(kafka: Cluster) -> None:
    kafka.preset("static-twin", protocol="consumer")
    consumer = consumer_of(kafka, group_instance_id="i", group_protocol="consumer")
    fatal_of(consumer)
    codes = [each["answer"]["errorCode"] for each in kafka.requests(api="ConsumerGroupHeartbeat")]
    assert 111 in codes  # UNRELEASED_INSTANCE_ID
    consumer.close()


@pytest.mark.parametrize("state", ["CompletingRebalance", "PreparingRebalance"])
def test_a_member_joins_in_the_middle_of_a_rebalance(kafka: Cluster, state: str) -> None:
    kafka.preset("classic-rebalance", state=state, rebalance_timeout_ms=60_000)
    silent = kafka.wait(group="g", state=state)["members"]
    assert produce(kafka) is None
    consumer = consumer_of(kafka, max_poll_interval_ms=60_000)
    # Without this wait, the clock could pass the timeout before the member has joined.
    kafka.wait(group="g", members=silent + 1)
    assert poll(consumer, 1, timeout_s=1) == []
    kafka.clock.advance(61_000)
    if state == "PreparingRebalance":  # The silent member has joined and leads the next generation.
        kafka.wait(group="g", state="CompletingRebalance")
        kafka.clock.advance(61_000)
    assert len(poll(consumer, 1)) == 1
    consumer.close()


def test_a_member_gets_nothing_before_the_other_has_revoked(kafka: Cluster) -> None:
    kafka.preset("revocation-outstanding", partitions=2)
    assert produce(kafka) is None
    consumer = consumer_of(kafka, group_protocol="consumer")
    kafka.wait(group="g", members=2)
    assert poll(consumer, 1, timeout_s=1) == []
    kafka.clock.advance(46_000)
    assert len(poll(consumer, 1)) == 1
    consumer.close()


def test_a_member_whose_epoch_is_stale_joins_again(odradek: Odradek) -> None:
    settings = {"group.consumer.heartbeat.interval.ms": 2_000, "group.consumer.min.heartbeat.interval.ms": 2_000}
    with odradek.cluster(settings=settings) as kafka:
        make_topic(kafka)
        assert produce(kafka) is None
        consumer = consumer_of(kafka, group_protocol="consumer", enable_auto_commit=False)
        assert len(poll(consumer, 1)) == 1
        facts = kafka.preset("stale-member-epoch")
        kafka.wait(fault=facts["rule"])
        before = kafka.requests()[-1]["number"]
        # KIP-1251 allows this commit, because the member has owned the partition since the request's epoch.
        consumer.commit(asynchronous=False)
        until_s = time.monotonic() + 20
        heartbeats: list[int] = []
        # A FENCED_MEMBER_EPOCH must eventually be followed by a successful join.
        while heartbeats[-2:] != [110, 0] and time.monotonic() < until_s:
            consumer.poll(0.1)
            requests = kafka.requests(since=before, api="ConsumerGroupHeartbeat")
            heartbeats = [each["answer"]["errorCode"] for each in requests if each["answer"]][:2]
        assert heartbeats == [110, 0]
        assert produce(kafka) is None
        assert len(poll(consumer, 1)) == 1
        consumer.close()


def test_a_topic_that_was_created_again_accepts_records(kafka: Cluster) -> None:
    make_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    assert produce(kafka, producer) is None
    facts = kafka.preset("recreated-topic", partitions=3)
    assert facts["old_id"] != facts["id"]
    produce(kafka, producer)
    assert sum(kafka.wait(topic="orders", partition=each, log_end_offset=0)["log_end_offset"] for each in range(3)) == 1


def test_a_reader_learns_of_more_partitions(kafka: Cluster) -> None:
    make_topic(kafka)
    consumer = consumer_of(kafka, topic_metadata_refresh_interval_ms=200)
    assert kafka.preset("more-partitions", more=2)["partitions"] == 3
    until_s = time.monotonic() + 20
    while len(consumer.assignment()) < 3 and time.monotonic() < until_s:
        consumer.poll(0.1)
    assert len(consumer.assignment()) == 3
    consumer.close()


def test_a_reader_gets_a_batch_larger_than_it_fetches(kafka: Cluster) -> None:
    facts = kafka.preset("large-batch", size_bytes=3_000_000)
    found = read(kafka, 3, fetch_message_max_bytes=100_000, fetch_max_bytes=2_000_000)
    assert [offset for offset, _ in found] == [0, 1, 2]
    assert facts["large_offset"] == 1


def test_a_reader_passes_a_hole(kafka: Cluster) -> None:
    facts = kafka.preset("compacted-hole", records=4)
    assert [offset for offset, _ in read(kafka, 3)] == facts["kept_offsets"] == [0, 4, 5]


def test_a_client_gets_the_throttle_time_of_the_preset(kafka: Cluster) -> None:
    make_topic(kafka)
    kafka.preset("throttled-client", client_id="rdkafka", throttle_ms=50, times=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    assert produce(kafka, producer) is None
    assert [each["answer"]["throttleTimeMs"] for each in kafka.requests(api="Produce")] == [50]


def share_consumer(kafka: Cluster) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.subscribe(["orders"])
    return consumer


def poll_shared(consumer: ShareConsumer, *, timeout_s: float) -> list[Message]:
    """Polls until records arrive and returns them. Returns an empty list if none arrive within `timeout_s`."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        found = [each for each in consumer.poll(0.2) if each.error() is None]
        if found:
            return found
    return []


def test_a_share_group_gets_nothing_while_all_locks_are_held(odradek: Odradek) -> None:
    with odradek.cluster(settings={"group.share.partition.max.record.locks": 100}) as kafka:
        assert kafka.preset("share-lock-limit", more=5)["acquired"] == 100
        consumer = share_consumer(kafka)
        assert poll_shared(consumer, timeout_s=2) == []
        kafka.clock.advance(31_000)
        assert poll_shared(consumer, timeout_s=20)[0].offset() == 0
        consumer.close()


def test_a_record_is_delivered_for_the_last_time(kafka: Cluster) -> None:
    facts = kafka.preset("last-delivery", limit=3)
    assert (facts["offset"], facts["delivery_count"]) == (0, 2)
    consumer = share_consumer(kafka)
    assert [each.offset() for each in poll_shared(consumer, timeout_s=20)] == [0]
    counts = [
        acquired["deliveryCount"]
        for each in kafka.requests(api="ShareFetch")
        for topic in (each["answer"] or {}).get("responses", [])
        for partition in topic["partitions"]
        for acquired in partition["acquiredRecords"]
    ]
    assert counts == [3]
    consumer.close()


def test_a_record_that_waits_for_its_transaction_is_not_delivered(kafka: Cluster) -> None:
    kafka.preset("tx-pending")
    consumer = share_consumer(kafka)
    assert poll_shared(consumer, timeout_s=2) == []
    kafka.clock.advance(31_000)  # The lock expires, so the broker aborts the transaction.
    kafka.wait(transaction="t", state="CompleteAbort")
    assert [each.offset() for each in poll_shared(consumer, timeout_s=20)] == [0]
    consumer.close()
