"""Bugs of other brokers where transactions meet partitions; each comment names the cause."""

import pytest

from odradek.broker.runtime.delayed import Deferred
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.topic_partition import GROUP_OFFSETS
from odradek.storage.validation import CHEAP_RECORDS
from tests.support.broker_scene import NOW_MS, answer_of
from tests.support.transaction_scene import refused
from tests.support.transactional_clients import GROUP, ID, TIMEOUT_MS, TV1, TV2, Answering, Clients, batch_of, consumed

E = ErrorCode
T0 = ("t", 0)
OFFSETS = (GROUP_OFFSETS, 0)
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def scene() -> Clients:
    return Clients()


def nothing_hangs(scene: Clients, index: int = 0) -> bool:
    return scene.latest_offset(committed=True, index=index) == scene.latest_offset(committed=False, index=index)


# KAFKA-14884: between the coordinator's yes and the append the abort's marker was written; the batch then opened a
# transaction that nothing would ever end.
@pytest.mark.parametrize("version", [TV1, TV2])
def test_known_bug_08_a_marker_between_verification_and_append_leaves_no_hanging_transaction(
    scene: Clients, version: int
) -> None:
    pair = scene.init()
    scene.add(pair)
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    reply = scene.send(batch_of(pair), version=version)
    scene.abort(pair, version=4 if version == TV1 else 5)
    coordinator.held.pop()()
    (answer,) = scene.told(reply, version)
    # At version 2 the marker alone has fenced the epoch.
    assert ErrorCode(answer.error_code) is (E.INVALID_TXN_STATE if version == TV1 else E.INVALID_PRODUCER_EPOCH)
    assert nothing_hangs(scene)


# Once ours: a marker below version 2 carries the epoch of the transaction that it ends. A batch of Produce v12 that was
# being checked in a thread kept its guard, was written behind the marker, and held readers back without end.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("transaction_version", "end_txn"), [(2, 4), (1, 4), (0, 4), (0, 5)])
def test_known_bug_62_a_marker_while_the_batch_is_checked_in_a_thread_leaves_no_hanging_transaction(
    transaction_version: int, end_txn: int, commit: bool
) -> None:
    scene = Clients(transaction_version=transaction_version)
    pair = scene.init()
    reply = scene.send(batch_of(pair, 0, *[b"late"] * (CHEAP_RECORDS + 1)), version=TV2)
    assert scene.workers.jobs, "the batch is in a thread"
    scene.end(pair, commit=commit, version=end_txn)
    (answer,) = scene.told(reply, TV2)
    assert ErrorCode(answer.error_code) is E.INVALID_TXN_STATE
    assert nothing_hangs(scene)


def test_known_bug_62_nor_do_offsets_that_wait_for_the_coordinators_yes() -> None:
    scene = Clients(transaction_version=0)
    pair = scene.init()
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    offsets = TxnOffsetCommitRequestTopic(
        name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=10)]
    )
    request = TxnOffsetCommitRequest(
        transactional_id=ID, group_id=GROUP, producer_id=pair[0], producer_epoch=pair[1], topics=[offsets]
    )
    reply = scene.ask(request, 5)
    assert scene.write_marker(pair, commit=False, topic=GROUP_OFFSETS) is E.NONE
    coordinator.held.pop()()
    assert answer_of(reply).topics[0].partitions[0].error_code == E.INVALID_TXN_STATE.value
    log = scene.partition(GROUP_OFFSETS).log
    assert log.last_stable_offset == log.high_watermark


