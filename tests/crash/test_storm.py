"""Tests that groups keep their guarantees in a storm, in which a proxy delivers requests late, twice or not at all, and
loses or repeats responses.

Two checkers examine each group. One checks the output, in which each record must have exactly one result. The other
queries the broker itself, over a listener that the storm does not affect. SEED repeats a run's choices, though not its
timing; ROUNDS=N makes the storm longer.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from examples.exactly_once_queue import GROUP, JOBS, RESULTS, set_up
from odradek.broker.shares.core.records import decode_record
from odradek.broker.shares.core.state import StateDeletion
from odradek.broker.shares.core.tables import RecordState
from odradek.client import ConsumerRecord, TopicPartition
from odradek.client.sync import Admin, Consumer, Producer
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from tests.checker.queues import Fault, QueueHistory, faults
from tests.clients.admin import create_topic
from tests.clients.own_share_consumers import share_group
from tests.clients.speakers import wait_for
from tests.crash import test_exactly_once_copy as copy
from tests.crash.copier import Job, copied
from tests.crash.copying import CopierProcess, Watcher, first_difference, journal, python
from tests.crash.queue_worker import POISON_LIMIT, Poison, poison
from tests.crash.queueing import (
    BROKER,
    JOBS_PER_ROUND,
    NAMES,
    PARTITIONS,
    Workers,
    add_jobs,
    history_of,
    left,
    watched_values,
)
from tests.crash.storm import Owners, Storm, partitions_of_members, stormy
from tests.support.broker_process import BrokerProcess
from tests.support.flaky_proxy import FlakyProxy

ROUNDS = int(os.environ.get("ROUNDS") or 100)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
PATIENCE_S = 180.0
STATE_PARTITIONS = 4  # number of partitions in tests/clients/own_share_consumers.py


def test_each_job_of_a_share_group_gives_one_result(tmp_path: Path, proxy: FlakyProxy) -> None:
    with stormy(tmp_path / "data", proxy, BROKER) as broker:
        history = worked_through(broker, proxy, tmp_path, "as in the example", ROUNDS, limit=25)
    assert len(history.results) == len(history.jobs)
    assert faults(history)[:20] == []


def test_each_job_gives_one_result_or_was_delivered_as_often_as_the_limit_says(
    tmp_path: Path, proxy: FlakyProxy
) -> None:
    """Some jobs kill their workers, or make them abort, at every delivery."""
    settings = BROKER | {"share.coordinator.state.topic.prune.interval.ms": 86_400_000}
    with stormy(tmp_path / "data", proxy, settings) as broker:
        rounds = max(ROUNDS // 10, len(Poison))
        history = worked_through(broker, proxy, tmp_path, "poisoned", rounds, limit=POISON_LIMIT)
        given_up = archived(broker.bootstrap)
    print(f"{len(given_up)} of {len(history.jobs)} jobs are given up")
    found = faults(history)
    assert {job for fault, job in found if fault is Fault.LOST} == given_up.keys()
    assert [each for each in found if each[0] is not Fault.LOST][:20] == []
    assert {job for job in history.jobs if poison(job.encode()) is not None} <= given_up.keys()
    assert set(given_up.values()) == {POISON_LIMIT}


def worked_through(
    broker: BrokerProcess, proxy: FlakyProxy, folder: Path, kind: str, rounds: int, *, limit: int
) -> QueueHistory:
    """Runs the jobs of `rounds` rounds, and of more rounds until each kind of fault has happened."""
    print(f"SEED={SEED}")
    set_up(broker.bootstrap)
    share_group(broker.bootstrap, GROUP, share_delivery_count_limit=limit)
    watcher = Watcher(broker.bootstrap, RESULTS, PARTITIONS, "watcher")
    watcher.start()
    workers, storm = Workers(folder), Storm(proxy, SEED)
    try:
        for name in NAMES:
            workers.start(proxy.bootstrap, name, kind)
        storm.begin()
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            count = 0
            # A few rounds may not be enough for every kind of fault.
            while count < rounds or min(storm.counts().values()) == 0:
                before = watcher.count
                add_jobs(producer, count)
                count += 1
                wait_for("a result", lambda before=before: grown(workers, watcher, before + 1), PATIENCE_S)  # type: ignore[misc]
            producer.flush()
        wait_for("an empty queue", lambda: grown(workers, watcher, 0) and lag(broker.bootstrap) == 0, PATIENCE_S)
        summary = storm.end()
        wait_for(
            "the end of the last transaction",
            lambda: grown(workers, watcher, 0) and left(broker.bootstrap) == [],
            PATIENCE_S,
        )
        print(f"{summary}; {workers.gave_up} workers gave up")
        for name in NAMES:
            workers.kill9(name)
        history = history_of(broker.bootstrap, PARTITIONS, workers, watched_values(watcher))
        assert len(history.jobs) == count * JOBS_PER_ROUND
        return history
    finally:
        workers.close()
        watcher.finish(reached_end=False)


def lag(bootstrap: str) -> int | None:
    """Returns the number of unfinished jobs, or None if it is unknown for some partition."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        lags = [offset.lag for offset in admin.list_share_group_offsets(GROUP).values()]
    return None if len(lags) < PARTITIONS or None in lags else sum(each or 0 for each in lags)


