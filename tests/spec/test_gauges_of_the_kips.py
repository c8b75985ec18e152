"""Tests the metrics of KIPs 98, 890, 932, 939 and 1289 as a scrape returns them in every state that affects them.

The coordinators, logs and share partitions are real, but the disk is a fake. The tests read the values from the text
for Prometheus. Rules: docs/spec/transactions.md#s3, docs/spec/share-groups.md#s5-11; docs/metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.coordinators.verification import TransactionalProducer, UnverifiedBatch
from odradek.broker.http.exposition import exposition
from odradek.broker.http.measures import (
    LATE_AFTER_MS,
    MAX_PENDING,
    DiskMeasure,
    LoopMeasure,
    Measures,
    VerificationMeasure,
    partition_measures,
    share_measure,
    transaction_measure,
)
from odradek.broker.shares.core.state import SharePartitionKey
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import SHARE_GROUP_STATE
from odradek.storage.log import Origin
from tests.support.batches import batch_by
from tests.support.share_broker import GROUP, STATE_PARTITIONS
from tests.support.share_member import Member
from tests.support.turns import outcome
from tests.support.txn_share_broker import ACCEPT, REJECT, Producer, TxnShareBroker

NONE = ErrorCode.NONE
MAX_TIMEOUT_MS = 900_000
LOCK_MS = 30_000
PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

COORDINATOR = "kafka_server_transaction_coordinator_metrics"
IDS = f"{COORDINATOR}_transactional_id_count"
OPEN_TIME = f"{COORDINATOR}_active_transaction_open_time_max"
KEPT = f"{COORDINATOR}_kept_transaction_count"
OPEN_PARTITIONS = f"{COORDINATOR}_transactionpartitionscount"
VERIFICATION_TIME = "kafka_server_addpartitionstotxnmanager_verificationtimems"
VERIFICATION_FAILURE = "kafka_server_addpartitionstotxnmanager_verificationfailure_total"
PENDING = "kafka_server_sharepartitionmanager_txnpendingrecordscount"
PENDING_HERE = "odradek_share_pending_records"
LOCK_EXPIRED = "kafka_server_sharepartitionmanager_txnpendinglockexpiredcount_total"
LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
STABLE_LAG = "kafka_cluster_partition_laststableoffsetlag"
STABLE_OFFSET = "kafka_cluster_partition_laststableoffset"
PRODUCER_IDS = "kafka_server_replicamanager_produceridcount"
PRODUCER_IDS_HERE = "kafka_cluster_partition_produceridcount"
MOVED = {
    IDS,
    OPEN_TIME,
    KEPT,
    OPEN_PARTITIONS,
    VERIFICATION_TIME,
    VERIFICATION_FAILURE,
    PENDING,
    PENDING_HERE,
    LOCK_EXPIRED,
    LATE,
    STABLE_LAG,
    STABLE_OFFSET,
    PRODUCER_IDS,
    PRODUCER_IDS_HERE,
}
# tests/clients/test_pending_shows.py tests the latency metric of KIP-1289.
ELSEWHERE = {"kafka_network_requestmetrics_totaltimems"}


class Scrape:
    """The values of all metrics at one moment."""

    def __init__(self, scene: TxnShareBroker) -> None:
        broker, now_ms = scene.broker, scene.clock.now_ms()
        late_before_ms = now_ms - MAX_TIMEOUT_MS - LATE_AFTER_MS
        verifier = broker.verifier
        measures = Measures(
            requests=[],
            errors={},
            listeners=[],
            quotas=[],
            partitions=outcome(partition_measures(broker, late_before_ms)),
            offline_partitions=0,
            groups=None,
            transactions=outcome(transaction_measure(scene.transactions, now_ms, broker.watch)),
            verification=VerificationMeasure(verifier.answered, verifier.answered_ms, verifier.failed),
            shares=outcome(share_measure(broker)),
            disk=DiskMeasure(0, [0] * 40, 0, 0),
            loop=LoopMeasure(0, [0] * 40),
        )
        self.values = {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(exposition(measures).decode())
            for sample in family.samples
        }

    def __getitem__(self, name: str | tuple[str, ...]) -> float | None:
        """Returns a metric's value, or None if it is missing. `name` is the metric's name, or a tuple of the name and
        the values of the metric's labels."""
        return self.values.get((name,) if isinstance(name, str) else name)

    def all_of(self, name: str) -> dict[tuple[str, ...], float]:
        return {key[1:]: value for key, value in self.values.items() if key[0] == name and value}


