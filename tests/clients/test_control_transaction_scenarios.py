"""Scenarios that nobody can bring about on Apache Kafka from outside, reached by holds.

Source: docs/spec/transactions.md#s8-10.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from odradek.testing.sync import Odradek
from tests.clients.admin import create_topic

STATE = "__transaction_state"


@pytest.fixture(scope="module")
def odradek() -> Iterator[Odradek]:
    with Odradek.start() as started:
        yield started


def test_scenario_066_what_an_old_coordinator_hears_late_completes_nothing(odradek: Odradek) -> None:
    with odradek.cluster(nodes=2, settings={"transaction.state.log.num.partitions": 1}) as kafka:
        create_topic(kafka.bootstrap, "orders", 2, exact=True)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        kafka.move_coordinator("transaction", "t", 1)
        kafka.fault({"at": "completed", "match": {"transactional_id": "t"}, "do": {"hold": "late"}, "times": 1})
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", "a", partition=partition)
        with pytest.raises(Exception, match="imed out"):
            producer.commit_transaction(1)
        kafka.wait(hold="late")
        kafka.wait(transaction="t", state="PrepareCommit")
        kafka.move_coordinator("transaction", "t", 2)  # which writes the markers again, and completes
        kafka.wait(transaction="t", state="CompleteCommit")
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce("orders", "b", partition=0)
        producer.flush(30)
        kafka.wait(transaction="t", state="Ongoing")
        before = kafka.wait(topic=STATE, partition=0, log_end_offset=1)["log_end_offset"]
        kafka.release("late")
        kafka.wait(transaction="t", state="Ongoing")
        kafka.clock.advance(1_000)  # completions that wait for the next record would be written by then
        assert kafka.wait(topic=STATE, partition=0, log_end_offset=1)["log_end_offset"] == before
        kafka.wait(transaction="t", state="Ongoing")
        producer.commit_transaction(30)
        kafka.wait(transaction="t", state="CompleteCommit")
