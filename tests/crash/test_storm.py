"""Groups in a storm: a proxy delivers requests late, twice or not at all, and loses answers.

Two checkers look at each: one at what was written, where each record has to give exactly one result, and one at the
broker itself, over a listener that no storm touches. SEED repeats a run's choices, though not its timing; ROUNDS=N
makes the storm longer.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.exactly_once_queue import GROUP, RESULTS, set_up
from odradek.client.sync import Producer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from tests.checker.queues import faults
from tests.clients.admin import create_topic
from tests.clients.own_share_consumers import share_group
from tests.clients.speakers import wait_for
from tests.crash import test_exactly_once_copy as copy
from tests.crash.copier import Job, copied
from tests.crash.copying import CopierProcess, Watcher, journal
from tests.crash.queueing import Workers, history_of, left
from tests.crash.test_exactly_once_queue import BROKER, JOBS_PER_ROUND, NAMES, PARTITIONS, add_jobs, seen
from tests.support.broker_process import BrokerProcess
from tests.support.flaky_proxy import FlakyProxy
from tests.support.wire import Wire

ROUNDS = int(os.environ.get("ROUNDS") or 100)
SEED = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
SHARE_OF_EACH = 0.03  # of the requests; there are four ways to go wrong
PATIENCE_S = 180.0
LATE_S = 0.5
LISTENERS = {
    "listeners": "DIRECT://127.0.0.1:0,STORM://127.0.0.1:0",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,STORM:PLAINTEXT",
}
# Without these nothing could begin; everything else comes late, twice or not at all.
CALM = {ApiKey.API_VERSIONS.value, ApiKey.METADATA.value}


class Storm:
    """Chooses among the requests, by chance."""

    def __init__(self, proxy: FlakyProxy, seed: int) -> None:
        self._proxy = proxy
        self._rng = random.Random(seed)
        proxy.late_by_s, proxy.hangs_up = LATE_S, True

    def begin(self) -> None:
        self._proxy.loses = self._proxy.drops = self._proxy.repeats = self._proxy.holds = self._is_chosen

    def counts(self) -> dict[str, int]:
        """Requests that went wrong so far, by the way in which they did."""
        proxy = self._proxy
        return {
            "lost": len(proxy.lost),
            "dropped": len(proxy.dropped),
            "repeated": len(proxy.repeated),
            "late": len(proxy.delivered_late),
        }

    def end(self) -> str:
        """Lets everything through from now on, and says what went wrong before."""
        proxy, counts = self._proxy, self.counts()
        kinds = {ApiKey(key).name for key in (*proxy.lost, *proxy.dropped, *proxy.repeated, *proxy.delivered_late)}
        proxy.forget()
        assert min(counts.values()) > 0, f"this was no storm: {counts}"
        return f"{counts} of {', '.join(sorted(kinds))}"

    def _is_chosen(self, api_key: int, _version: int, _seen: int) -> bool:
        return api_key not in CALM and self._rng.random() < SHARE_OF_EACH


@pytest.fixture
def proxy() -> Iterator[FlakyProxy]:
    with FlakyProxy() as made:
        yield made


@contextmanager
def stormy(data_dir: Path, proxy: FlakyProxy, settings: dict[str, object]) -> Iterator[BrokerProcess]:
    """A broker whose listener STORM is reached through the proxy only."""
    advertised = {"advertised.listeners": f"DIRECT://127.0.0.1:0,STORM://{proxy.bootstrap}"}
    with BrokerProcess(data_dir, settings | LISTENERS | advertised) as broker:
        assert isinstance(broker, BrokerProcess)
        host, _, port = broker.ready["listeners"]["STORM"].rpartition(":")
        proxy.target = (host, int(port))
        yield broker


def test_each_job_of_a_share_group_gives_one_result(tmp_path: Path, proxy: FlakyProxy) -> None:
    print(f"SEED={SEED}")
    with stormy(tmp_path / "data", proxy, BROKER) as broker:
        set_up(broker.bootstrap)
        share_group(broker.bootstrap, GROUP, share_delivery_count_limit=25)
        watcher = Watcher(broker.bootstrap, RESULTS, PARTITIONS, "watcher")
        watcher.start()
        workers, storm = Workers(tmp_path), Storm(proxy, SEED)
        try:
            for name in NAMES:
                workers.start(proxy.bootstrap, name)
            storm.begin()
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                rounds = 0
                while rounds < ROUNDS or min(storm.counts().values()) == 0:  # a few rounds may pass without a storm
                    before = watcher.count
                    add_jobs(producer, rounds)
                    rounds += 1
                    wait_for("a result", lambda before=before: grown(workers, watcher, before + 1), PATIENCE_S)  # type: ignore[misc]
                producer.flush()
            count = rounds * JOBS_PER_ROUND
            wait_for(f"{count} results", lambda: grown(workers, watcher, count), PATIENCE_S)
            told = storm.end()
            wait_for("the end of the last transaction", lambda: left(broker.bootstrap) == [], PATIENCE_S)
            print(f"{told}; {workers.gave_up} workers gave up")
            for name in NAMES:
                workers.kill9(name)
            history = history_of(broker.bootstrap, PARTITIONS, workers, seen(watcher))
            assert len(history.jobs) == count
            assert faults(history)[:20] == []
        finally:
            workers.close()
            watcher.finish(reached_end=False)


def grown(workers: Workers, watcher: Watcher, count: int) -> bool:
    time.sleep(0.005)
    workers.keep_up()
    return watcher.count >= count


class Owners(threading.Thread):
    """Asks the broker, over and over, who has which partition, and notes what two have at once."""

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__(daemon=True)
        self.looks = 0
        self.most_members = 0
        self.shared: list[str] = []
        self._asked = bootstrap
        self._group = group
        self._is_over = threading.Event()

    def run(self) -> None:
        with Wire(self._asked) as wire:
            while not self._is_over.wait(0.01):
                asked = ConsumerGroupDescribeRequest(group_ids=[self._group])
                (found,) = wire.ask(asked, 1, ConsumerGroupDescribeResponse).groups
                owners: dict[tuple[str, int], str] = {}
                for member in found.members:
                    for topic in member.assignment.topic_partitions:
                        for index in topic.partitions:
                            other = owners.setdefault((topic.topic_name, index), member.member_id)
                            if other != member.member_id:
                                self.shared.append(f"{topic.topic_name}-{index}: {other} and {member.member_id}")
                self.looks += 1
                self.most_members = max(self.most_members, len(found.members))

    def finish(self) -> None:
        self._is_over.set()
        self.join()


MEMBERS: dict[str, list[tuple[str, str | None]]] = {
    "dynamic": [("consumer", None)] * 3,
    "static": [("consumer", "a"), ("consumer", "b"), ("consumer", "c")],
    "mixed": [("consumer", None), ("classic", None), ("consumer", "c")],
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_no_partition_of_a_consumer_group_has_two_owners(tmp_path: Path, proxy: FlakyProxy, kind: str) -> None:
    """And each record is copied once, in order."""
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
                "tests.crash.own_copier",
            )
            for number, (protocol, instance) in enumerate(MEMBERS[kind])
        ]
        owners, storm = Owners(broker.bootstrap, "copiers"), Storm(proxy, SEED)
        watcher = Watcher(broker.bootstrap, "copy", copy.PARTITIONS, "watcher")
        watcher.start()
        rng = random.Random(SEED)
        try:
            for copier in copiers:
                copier.start()
            owners.start()
            storm.begin()
            for number in range(1, 5):  # members come and go, so that there is something to hand over
                until(watcher, copiers, copy.RECORDS * number // 5)
                gone = rng.choice(copiers)
                gone.kill9()
                time.sleep(rng.uniform(0, 0.5))
                gone.start()
            until(watcher, copiers, copy.RECORDS)
            wait_for("every kind of fault", lambda: min(storm.counts().values()) > 0, PATIENCE_S)  # of heartbeats, too
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
    assert {index: copy.first_difference(last.values()[index], expected[index]) for index in expected} == dict.fromkeys(
        expected
    )


def until(watcher: Watcher, copiers: list[CopierProcess], count: int) -> None:
    def are_there() -> bool:
        time.sleep(0.005)
        for copier in copiers:
            copier.check()
        return watcher.count >= count

    wait_for(f"{count} copies; there are {watcher.count}", are_there, PATIENCE_S)
