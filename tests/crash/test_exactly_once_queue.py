"""Tests that every job of a queue has exactly one result, no matter which workers are killed, and even if the broker is
killed.

The first test runs ROUNDS rounds (200 by default) of examples/exactly_once_queue.py. The second test runs a tenth as
many, with workers that take longer than their locks last. In each round some jobs are added, and at a random moment a
worker, all workers, the broker, or a worker and the broker are killed with SIGKILL and restarted. At the end, and again
after a restart, each job has one result, no job is delivered again, the queue is empty, no transaction is open, and no
acknowledgement is staged. SEED repeats a run's choices.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.exactly_once_queue import GROUP, JOBS, set_up
from odradek.client.sync import Producer
from tests.checker.queues import Fault, faults
from tests.clients.own_consumers import produce
from tests.clients.own_share_consumers import share_group
from tests.clients.speakers import wait_for
from tests.crash.copying import Watcher
from tests.crash.queue_worker import LOCK_S
from tests.crash.queueing import (
    BROKER,
    JOBS_PER_ROUND,
    NAMES,
    PARTITIONS,
    PATIENCE_S,
    VICTIMS,
    Workers,
    add_jobs,
    history_of,
    kill_and_start,
    left,
    wait_for_results,
    watched_values,
)
from tests.support.broker_process import Broker, BrokerProcess

ROUNDS = int(os.environ.get("ROUNDS") or 200)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
QUIET_ROUNDS = 4  # minimum number of rounds without kills, after the rounds with kills


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with BrokerProcess(tmp_path / "data", BROKER) as running:
        set_up(running.bootstrap)
        share_group(running.bootstrap, GROUP, share_delivery_count_limit=25)
        yield running


def test_each_job_gives_one_result_whichever_process_is_killed(
    broker: Broker, workers: Workers, watcher: Watcher
) -> None:
    run_rounds(ROUNDS, "as in the example", broker, workers, watcher)


def test_each_job_gives_one_result_although_workers_are_slower_than_their_locks(
    broker: Broker, workers: Workers, watcher: Watcher
) -> None:
    """Checks that the broker ends the transactions of slow workers, gives their jobs to other workers, and fences
    them."""
    share_group(broker.bootstrap, GROUP, share_record_lock_duration_ms=int(LOCK_S * 1000))
    run_rounds(max(ROUNDS // 10, 4), "slow", broker, workers, watcher, fenced=1)


def run_rounds(rounds: int, kind: str, broker: Broker, workers: Workers, watcher: Watcher, *, fenced: int = 0) -> None:
    """Runs rounds with kills, and then rounds without kills until at least `fenced` workers have been fenced."""
    print(f"SEED={SEED} {rounds} rounds of workers {kind}")
    rng = random.Random(SEED)
    began = time.monotonic()
    for name in NAMES:
        workers.start(broker.bootstrap, name, kind)
    kills: Counter[str] = Counter()
    with Producer(bootstrap_servers=broker.bootstrap, delivery_timeout_ms=600_000) as producer:
        for number in range(rounds):
            add_jobs(producer, number)
            before = watcher.count
            wait_for_results(workers, watcher, before + 1)
            time.sleep(rng.uniform(0.0, 0.1))  # a random moment during a transaction
            victims = rng.choice(VICTIMS)
            kills[victims] += 1
            kill_and_start(victims, broker, workers, kind, rng)
        for number in range(rounds, rounds + QUIET_ROUNDS):
            add_jobs(producer, number)
        producer.flush()
        rounds += QUIET_ROUNDS
        wait_for_results(workers, watcher, rounds * JOBS_PER_ROUND)
        ends_at = time.monotonic() + PATIENCE_S
        while workers.gave_up < fenced:  # Workers killed early never hold a lock until it expires.
            assert time.monotonic() < ends_at, "no worker gave up"
            add_jobs(producer, rounds)
            producer.flush()
            rounds += 1
            wait_for_results(workers, watcher, rounds * JOBS_PER_ROUND)
    count = rounds * JOBS_PER_ROUND
    wait_for("the end of the last transaction", lambda: left(broker.bootstrap) == [], PATIENCE_S)
    print(f"{dict(kills)} in {time.monotonic() - began:.1f} s, {workers.gave_up} workers gave up")
    for name in NAMES:
        workers.kill9(name)
    for _ in range(2):
        history = history_of(broker.bootstrap, PARTITIONS, workers, watched_values(watcher))
        assert len(history.jobs) == count
        assert faults(history)[:20] == []
        broker.kill9()
        broker.start()
    print(f"{sum(len(each.jobs) for each in history.taken)} deliveries of {len(history.jobs)} jobs")


# The checks find planted mistakes.


@pytest.fixture
def jobs(broker: Broker) -> int:
    for partition in range(PARTITIONS):
        produce(broker.bootstrap, JOBS, *(b"%d of %d" % (each, partition) for each in range(20)), partition=partition)
    return 20 * PARTITIONS


@pytest.mark.parametrize(
    ("kind", "fault"), [("acknowledges afterwards", Fault.REPEATED), ("acknowledges before", Fault.LOST)]
)
def test_acknowledgements_outside_of_the_transaction_are_detected(
    broker: Broker, workers: Workers, jobs: int, kind: str, fault: Fault
) -> None:
    workers.start(broker.bootstrap, NAMES[0], kind)
    workers.wait(NAMES[0])
    workers.start(broker.bootstrap, NAMES[0])
    wait_for("an empty queue", lambda: left(broker.bootstrap) == [], PATIENCE_S)
    workers.kill9(NAMES[0])
    found = faults(history_of(broker.bootstrap, PARTITIONS, workers, []))
    assert {each for each, _ in found} == {fault}


def test_the_open_transaction_of_a_dead_worker_is_visible_and_its_successor_takes_over(
    broker: Broker, workers: Workers, jobs: int
) -> None:
    workers.start(broker.bootstrap, NAMES[0], "stages and dies")
    workers.wait(NAMES[0])
    found = left(broker.bootstrap)
    assert [each for each in found if "is Ongoing" in each] == [f"the transaction {NAMES[0]} is Ongoing"]
    assert any("acknowledgements of share" in each for each in found)
    broker.kill9()
    broker.start()
    assert any("acknowledgements of share" in each for each in left(broker.bootstrap))
    workers.start(broker.bootstrap, NAMES[0])
    wait_for("an empty queue", lambda: left(broker.bootstrap) == [], PATIENCE_S)
    workers.kill9(NAMES[0])
    assert faults(history_of(broker.bootstrap, PARTITIONS, workers, [])) == []
