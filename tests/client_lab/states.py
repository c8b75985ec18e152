"""Cluster states that provoke bugs. A function prepares a state or changes the state while an application is
running."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.testing.sync import Cluster

PATIENCE_S = 30
NAME = "state"  # client id used to prepare a state
# a short heartbeat interval for KIP-848 groups
OFTEN = {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "300"}


def orders(kafka: Cluster, partitions: int = 1) -> None:
    topic(kafka, "orders", partitions)


def topic(kafka: Cluster, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "client.id": NAME})
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(PATIENCE_S)


def send(kafka: Cluster, *values: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": NAME, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def transaction(kafka: Cluster, values: list[str], *, committed: bool, codec: str = "none") -> None:
    at = {"bootstrap.servers": kafka.bootstrap, "client.id": NAME, "compression.type": codec}
    producer = Producer({**at, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value)
    producer.flush(PATIENCE_S)
    (producer.commit_transaction if committed else producer.abort_transaction)()


def commit(kafka: Cluster, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "client.id": NAME, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def in_the_log(kafka: Cluster) -> str:
    """Returns the values that a read_committed consumer reads from all partitions."""
    at = {"bootstrap.servers": kafka.bootstrap, "client.id": NAME, "group.id": NAME, "enable.partition.eof": True}
    consumer = Consumer(at)
    ends = [TopicPartition("orders", index, 0) for index in consumer.list_topics("orders").topics["orders"].partitions]
    consumer.assign(ends)
    values: list[str] = []
    unread = len(ends)
    while unread:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            values.append((message.value() or b"").decode())
        else:
            unread -= 1
    consumer.close()
    return f"read [{' '.join(sorted(values))}]"


def unstable_offsets(kafka: Cluster) -> None:
    """Puts the group's offset into an open transaction whose producer no longer exists, so that only the timeout can
    end it."""
    orders(kafka)
    send(kafka, "a", "b")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": NAME, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    offsets = [TopicPartition("orders", 0, 0)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
    consumer.close()
    kafka.fault({"name": "asked", "match": {"api": "OffsetFetch"}, "at": "applied", "do": {"observe": True}})


def offsets_become_stable(kafka: Cluster) -> None:
    kafka.wait(fault="asked", hits=3, timeout_s=PATIENCE_S)
    kafka.clock.advance(120_000)


def compressed_aborted_batch(kafka: Cluster) -> None:
    orders(kafka)
    transaction(kafka, ["aborted"] * 100, committed=False, codec="gzip")
    send(kafka, "a", "b")


def lost_commit(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "EndTxn"}, "at": "applied", "do": {"drop": True}, "times": 1})


def second_held(api: str) -> Callable[[Cluster], None]:
    """Returns a function that prepares a cluster where this API's second request is held and node 2 coordinates both
    the transaction and the group."""

    def hold(kafka: Cluster) -> None:
        orders(kafka)
        transaction(kafka, ["a"], committed=True)
        commit(kafka, 0)
        kafka.move_coordinator("transaction", "t", 2)
        kafka.move_coordinator("group", "g", 2)
        kafka.fault({"match": {"api": api}, "after": 1, "times": 1, "do": {"hold": "second"}})

    return hold


def coordinator_ends(kafka: Cluster) -> None:
    """Stops the transaction's coordinator node while the transaction is open."""
    kafka.wait(hold="second", timeout_s=PATIENCE_S)
    kafka.stop_node(2)
    kafka.release("second")


def second_batch_unknown(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "after": 1, "times": 1, "do": {"error": "UNKNOWN_PRODUCER_ID"}})


def storage_error(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "KAFKA_STORAGE_ERROR"}, "times": 1})


def committed_transaction(kafka: Cluster) -> None:
    orders(kafka)
    transaction(kafka, ["a"], committed=True)
    send(kafka, "b")


def aborted_list_reversed(kafka: Cluster) -> None:
    kafka.preset("aborted-tail", topic="orders", records=0, transactions=4)
    send(kafka, "a", "b")
    path = "Responses[*].Partitions[*].AbortedTransactions"
    kafka.fault({"match": {"api": "Fetch"}, "at": "applied", "do": {"edit": {path: {"reverse": True}}}})


def unknown_end(kafka: Cluster) -> None:
    """Ends the transaction, but returns UNKNOWN_SERVER_ERROR to its producer."""
    orders(kafka)
    send(kafka, "a")
    kafka.fault({"match": {"api": "EndTxn"}, "at": "applied", "do": {"error": "UNKNOWN_SERVER_ERROR"}, "times": 1})


def dead_producer(kafka: Cluster) -> None:
    kafka.preset("dead-producer", topic="orders")
    kafka.fault({"name": "init", "match": {"api": "InitProducerId"}, "at": "applied", "do": {"observe": True}})


def dead_producer_is_ended(kafka: Cluster) -> None:
    kafka.wait(fault="init", hits=1, timeout_s=PATIENCE_S)
    kafka.release("markers")


def aborted_records_first(kafka: Cluster) -> None:
    """Writes a log that starts with aborted records. A consumer that reads one batch at a time gets only these records
    and their markers at first."""
    kafka.preset("aborted-tail", topic="orders", records=0, transactions=1)
    send(kafka, "a")


def throttled_by_a_millisecond(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "at": "applied", "do": {"throttle_ms": 1}})


def only_node_stops(kafka: Cluster) -> None:
    kafka.fault({"name": "read", "match": {"api": "Fetch"}, "do": {"observe": True}})
    kafka.wait(fault="read", hits=2, timeout_s=PATIENCE_S)
    kafka.crash()


def marker_without_records(kafka: Cluster) -> None:
    """Writes a log that starts with the marker of an aborted transaction without records in this partition, followed by
    an aborted transaction with records."""
    kafka.preset("empty-aborted-transaction", topic="orders")
    kafka.preset("aborted-tail", topic="orders", transactional_id="u", records=0, transactions=1)


def metadata_is_requested(kafka: Cluster) -> None:
    kafka.fault({"name": "asked", "match": {"api": "Metadata"}, "do": {"observe": True}})


def node_begins_without_brokers(kafka: Cluster) -> None:
    """Kills and restarts the node. Its first Metadata response after the restart lists no brokers."""
    kafka.wait(fault="asked", hits=5, timeout_s=PATIENCE_S)
    kafka.crash()
    kafka.fault({"match": {"api": "Metadata"}, "at": "applied", "do": {"edit": {"Brokers": []}}, "times": 1})
    kafka.restart()


def unknown_producer(kafka: Cluster) -> None:
    orders(kafka)
    kafka.fault({"match": {"api": "Produce"}, "do": {"error": "UNKNOWN_PRODUCER_ID"}, "after": 3, "times": 2})