def archived(bootstrap: str) -> dict[str, int]:
    """Returns the archived jobs with their delivery counts. Reads the complete log of share state, because the current
    state may no longer contain them."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topic_id = admin.describe_topics([JOBS])[JOBS].topic_id
    found: dict[tuple[int, int], int] = {}
    for each in records_of(bootstrap, SHARE_GROUP_STATE, STATE_PARTITIONS):
        state = decode_record(each.key, each.value)
        if state is None or isinstance(state, StateDeletion) or state.key.topic_id != topic_id:
            continue
        for batch in state.batches:
            if batch.delivery_state == RecordState.ARCHIVED.value:
                for offset in range(batch.first_offset, batch.last_offset + 1):
                    found[state.key.partition, offset] = max(
                        batch.delivery_count, found.get((state.key.partition, offset), 0)
                    )
    return {
        (job.value or b"").decode(): found[job.partition, job.offset]
        for job in records_of(bootstrap, JOBS, PARTITIONS)
        if (job.partition, job.offset) in found
    }


def records_of(bootstrap: str, topic: str, partitions: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    places = [TopicPartition(topic, index) for index in range(partitions)]
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.getmany(timeout_ms=100).values():
                found += records
    return found


def grown(workers: Workers, watcher: Watcher, count: int) -> bool:
    time.sleep(0.005)
    workers.keep_up()
    return watcher.count >= count


MEMBERS: dict[str, list[tuple[str, str | None]]] = {
    "dynamic": [("consumer", None)] * 3,
    "static": [("consumer", "a"), ("consumer", "b"), ("consumer", "c")],
    "mixed": [("consumer", None), ("classic", None), ("consumer", "c")],
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_no_partition_of_a_consumer_group_has_two_owners(tmp_path: Path, proxy: FlakyProxy, kind: str) -> None:
    """Also checks that each record is copied exactly once and in order."""
    print(f"SEED={SEED}")
    settings = copy.SETTINGS | {
        "group.consumer.session.timeout.ms": 2_000,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.migration.policy": "bidirectional",
    }
    with stormy(tmp_path / "data", proxy, settings) as broker:
        for topic in ("source", "copy"):
            create_topic(broker.bootstrap, topic, copy.PARTITIONS, exact=True)
        source = copy.filled(broker.bootstrap)
        copiers = [
            CopierProcess(
                Job(
                    bootstrap=proxy.bootstrap,
                    source="source",
                    target="copy",
                    group="copiers",
                    transactional_id=f"copier-{number}",
                    journal=journal(tmp_path, f"copier-{number}"),
                    per_transaction=100,
                    aborts=0.1,
                    seed=SEED + number,
                    protocol=protocol,
                    instance=instance,
                ),
                python("tests.crash.own_copier"),
            )
            for number, (protocol, instance) in enumerate(MEMBERS[kind])
        ]
        owners, storm = Owners(broker.bootstrap, "copiers", partitions_of_members), Storm(proxy, SEED)
        watcher = Watcher(broker.bootstrap, "copy", copy.PARTITIONS, "watcher")
        watcher.start()
        rng = random.Random(SEED)
        try:
            for copier in copiers:
                copier.start()
            owners.start()
            storm.begin()
            for number in range(1, 5):  # Members join and leave, so partitions move.
                until(watcher, copiers, copy.RECORDS * number // 5)
                gone = rng.choice(copiers)
                gone.kill9()
                time.sleep(rng.uniform(0, 0.5))
                gone.start()
            until(watcher, copiers, copy.RECORDS)
            # Wait until the storm has hit heartbeats too.
            wait_for("every kind of fault", lambda: min(storm.counts().values()) > 0, PATIENCE_S)
            wait_for("a second member", lambda: owners.most_members > 1, PATIENCE_S)
            print(f"{storm.end()}; {owners.looks} looks, {sum(each.gave_up for each in copiers)} gave up")
        finally:
            for copier in copiers:
                copier.kill9()
            owners.finish()
            watcher.finish(reached_end=False)
        last = Watcher(broker.bootstrap, "copy", copy.PARTITIONS, "last")
        last.start()
        until(last, [], copy.RECORDS)
        last.finish(reached_end=True)
    assert owners.shared == []
    expected = {index: [copied(value) for value in values] for index, values in source.items()}
    assert {index: first_difference(last.values()[index], expected[index]) for index in expected} == dict.fromkeys(
        expected
    )


def until(watcher: Watcher, copiers: list[CopierProcess], count: int) -> None:
    def are_there() -> bool:
        time.sleep(0.005)
        for copier in copiers:
            copier.check()
        return watcher.count >= count

    wait_for(f"{count} copies; there are {watcher.count}", are_there, PATIENCE_S)
