"""Tests transactions as readers see them. The readers use Fetch, ListOffsets and DescribeProducers at every version.

Rules: docs/spec/transactions.md#s2-9, #s4-9, #s4-12; scenarios: #s8-6.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.runtime.waiting import Deferred
from odradek.broker.runtime.workers import JobResult
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import DeleteRecordsResponse
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.storage.cleaner import CleanerPass, cleanable_range
from tests.support.broker_scene import NOW_MS, answer_of
from tests.support.transactional_clients import TV1, Clients, batch_of, consumed

E = ErrorCode
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def scene() -> Clients:
    return Clients()


def delete_records(scene: Clients, before: int) -> ErrorCode:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])]
    )
    answer = scene.answer(request, 2, DeleteRecordsResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


# --- Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_committed_readers_get_committed_records_at_every_version(scene: Clients, version: int) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"committed")
    pair = scene.commit(pair)
    scene.produce(pair, 0, b"aborted")
    pair = scene.abort(pair)
    scene.produce((50, 0), 0, b"plain", transactional=False)
    scene.produce(pair, 0, b"open")
    assert scene.read(committed=True, version=version) == [b"committed", b"plain"]
    assert scene.read(committed=False, version=version) == [b"committed", b"aborted", b"plain", b"open"]


@pytest.mark.parametrize("version", range(4, 19))
def test_the_list_of_aborted_transactions_is_empty_for_committed_readers_and_null_for_others(
    scene: Clients, version: int
) -> None:
    scene.produce((50, 0), 0, b"plain", transactional=False)
    assert scene.fetch(committed=True, version=version).aborted_transactions == []
    assert scene.fetch(committed=False, version=version).aborted_transactions is None


def test_both_isolation_levels_get_the_last_stable_offset(scene: Clients) -> None:
    scene.produce((50, 0), 0, b"plain", transactional=False)
    scene.produce(scene.init())
    for committed in (True, False):
        data = scene.fetch(committed=committed)
        assert (data.last_stable_offset, data.high_watermark) == (1, 2)


def test_a_committed_reader_at_the_last_stable_offset_is_not_out_of_range(scene: Clients) -> None:
    scene.produce(scene.init(), 0, b"a", b"b")
    for offset in (0, 1, 2):
        data = scene.fetch(offset, committed=True)
        assert (data.error_code, consumed(data)) == (0, [])


def waiting_fetch(scene: Clients, min_bytes: int) -> Any:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=1 << 30,
        isolation_level=1,
        topics=[topic],
    )
    return scene.ask(request, 12)


def test_a_waiting_committed_reader_gets_the_transaction_when_its_marker_is_written(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"x" * 1000)
    reply = waiting_fetch(scene, min_bytes=1000)
    scene.commit(pair)
    scene.settle()
    assert consumed(reply.outcome().responses[0].partitions[0]) == [b"x" * 1000]


def test_a_marker_that_releases_fewer_than_min_bytes_does_not_end_the_wait(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"x" * 1000)
    reply = waiting_fetch(scene, min_bytes=100_000)
    scene.commit(pair)
    scene.settle()
    assert not reply.is_done
    scene.timers.advance(500)
    assert consumed(reply.outcome().responses[0].partitions[0]) == [b"x" * 1000]


def test_records_read_from_the_disk_are_read_again_after_a_concurrent_compaction(scene: Clients) -> None:
    """Checks that a read never combines records from before a compaction with aborted transactions from after it."""
    scene.topic("c", cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    pair = scene.init()
    scene.produce(pair, 0, b"aborted", topic="c")
    pair = scene.abort(pair)
    scene.produce(pair, 0, b"committed", topic="c")
    scene.commit(pair)
    scene.partition("c").log.roll(NOW_MS)
    scene.disk.evict()
    topic = FetchTopic(topic="c", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    reply = scene.ask(
        FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 30, isolation_level=1, topics=[topic]),
        12,
    )
    job, then = scene.workers.jobs.popleft()
    found = JobResult(job(), None)
    assert b"aborted" in bytes(found.result().chunks[0])
    for _ in range(2):
        clean(scene, "c")
    assert scene.partition("c").log.reader.aborted_transactions(0, 10) == []
    then(found)
    scene.settle()
    assert consumed(reply.outcome().responses[0].partitions[0]) == [b"committed"]


def clean(scene: Clients, topic: str) -> None:
    """Runs one cleaning pass over everything except the active segment."""
    log = scene.partition(topic).log
    ticket = log.start_sync()
    ticket.run()
    log.finish_sync(ticket)
    found = cleanable_range(
        log.segments,
        log.config,
        cleaned_to=None,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        now_ms=NOW_MS,
    )
    cleaner = CleanerPass(
        scene.disk,
        log.directory,
        log.segments,
        log.config,
        found,
        log.producers(),
        now_ms=NOW_MS,
        key_map_bytes=1 << 20,
    )
    cleaner.build_offset_map()
    while (replacement := cleaner.clean_next()) is not None:
        assert log.replace_segments(replacement)
        replacement.finish()
        replacement.unlink()


# --- ListOffsets


@pytest.mark.parametrize("version", range(2, 12))
def test_the_latest_offset_is_the_last_stable_one_for_committed_readers(scene: Clients, version: int) -> None:
    scene.produce((50, 0), 0, b"plain", transactional=False)
    pair = scene.init()
    scene.produce(pair)
    assert scene.latest_offset(committed=True, version=version) == 1
    assert scene.latest_offset(committed=False, version=version) == 2
    scene.abort(pair)
    assert scene.latest_offset(committed=True, version=version) == 3


def offset_for_time(scene: Clients, timestamp: int, *, committed: bool) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])],
    )
    reply = scene.ask(request, 7)
    scene.settle()
    answer: ListOffsetsResponse = reply.outcome()
    return answer.topics[0].partitions[0].offset


@pytest.mark.parametrize("timestamp", [NOW_MS, -3], ids=["by time", "largest timestamp"])
def test_a_timestamp_is_not_searched_beyond_the_last_stable_offset(scene: Clients, timestamp: int) -> None:
    pair = scene.init()
    scene.produce(pair)
    assert offset_for_time(scene, timestamp, committed=False) == 0
    assert offset_for_time(scene, timestamp, committed=True) == -1
    scene.commit(pair)
    assert offset_for_time(scene, timestamp, committed=True) == 0


# --- DescribeProducers


def test_the_state_of_a_producer_is_described_from_its_first_batch_to_its_marker(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a", b"b")
    state = scene.producers()[pair[0]]
    assert (state.producer_epoch, state.last_sequence, state.last_timestamp) == (pair[1], 1, NOW_MS)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, 0)
    following = scene.commit(pair)
    state = scene.producers()[pair[0]]
    assert (state.producer_epoch, state.last_sequence) == (following[1], -1), "a new epoch, of which nothing came yet"
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, -1)


def test_a_hanging_transaction_can_be_found_and_ended_by_hand(scene: Clients) -> None:
    scene.broker.config.transaction_partition_verification_enable = False
    scene.produce((7, 0), version=TV1)
    state = scene.producers()[7]
    assert state.current_txn_start_offset == 0
    assert scene.write_marker((7, state.producer_epoch), commit=False, coordinator_epoch=0) is E.NONE
    assert scene.producers()[7].current_txn_start_offset == -1
    assert scene.latest_offset(committed=True) == scene.latest_offset(committed=False)


# --- Open transactions, and records that may be deleted.


def test_scenario_098_deleting_the_start_of_an_open_transaction_leaves_its_marker_welcome(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a", b"b", b"c")
    assert delete_records(scene, 2) is E.NONE
    assert scene.latest_offset(committed=True) == 2
    assert scene.read_from(2, committed=False) == [b"a", b"b", b"c"][2:]
    scene.commit(pair)
    assert scene.read_from(2, committed=True) == [b"c"]
    assert scene.latest_offset(committed=True) == 4


def test_records_may_be_deleted_beyond_the_last_stable_offset(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a")
    scene.produce((50, 0), 0, b"plain", transactional=False)
    assert delete_records(scene, 2) is E.NONE
    assert scene.latest_offset(committed=True) == scene.latest_offset(committed=False) == 2
    scene.abort(pair)
    assert scene.latest_offset(committed=True) == 3


def test_retention_removes_open_transactions_but_keeps_their_producers() -> None:
    scene = Clients()
    scene.topic("r", segment_bytes=200, retention_ms=DAY_MS, segment_ms=DAY_MS * 100)
    pair = scene.init()
    for sequence in range(4):
        assert scene.produce(pair, sequence, b"x" * 80, topic="r") is E.NONE
    log = scene.partition("r").log
    removal = log.retention(NOW_MS + DAY_MS * 2)
    assert removal is not None
    assert log.log_start_offset > 0
    assert log.last_stable_offset == log.log_start_offset, "readers wait at the start"
    assert scene.producers(topic="r")[pair[0]].current_txn_start_offset == 0
    scene.commit(pair)
    assert log.last_stable_offset == log.log_end_offset


def test_retention_keeps_transactions_that_are_decided_outside() -> None:
    scene = Clients()
    scene.topic("r", segment_bytes=200, retention_ms=DAY_MS, segment_ms=DAY_MS * 100)
    assert scene.produce((50, 0), 0, b"x" * 80, topic="r", transactional=False) is E.NONE
    pair = scene.init()
    for sequence in range(4):
        assert scene.produce(pair, sequence, b"x" * 80, topic="r") is E.NONE
    log = scene.partition("r").log
    assert log.retention(NOW_MS + DAY_MS * 2, {pair[0]}) is not None
    assert log.log_start_offset == 1, "what lies before goes, and what lies behind stays"
    scene.commit(pair)
    assert log.retention(NOW_MS + DAY_MS * 2, {pair[0]}) is not None
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("killed", [True, False])
def test_an_open_transaction_holds_readers_back_after_a_restart_until_it_ends(scene: Clients, killed: bool) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"a")
    again = scene.restarted(killed=killed)
    assert again.latest_offset(committed=True) == 0
    assert again.produce(pair, 1, b"b") is E.NONE
    assert again.produce(pair, 0, b"a") is E.NONE, "a duplicate is known"
    again.commit(pair)
    assert again.read(committed=True) == [b"a", b"b"]


@pytest.mark.parametrize("killed", [True, False])
def test_scenario_097_a_producer_with_an_open_transaction_outlives_its_expiry(killed: bool) -> None:
    scene = Clients()
    pair = scene.init()
    scene.produce_answers(scene.send(batch_of(pair, timestamp_ms=NOW_MS - 3 * DAY_MS)))
    scene.partition("t").log.expire_producers(NOW_MS)
    again = scene.restarted(killed=killed)
    assert again.producers()[pair[0]].current_txn_start_offset == 0
    again.abort(pair)
    assert again.latest_offset(committed=True) == 2


def test_a_search_by_time_may_find_a_marker_as_in_kafka(scene: Clients) -> None:
    pair = scene.init()
    scene.produce(pair, 0, b"before")
    scene.clock.advance(100)
    following = scene.commit(pair)
    scene.produce(following, 0, b"behind")
    marker = (1, NOW_MS + 100)
    assert scene.offset_at(NOW_MS + 1, committed=False) == marker
    assert scene.offset_at(NOW_MS + 1, committed=True) == marker
    scene.commit(following)
    assert scene.read_from(marker[0], committed=True) == [b"behind"]


# After a restart, Redpanda computed the last stable offset only from the records that it had applied so far, so the
# offset was above records of aborted and open transactions.
@pytest.mark.known_bug(31, "redpanda 10671, 5090")
@pytest.mark.parametrize("killed", [True, False])
def test_the_first_read_after_a_restart_knows_every_transaction(scene: Clients, killed: bool) -> None:
    aborted, still_open = scene.init(transactional_id="aborted"), scene.init(transactional_id="open")
    scene.produce(aborted, 0, b"aborted", transactional_id="aborted")
    scene.produce((50, 0), 0, b"plain", transactional=False)
    scene.abort(aborted, transactional_id="aborted")
    scene.produce(still_open, 0, b"open", transactional_id="open")
    again = scene.restarted(killed=killed)
    assert again.read(committed=True) == [b"plain"]
    assert again.latest_offset(committed=True) == 3


# In Redpanda, a late abort with an older epoch ended a transaction with a newer epoch.
@pytest.mark.known_bug(32, "redpanda 3232")
@pytest.mark.parametrize(("version", "transaction_version"), [(1, 0), (2, 2)])
def test_a_late_abort_of_an_older_epoch_is_fenced(scene: Clients, version: int, transaction_version: int) -> None:
    older = scene.init()
    newer = scene.init()
    scene.produce(newer, 0, b"newer")
    code = scene.write_marker(older, commit=False, version=version, transaction_version=transaction_version)
    assert code is E.INVALID_PRODUCER_EPOCH
    scene.commit(newer)
    assert scene.read(committed=True) == [b"newer"]


# AutoMQ computed the end of the data from the start of the segment, so in all segments but the first, the search for
# aborted transactions ended too early.
@pytest.mark.known_bug(40, "AutoMQ 754")
def test_aborted_transactions_are_listed_from_every_offset_of_every_segment(scene: Clients) -> None:
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


# Redpanda took records from one storage tier and an incomplete list of aborted transactions from another. Odradek has
# no tiered storage, so this test reads from memory, from the page cache, and from the disk in a thread.
@pytest.mark.known_bug(42, "Redpanda 7819")
@pytest.mark.parametrize("tier", ["memory", "page cache", "disk"])
def test_aborted_transactions_are_listed_wherever_the_records_come_from(scene: Clients, tier: str) -> None:
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


# KoP sent read_committed readers data that had been prefetched before its transaction completed.
@pytest.mark.known_bug(43, "KoP 1856")
@pytest.mark.parametrize("version", [4, 12, 18])
def test_committed_readers_see_nothing_of_an_open_transaction(scene: Clients, version: int) -> None:
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
