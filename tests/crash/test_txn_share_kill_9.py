"""Tests that a killed broker keeps the share group acknowledgements staged in a transaction (KIP-1289).

The tests use a real client and a real data directory. `tests/simulation` crashes at every disk call. Rules:
docs/spec/share-groups.md#s5-12, #s5-3 (T8).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.client import ClientError
from odradek.protocol.errors import ErrorCode
from tests.clients.admin import create_topic
from tests.clients.own_producers import TWO_PHASE
from tests.clients.own_share_consumers import first_of, values
from tests.clients.own_share_transactions import (
    BROKER,
    LOCK_MS,
    TEN,
    delivered_again,
    outputs,
    producer_of,
    queue_of_ten,
    request_of,
    transactional_worker,
    upgrade,
)
from tests.clients.speakers import wait_for
from tests.support.broker_process import Broker, BrokerProcess

E = ErrorCode
PATIENCE_MS = 60_000


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Broker]:
    """Yields a broker that the test may kill."""
    with BrokerProcess(tmp_path / "data", BROKER | TWO_PHASE) as running:
        upgrade(running.bootstrap)
        yield running


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_broker_is_killed_between_staging_and_marker(mortal: Broker, commit: bool) -> None:
    at = mortal.bootstrap
    queue, results = queue_of_ten(at, "queue"), create_topic(at, "results")
    with transactional_worker(at, queue) as consumer, producer_of(at, queue) as producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send(results, b"all").result()
        producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        mortal.kill9()
        mortal.start()
        assert delivered_again(at, queue) == []
        (producer.commit_transaction if commit else producer.abort_transaction)()
    assert outputs(at, results) == ([b"all"] if commit else [])
    assert values(delivered_again(at, queue, 500 if commit else PATIENCE_MS)) == ([] if commit else TEN)


def test_a_request_is_repeated_after_a_restart_before_anybody_fetches(mortal: Broker) -> None:
    """The producer repeats the request because it has not received the response."""
    at = mortal.bootstrap
    queue = queue_of_ten(at, "queue")
    with transactional_worker(at, queue) as consumer:
        first_of(consumer)
        request = request_of(at, queue, consumer)
        assert request.code(at) is E.NONE
        mortal.kill9()
    mortal.start()

    def is_answered() -> bool:
        code = request.code(at)
        assert code in (E.NONE, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
        return code is E.NONE

    wait_for("the answer", is_answered)
    assert delivered_again(at, queue) == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_keeps_its_records_past_their_locks_and_over_kill_9(
    mortal: Broker, commit: bool
) -> None:
    at = mortal.bootstrap
    queue = queue_of_ten(at, "queue", share_record_lock_duration_ms=LOCK_MS)
    results = create_topic(at, "results")
    consumer, producer = transactional_worker(at, queue), producer_of(at, queue, two_phase_commit=True)
    with consumer, producer:
        producer.init_transactions()
        records = first_of(consumer)
        producer.begin_transaction()
        producer.send(results, b"all")
        producer.send_share_acknowledgements_to_transaction(records, consumer.share_group_metadata())
        state = producer.prepare_transaction()
        assert delivered_again(at, queue, 2.5 * LOCK_MS) == []
        mortal.kill9()
        with suppress(ClientError):
            consumer.close()
    mortal.start()
    assert delivered_again(at, queue, 2.5 * LOCK_MS) == []
    with producer_of(at, queue, two_phase_commit=True) as recovery:
        assert recovery.init_transactions(keep_prepared=True) == state
        assert delivered_again(at, queue) == []
        (recovery.commit_transaction if commit else recovery.abort_transaction)()
    assert outputs(at, results) == ([b"all"] if commit else [])
    assert values(delivered_again(at, queue, 500 if commit else PATIENCE_MS)) == ([] if commit else TEN)