# KAFKA-17754: a request of a transaction that was over, delayed on its way, was taken for one of the next.
def test_known_bug_09_what_comes_late_from_one_transaction_does_not_touch_the_next(scene: Clients) -> None:
    first = scene.init()
    scene.produce(first, 0, b"first")
    second = scene.commit(first)
    scene.produce(second, 0, b"second")
    assert scene.produce(first, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert scene.produce(first, 0, b"late", index=1) is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(first, 10) is E.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        with refused(E.PRODUCER_FENCED):
            scene.end(first, commit=commit)
    assert scene.transactions.describe(ID).transaction_state == "Ongoing"
    assert scene.read(committed=True) == [b"first"]
    scene.commit(second)
    assert scene.read(committed=True) == [b"first", b"second"]
    assert scene.read(committed=True, index=1) == []


# KAFKA-14053: the client gave a batch up and aborted; the batch arrived behind the abort's marker, and held readers
# back for ever.
@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_known_bug_10_a_batch_that_comes_behind_the_abort_holds_nobody_back(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.add(pair)
    scene.abort(pair, version=5 if version >= TV2 else 4)
    assert scene.produce(pair, 0, b"late", version=version) in (
        E.INVALID_TXN_STATE,
        E.TRANSACTION_ABORTABLE,
        E.INVALID_PRODUCER_EPOCH,
    )
    assert nothing_hangs(scene)


def test_known_bug_10_nor_one_that_comes_behind_an_abort_for_its_time(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"in time")
    scene.clock.advance(TIMEOUT_MS + 1)
    scene.transactions.abort_timed_out()
    assert scene.produce(pair, 1, b"late") is E.INVALID_PRODUCER_EPOCH
    assert nothing_hangs(scene)
    assert scene.read(committed=True) == []


# KAFKA-17507: the marker was acknowledged before the group had taken the offsets over, and who fetched them next was
# given those of before.
def test_known_bug_14_who_is_told_of_the_commit_fetches_its_offsets(scene: Clients) -> None:
    for offset in (10, 20, 30):
        pair = scene.init()
        scene.commit_offset_in_transaction(pair, offset)
        scene.commit(pair)
        assert scene.committed_offset(require_stable=True) == offset


def test_known_bug_14_a_group_that_cannot_take_them_over_yet_acknowledges_no_marker(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    (shard,) = scene.groups.shards
    shard.unload(E.COORDINATOR_LOAD_IN_PROGRESS)
    scene.commit(pair)
    assert scene.transactions.describe(ID).transaction_state == "PrepareCommit"
    again = scene.restarted(killed=True)
    assert again.transactions.describe(ID).transaction_state == "CompleteCommit"
    assert again.committed_offset(require_stable=True) == 10


# apache/kafka 15183: whichever transaction ended last won, not whichever had written its offset last.
@pytest.mark.parametrize("restarts", [True, False])
def test_known_bug_15_an_older_pending_offset_does_not_replace_a_newer_one(scene: Clients, restarts: bool) -> None:
    older, newer = scene.init(transactional_id="older"), scene.init(transactional_id="newer")
    scene.commit_offset_in_transaction(older, 10, transactional_id="older")
    scene.commit_offset_in_transaction(newer, 20, transactional_id="newer")
    scene.commit(newer, transactional_id="newer")
    if restarts:
        scene = scene.restarted(killed=True)
    assert scene.committed_offset() == 20
    scene.commit(older, transactional_id="older")
    assert scene.committed_offset(require_stable=True) == 20
    assert scene.restarted(killed=True).committed_offset(require_stable=True) == 20


# redpanda 10671, 5090: after a restart the last stable offset was computed from what had been applied so far, and
# lay above records of aborted and open transactions.
@pytest.mark.parametrize("killed", [True, False])
def test_known_bug_31_the_first_read_after_a_restart_knows_every_transaction(scene: Clients, killed: bool) -> None:
    aborted, still_open = scene.init(transactional_id="aborted"), scene.init(transactional_id="open")
    scene.produce(aborted, 0, b"aborted", transactional_id="aborted")
    scene.produce((50, 0), 0, b"plain", transactional=False)
    scene.abort(aborted, transactional_id="aborted")
    scene.produce(still_open, 0, b"open", transactional_id="open")
    again = scene.restarted(killed=killed)
    assert again.read(committed=True) == [b"plain"]
    assert again.latest_offset(committed=True) == 3


# redpanda 3232: the abort of an older epoch, written late, ended the transaction of a newer one.
@pytest.mark.parametrize(("version", "transaction_version"), [(1, 0), (2, 2)])
def test_known_bug_32_a_late_abort_of_an_older_epoch_is_fenced(
    scene: Clients, version: int, transaction_version: int
) -> None:
    older = scene.init()
    newer = scene.init()
    scene.produce(newer, 0, b"newer")
    code = scene.write_marker(older, commit=False, version=version, transaction_version=transaction_version)
    assert code is E.INVALID_PRODUCER_EPOCH
    scene.commit(newer)
    assert scene.read(committed=True) == [b"newer"]


# redpanda 10669: the end of a transaction reached the partitions but not the group's coordinator.
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("waits", [None, T0, OFFSETS])
def test_known_bug_36_records_and_offsets_of_a_transaction_stand_and_fall_together(
    scene: Clients, commit: bool, waits: tuple[str, int] | None
) -> None:
    """Also when the process is killed between the two markers."""
    scene.commit_offset(3)
    pair = scene.init()
    scene.produce(pair, 0, b"copied")
    scene.commit_offset_in_transaction(pair, 4)
    if waits is not None:
        scene.markers.refusals[waits] = E.KAFKA_STORAGE_ERROR
    scene.end(pair, commit=commit)
    if waits is not None:
        scene = scene.restarted(killed=True)
    assert scene.read(committed=True) == ([b"copied"] if commit else [])
    assert scene.committed_offset(require_stable=True) == (4 if commit else 3)


# redpanda 22670: with its state the partition forgot an idle producer, and then refused the sequence that came next.
def test_known_bug_39_an_idle_idempotent_producer_goes_on_where_it_was(scene: Clients) -> None:
    assert scene.produce((50, 0), 0, b"a", b"b", transactional=False) is E.NONE
    log = scene.partition("t").log
    assert log.expire_producers(scene.clock.now_ms() + DAY_MS) == [50]
    assert scene.produce((50, 0), 2, b"c", transactional=False) is E.NONE
    assert scene.read(committed=True) == [b"a", b"b", b"c"]


# redpanda 22670: nor may the end of an idle transactional id keep its producer from coming back.
def test_known_bug_39_an_idle_transactional_producer_comes_back(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair)
    pair = scene.commit(pair)
    scene.partition("t").log.expire_producers(scene.clock.now_ms() + DAY_MS)
    assert scene.produce(pair) is E.NONE
    scene.commit(pair)
    assert scene.read(committed=True) == [b"v", b"v"]


# AutoMQ 754: the end of what was read was counted from the segment's start, so the search for aborted transactions
# ended too early in all segments but the first.
def test_known_bug_40_aborted_transactions_are_listed_from_every_offset_of_every_segment(scene: Clients) -> None:
    scene.topic("s", segment_bytes=300)
    pair = scene.init()
    expected = []
    for number in range(12):
        value = b"%d" % number
        commit = number % 3 == 0
        assert scene.produce(pair, 0, value, topic="s") is E.NONE
        pair = scene.end(pair, commit=commit)
        if commit:
            expected.append((2 * number, value))
    log = scene.partition("s").log
    assert len(log.segments) > 4
    for start in range(log.log_end_offset):
        read, offset = [], start
        while offset < log.log_end_offset:
            data = scene.fetch(offset, committed=True, topic="s")
            read += consumed(data, offset)
            segment_ends = [segment.base_offset for segment in log.segments if segment.base_offset > offset]
            offset = min(segment_ends, default=log.log_end_offset)
        assert read == [value for at, value in expected if at >= start]


# Redpanda 7819: records came from one tier, the list of aborted transactions from another that did not have them all.
# There is no tiered storage here; the tiers are memory, the page cache and the disk behind a thread.
@pytest.mark.parametrize("tier", ["memory", "page cache", "disk"])
def test_known_bug_42_aborted_transactions_are_listed_wherever_the_records_come_from(scene: Clients, tier: str) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"aborted")
    pair = scene.abort(pair)
    scene.produce(pair, 0, b"committed")
    scene.commit(pair)
    scene.partition("t").log.roll(NOW_MS)
    if tier != "memory":
        scene = scene.restarted(killed=False)
    if tier == "disk":
        scene.disk.evict()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_bytes=1 << 30, isolation_level=1, topics=[FetchTopic(topic="t", partitions=[partition])]
    )
    reply = scene.ask(request, 12)
    assert isinstance(reply, Deferred) == (tier == "disk")
    scene.settle()
    data = answer_of(reply).responses[0].partitions[0]
    assert [each.first_offset for each in data.aborted_transactions] == [0]
    assert consumed(data) == [b"committed"]


# KoP 1856: what had been read ahead was handed to committed readers before its transaction had ended.
@pytest.mark.parametrize("version", [4, 12, 18])
def test_known_bug_43_committed_readers_see_nothing_of_an_open_transaction(scene: Clients, version: int) -> None:
    pair, other = scene.init(), scene.init(transactional_id="other")
    assert scene.read(committed=False, version=version) == []
    for sequence in range(3):
        scene.produce(pair, sequence, b"open")
        scene.produce(other, sequence, b"other", transactional_id="other")
        assert scene.read(committed=True, version=version) == []
    scene.commit(other, transactional_id="other")
    assert scene.read(committed=True, version=version) == [], "it ended, but lies behind the open one"
    scene.abort(pair)
    assert scene.read(committed=True, version=version) == [b"other"] * 3


# Seen on Kafka 4.3.1: the produce of a new client had an internal topic added to its transaction before it was refused.
def test_known_bug_54_no_internal_topic_is_added_by_a_produce(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert scene.produce((7, 0), topic=topic) is E.INVALID_TOPIC_EXCEPTION
    assert coordinator.asked == []