@pytest.fixture
def scene() -> TxnShareBroker:
    return TxnShareBroker(decisions=TransactionConfig(transaction_two_phase_commit_enable=True))


def pending(scene: TxnShareBroker) -> float | None:
    return Scrape(scene)[PENDING]


def ten_pending(scene: TxnShareBroker) -> tuple[bytes, Member, Producer]:
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    member.acquire(topic)
    assert pending(scene) == 0
    assert producer.codes(member, {topic: [(0, 7, ACCEPT), (8, 9, REJECT)]}) == [NONE]
    assert pending(scene) == 10
    return topic, member, producer


def append(scene: TxnShareBroker, producer: Producer, topic: str = "out", sequence: int = 0) -> None:
    """Adds partition 0 of the topic to the producer's transaction and appends a record to the partition."""
    producer_id, producer_epoch = producer.pair
    added = scene.transactions.add_partitions(
        producer.transactional_id, producer_id, producer_epoch, {(topic, 0)}, verify_only=False, requested_version=2
    )
    scene.settle()
    assert added
    batch = batch_by((producer_id, producer_epoch), sequence, b"v", key=None, at_ms=scene.clock.now_ms())
    scene.partition(topic).append_now(batch, origin=Origin.CLIENT, now_ms=scene.clock.now_ms())
    scene.settle()


def test_this_module_tests_every_transactional_metric_of_the_page() -> None:
    text = PAGE.read_text()
    section = text[text.index("## Transactions") :]
    named = {
        name.removesuffix("_count") if "time" in name else name for name in re.findall(r"`([a-z_]+_[a-z_]+)`", section)
    }
    metrics = {name for name in named if name.startswith(("kafka_", "odradek_"))}
    assert metrics == (MOVED | ELSEWHERE) - {LATE, STABLE_LAG, STABLE_OFFSET, PRODUCER_IDS, PRODUCER_IDS_HERE}
    for name in (LATE, STABLE_LAG, STABLE_OFFSET, PRODUCER_IDS, PRODUCER_IDS_HERE):
        assert f"`{name}`" in text


# --- KIP-1289: TxnPendingRecordsCount.


@pytest.mark.parametrize("commit", [True, False])
def test_pending_records_are_counted_until_the_transaction_ends(scene: TxnShareBroker, commit: bool) -> None:
    _, _, producer = ten_pending(scene)
    assert producer.end(commit=commit) is NONE
    assert pending(scene) == 0


def test_pending_records_are_counted_after_the_application_has_died(scene: TxnShareBroker) -> None:
    _, member, producer = ten_pending(scene)
    member.disconnect()
    assert list(scene.shares.loaded_partitions) == [], "no leader has the share partition in memory any more"
    assert pending(scene) == 10
    assert producer.abort() is NONE
    assert pending(scene) == 0


def test_pending_records_are_counted_after_a_restart_before_anybody_connects(scene: TxnShareBroker) -> None:
    _, _, producer = ten_pending(scene)
    scene.kill()
    assert pending(scene) == 10
    scene.kill()
    assert pending(scene) == 10
    assert producer.commit() is NONE
    assert pending(scene) == 0
    scene.kill()
    assert pending(scene) == 0


