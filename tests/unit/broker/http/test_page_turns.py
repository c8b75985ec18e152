"""Tests that the broker keeps serving clients while it collects the contents of a large view of the page."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import count
from typing import Any, cast

import pytest

from odradek.broker.http.measures import Traffic
from odradek.broker.http.page.overview import partition_totals
from odradek.broker.http.page.served import ViewedBroker
from odradek.broker.http.page.topics import partition, topics
from odradek.broker.http.page.transactions import transaction_counts, transactions
from odradek.broker.runtime.loop_watch import LoopWatch
from odradek.broker.runtime.slices import SLICE_S
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.topic_partition import TRANSACTION_STATE
from tests.support.transaction_broker import TransactionBroker
from tests.support.turns import outcome_and_turns

PARTITIONS = 5
IDS = 7
SHARDS = 3


@pytest.fixture
def served() -> ViewedBroker:
    """Returns a broker on which each step (a partition, an id or a shard) takes longer than a slice."""
    scene = TransactionBroker()
    scene.topic(TRANSACTION_STATE, SHARDS)
    scene.topic("orders", PARTITIONS)
    for number in range(IDS):
        request = InitProducerIdRequest(transactional_id=f"task-{number}", transaction_timeout_ms=60_000)
        assert not scene.answer(request, 4, InitProducerIdResponse).error_code
    scene.broker.watch = LoopWatch(scene.timers, count(0.0, SLICE_S * 1.5).__next__)
    scene.broker.has_started = lambda name: name != "share_coordinator"
    return ViewedBroker(scene.broker, cast("Traffic", None), ())


def view_and_turns(view: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """Returns the view, and the number of turns that the loop gave to other work while collecting the view."""
    shown, turns = outcome_and_turns(view)
    return (shown() if callable(shown) else shown), turns - 1


def test_the_totals_of_all_partitions_take_turns(served: ViewedBroker) -> None:
    totals, others = view_and_turns(partition_totals(served))
    assert totals.partitions == PARTITIONS + SHARDS
    assert totals.records_in == IDS  # all of them are records of the transaction log
    assert others == PARTITIONS + SHARDS


def test_counting_transactional_ids_takes_a_turn_for_each_shard(served: ViewedBroker) -> None:
    counts, others = view_and_turns(transaction_counts(served))
    assert counts == {"ids": IDS, "open": 0, "in_doubt": 0, "ending": 0, "oldest": None}
    assert others == SHARDS


def test_listing_transactional_ids_takes_turns(served: ViewedBroker) -> None:
    view, others = view_and_turns(transactions(served, {}))
    assert (view["total"], view["states"], view["held"]) == (IDS, {"Empty": IDS}, [])
    assert others == SHARDS + SHARDS + PARTITIONS


def test_the_list_of_topics_takes_a_turn_for_each_partition(served: ViewedBroker) -> None:
    view, others = view_and_turns(topics(served, {}))
    assert [(each["name"], each["partitions"]) for each in view["topics"]] == [
        ("orders", PARTITIONS),
        (TRANSACTION_STATE, SHARDS),
    ]
    assert others >= PARTITIONS + SHARDS


def test_the_view_of_a_partition_reads_its_writers_in_further_turns(served: ViewedBroker) -> None:
    view, others = view_and_turns(partition(served, {"topic": "orders", "partition": "0"}))
    assert (view["topic"], view["next"]) == ("orders", 0)
    assert others == SHARDS + IDS
