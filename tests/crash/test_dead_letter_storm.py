"""Tests that a share group's dead-letter queue contains exactly the rejected records, even if workers and the broker
are killed.

In each of ROUNDS rounds (60 by default) some jobs are added, and at a random moment workers, the broker, or both are
killed with SIGKILL and restarted. `Rejection` determines how workers treat each job. A job is in the queue at least
once if it was rejected outside any transaction or in a transaction that committed. No other job is in the queue, not
even if a rejection in an aborted transaction preceded its result. SEED repeats a run's choices. Rules:
docs/spec/dead-letter-queues.md#s2, #s6.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.exactly_once_queue import GROUP, JOBS, set_up
from odradek.client import NewTopic, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from tests.checker.queues import faults
from tests.clients.own_share_consumers import share_group
from tests.clients.speakers import wait_for
from tests.crash.copying import Watcher
from tests.crash.queue_worker import Rejection, rejection
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
    watched_values,
)
from tests.support.broker_process import Broker, BrokerProcess
from tests.support.dead_letter_scene import MARK, REJECTED

ROUNDS = int(os.environ.get("ROUNDS") or 60)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
QUIET_ROUNDS = 2
DEAD_LETTERS = "dlq.jobs"
WITH_A_RESULT = (None, Rejection.COMMITTED, Rejection.ABORTED)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with BrokerProcess(tmp_path / "data", BROKER) as running:
        set_up(running.bootstrap)
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(DEAD_LETTERS, PARTITIONS, 1, {MARK: "true"})])
        share_group(
            running.bootstrap,
            GROUP,
            share_delivery_count_limit=25,
            errors_deadletterqueue_topic_name=DEAD_LETTERS,
            errors_deadletterqueue_copy_record_enable="true",
        )
        yield running


def test_exactly_the_rejected_records_are_in_the_queue_whichever_process_is_killed(
    broker: Broker, workers: Workers, watcher: Watcher
) -> None:
    print(f"SEED={SEED} {ROUNDS} rounds")
    rng = random.Random(SEED)
    for name in NAMES:
        workers.start(broker.bootstrap, name, "rejecting")
    kills: Counter[str] = Counter()
    with Producer(bootstrap_servers=broker.bootstrap, delivery_timeout_ms=600_000) as producer:
        for number in range(ROUNDS):
            add_jobs(producer, number)
            wait_for_results(workers, watcher, watcher.count + 1)
            time.sleep(rng.uniform(0.0, 0.1))  # during a transaction, or between the two writes of a rejection
            victims = rng.choice(VICTIMS)
            kills[victims] += 1
            kill_and_start(victims, broker, workers, "rejecting", rng)
        for number in range(ROUNDS, ROUNDS + QUIET_ROUNDS):
            add_jobs(producer, number)
        producer.flush()
    jobs = [f"job {number}" for number in range((ROUNDS + QUIET_ROUNDS) * JOBS_PER_ROUND)]
    expected = [job for job in jobs if fate(job) in WITH_A_RESULT]
    wait_for_results(workers, watcher, len(expected))
    wait_for("the end of the last transaction", lambda: keeps_up(workers) and left(broker.bootstrap) == [], PATIENCE_S)
    for name in NAMES:
        workers.kill9(name)
    broker_kills = kills["broker"] + kills["broker and worker"]
    for restarts in range(2):
        history = history_of(broker.bootstrap, PARTITIONS, workers, watched_values(watcher))
        assert sorted(history.jobs) == sorted(jobs)
        assert faults(replace(history, jobs=expected))[:20] == []
        check_queue(jobs, copies(broker.bootstrap), most=1 + broker_kills + restarts)
        broker.kill9()
        broker.start()
    print(f"{dict(kills)}, {len(jobs)} jobs, {len(copies(broker.bootstrap))} copies")


def fate(job: str) -> Rejection | None:
    return rejection(job.encode())


def keeps_up(workers: Workers) -> bool:
    workers.keep_up()
    return True


def wait_for_results(workers: Workers, watcher: Watcher, count: int) -> None:
    wait_for(f"{count} results", lambda: keeps_up(workers) and watcher.count >= count, PATIENCE_S)


def check_queue(jobs: list[str], found: Counter[str], most: int) -> None:
    rejected = {job for job in jobs if fate(job) in (Rejection.PLAIN, Rejection.COMMITTED)}
    assert sorted(rejected - found.keys())[:20] == [], "these were rejected, and are not in the queue"
    assert sorted(found.keys() - rejected)[:20] == [], "these were never rejected for good"
    assert [(job, count) for job, count in found.items() if count > most] == []


def copies(bootstrap: str) -> Counter[str]:
    """Returns the number of copies of each job in the queue."""
    found: Counter[str] = Counter()
    places = [TopicPartition(DEAD_LETTERS, index) for index in range(PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.getmany(timeout_ms=100).values():
                for record in records:
                    headers = dict(record.headers)
                    assert headers["__dlq.errors.message"] == REJECTED.encode()
                    assert headers["__dlq.errors.topic"] == JOBS.encode()
                    found[(record.value or b"").decode()] += 1
    return found