def test_a_broker_that_loads_the_state_of_share_groups_does_not_say_that_nothing_is_pending(
    scene: TxnShareBroker,
) -> None:
    ten_pending(scene)
    for index in range(STATE_PARTITIONS):
        scene.share_coordinator.shard_of(index).unload(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert pending(scene) is None
    assert Scrape(scene).all_of(PENDING_HERE) == {}
    scene.kill()
    assert pending(scene) == 10


def test_pending_records_are_counted_until_the_marker_is_written(scene: TxnShareBroker) -> None:
    _, _, producer = ten_pending(scene)
    for index in range(STATE_PARTITIONS):
        scene.markers.refusals[SHARE_GROUP_STATE, index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    producer.begin_end(commit=True)
    assert pending(scene) == 10
    scene.markers.refusals.clear()
    scene.sleep(10_000)
    assert pending(scene) == 0


def test_a_request_that_was_repeated_counts_once(scene: TxnShareBroker) -> None:
    topic, member, producer = ten_pending(scene)
    assert producer.codes(member, {topic: [(0, 7, ACCEPT), (8, 9, REJECT)]}) == [NONE]
    assert pending(scene) == 10


def test_records_whose_lock_runs_out_are_pending_no_longer_and_are_counted_as_such(scene: TxnShareBroker) -> None:
    ten_pending(scene)
    assert Scrape(scene)[LOCK_EXPIRED] == 0
    scene.sleep(LOCK_MS + 1)
    scene.sleep(1_000)
    found = Scrape(scene)
    assert (found[PENDING], found[LOCK_EXPIRED]) == (0, 10)


def test_records_of_an_aborted_transaction_are_not_counted_as_expired(scene: TxnShareBroker) -> None:
    _, _, producer = ten_pending(scene)
    assert producer.abort() is NONE
    scene.sleep(2 * LOCK_MS)
    assert Scrape(scene)[LOCK_EXPIRED] == 0


def test_records_of_a_deleted_topic_are_pending_no_longer(scene: TxnShareBroker) -> None:
    ten_pending(scene)
    scene.delete_topic("T")
    assert pending(scene) == 0
    scene.kill()
    assert pending(scene) == 0


@pytest.mark.parametrize("begun_anew", [True, False])
def test_state_that_is_deleted_or_begun_anew_has_nothing_pending(scene: TxnShareBroker, begun_anew: bool) -> None:
    topic, _, _ = ten_pending(scene)
    key = SharePartitionKey(GROUP, topic, 0)
    if begun_anew:
        scene.initialize(key, state_epoch=2, start_offset=5)
    else:
        scene.persister.delete(key)
        scene.settle()
    assert pending(scene) == 0
    scene.kill()
    assert pending(scene) == 0


def test_pending_records_are_shown_by_share_partition_and_transaction(scene: TxnShareBroker) -> None:
    first, second = scene.shared_topic("T", 10), scene.shared_topic("U", 4)
    member = scene.joined("A", "T", "U")
    pay, bill = scene.producer("pay"), scene.producer("bill")
    member.acquire(first, second)
    assert pay.codes(member, {first: [(0, 2, ACCEPT)], second: [(0, 0, ACCEPT)]}) == [NONE, NONE]
    assert bill.codes(member, {first: [(5, 9, ACCEPT)]}) == [NONE]
    both = {(GROUP, "0", "T", "pay"): 3, (GROUP, "0", "U", "pay"): 1, (GROUP, "0", "T", "bill"): 5}
    assert Scrape(scene).all_of(PENDING_HERE) == both
    scene.kill()
    assert Scrape(scene).all_of(PENDING_HERE) == both
    assert pay.abort() is NONE
    assert Scrape(scene).all_of(PENDING_HERE) == {(GROUP, "0", "T", "bill"): 5}
    assert pending(scene) == 5


def test_a_scrape_has_a_limited_number_of_share_partitions_and_the_total(scene: TxnShareBroker) -> None:
    count = MAX_PENDING + 30
    topic = scene.shared_topic("T", partition_count=count)
    for index in range(count):
        scene.produce("T", 2, index=index)
    member, producer = scene.joined("A"), scene.producer()
    for index in range(count):
        member.acquire(topic, index=index)
    assert set(producer.codes(member, {(topic, index): [(0, 1, ACCEPT)] for index in range(count)})) == {NONE}  # type: ignore[arg-type]
    found = Scrape(scene)
    assert found[PENDING] == 2 * count
    assert len(found.all_of(PENDING_HERE)) == MAX_PENDING


# --- KIP-1289: TransactionPartitionsCount.


@pytest.mark.parametrize("commit", [True, False])
def test_partitions_in_open_transactions_are_counted_those_of_share_groups_too(
    scene: TxnShareBroker, commit: bool
) -> None:
    scene.topic("out")
    topic = scene.shared_topic("T", 10)
    member, producer = scene.joined("A"), scene.producer()
    assert Scrape(scene)[OPEN_PARTITIONS] == 0
    append(scene, producer)
    assert Scrape(scene)[OPEN_PARTITIONS] == 1
    member.acquire(topic)
    assert producer.codes(member, {topic: [(0, 9, ACCEPT)]}) == [NONE]
    assert Scrape(scene)[OPEN_PARTITIONS] == 2
    scene.kill()
    assert Scrape(scene)[OPEN_PARTITIONS] == 2
    assert producer.end(commit=commit) is NONE
    assert Scrape(scene)[OPEN_PARTITIONS] == 0


# --- KIP-98: transactional ids, last stable offsets, producer ids.


def test_transactional_ids_are_counted_by_state(scene: TxnShareBroker) -> None:
    scene.topic("out")
    pay, bill = scene.producer("pay"), scene.producer("bill")
    assert Scrape(scene).all_of(IDS) == {("Empty",): 2}
    append(scene, pay)
    append(scene, bill)
    assert Scrape(scene).all_of(IDS) == {("Ongoing",): 2}
    scene.markers.held = []
    pay.begin_end(commit=True)
    bill.begin_end(commit=False)
    assert Scrape(scene).all_of(IDS) == {("PrepareCommit",): 1, ("PrepareAbort",): 1}
    held, scene.markers.held = scene.markers.held, None
    for deliver in held:
        deliver()
    scene.settle()
    ended = {("CompleteCommit",): 1, ("CompleteAbort",): 1}
    assert Scrape(scene).all_of(IDS) == ended
    scene.kill()
    assert Scrape(scene).all_of(IDS) == ended


@pytest.mark.parametrize("commit", [True, False])
def test_readers_of_committed_data_lag_until_the_marker_is_written(scene: TxnShareBroker, commit: bool) -> None:
    scene.topic("out")
    producer, lag, stable = scene.producer(), (STABLE_LAG, "0", "out"), (STABLE_OFFSET, "0", "out")
    assert (Scrape(scene)[lag], Scrape(scene)[stable]) == (0, 0)
    append(scene, producer)
    assert (Scrape(scene)[lag], Scrape(scene)[stable]) == (1, 0)
    scene.clock.advance(1)
    append(scene, producer, sequence=1)
    assert (Scrape(scene)[lag], Scrape(scene)[stable]) == (2, 0)
    assert producer.end(commit=commit) is NONE
    assert (Scrape(scene)[lag], Scrape(scene)[stable]) == (0, 3), "the marker has an offset, too"


def test_producer_ids_are_counted_by_partition_and_over_all(scene: TxnShareBroker) -> None:
    scene.topic("out")
    scene.topic("more")
    pay, bill = scene.producer("pay"), scene.producer("bill")
    before = Scrape(scene)[PRODUCER_IDS]
    assert before is not None
    append(scene, pay)
    append(scene, pay, "more")
    append(scene, bill)
    found = Scrape(scene)
    assert (found[PRODUCER_IDS_HERE, "0", "out"], found[PRODUCER_IDS_HERE, "0", "more"]) == (2, 1)
    assert found[PRODUCER_IDS] == before + 3


def test_a_transaction_is_late_when_it_is_silent_for_longer_than_any_timeout_and_five_minutes(
    scene: TxnShareBroker,
) -> None:
    scene.topic("out")
    producer = scene.producer(two_phase=True)  # Only a two-phase commit can stay open this long.
    append(scene, producer)
    scene.clock.advance(MAX_TIMEOUT_MS + LATE_AFTER_MS)
    assert Scrape(scene)[LATE] == 0
    scene.clock.advance(1)
    assert Scrape(scene)[LATE] == 1
    assert producer.commit() is NONE
    assert Scrape(scene)[LATE] == 0


# --- KIP-939.


def test_the_age_of_the_oldest_open_transaction_grows_until_that_one_ends(scene: TxnShareBroker) -> None:
    scene.topic("out")
    pay, bill = scene.producer("pay", two_phase=True), scene.producer("bill")
    scene.clock.advance(500)
    assert Scrape(scene)[OPEN_TIME] == 0, "a producer without a transaction has none that is open"
    append(scene, pay)
    scene.clock.advance(2_000)
    append(scene, bill)
    scene.clock.advance(1_000)
    assert Scrape(scene)[OPEN_TIME] == 3_000
    scene.kill()
    assert Scrape(scene)[OPEN_TIME] == 3_000
    assert pay.commit() is NONE
    assert Scrape(scene)[OPEN_TIME] == 1_000
    assert bill.abort() is NONE
    assert Scrape(scene)[OPEN_TIME] == 0


def test_a_transaction_is_counted_as_kept_from_its_recovery_on_until_its_owner_ends_it(scene: TxnShareBroker) -> None:
    scene.topic("out")
    producer = scene.producer(two_phase=True)
    append(scene, producer)
    assert Scrape(scene)[KEPT] == 0
    recovered = scene.producer(two_phase=True, keep=True)
    assert Scrape(scene)[KEPT] == 1
    scene.kill()
    assert Scrape(scene)[KEPT] == 1
    assert recovered.commit() is NONE
    assert Scrape(scene)[KEPT] == 0


# --- KIP-890.


def test_verifications_are_timed_and_partitions_that_are_refused_are_counted(scene: TxnShareBroker) -> None:
    scene.topic("out", 2)
    scene.coordinator = Slow(scene, scene.transactions)
    producer = scene.producer()
    before = Scrape(scene)
    assert (before[f"{VERIFICATION_TIME}_count"], before[VERIFICATION_FAILURE]) == (0, 0)
    batches = [UnverifiedBatch(scene.partition("out", index), 0) for index in (0, 1)]
    verify = scene.broker.verifier.verify
    counting = TransactionalProducer(producer.transactional_id, *producer.pair)
    # The verification adds both partitions to the transaction.
    verify(counting, batches, True, lambda _: None, waits_for_the_last=False)
    scene.settle()
    found = Scrape(scene)
    assert (found[f"{VERIFICATION_TIME}_count"], found[f"{VERIFICATION_TIME}_sum"]) == (1, 15)
    assert found[VERIFICATION_FAILURE] == 0
    stale = TransactionalProducer(producer.transactional_id, producer.pair[0], producer.pair[1] + 1)
    verify(stale, batches, False, lambda _: None, waits_for_the_last=False)
    scene.settle()
    found = Scrape(scene)
    assert (found[f"{VERIFICATION_TIME}_count"], found[VERIFICATION_FAILURE]) == (2, 2)


class Slow:
    """A transaction coordinator that takes 15 ms to answer."""

    def __init__(self, scene: TxnShareBroker, coordinator: Any) -> None:
        self._scene, self._coordinator = scene, coordinator

    def __getattr__(self, name: str) -> Any:
        real: Callable[..., Any] = getattr(self._coordinator, name)

        def counting(*args: Any, **named: Any) -> Any:
            self._scene.clock.advance(15)
            return real(*args, **named)

        return counting if callable(real) else real
