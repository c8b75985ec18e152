"""Tests which records are removed, and which must be kept, when logs with transactions and idempotent producers are
compacted.

Rules: docs/spec/transactions.md#s7; scenarios: #s8-9.
"""

from dataclasses import replace
from random import Random

import pytest

from odradek.files.indexes import AbortedTxn
from odradek.protocol.compression import Compression
from odradek.protocol.control_records import read_marker
from odradek.storage.key_map import ENTRY_BYTES
from tests.support.compaction_scene import COMPACT, DELETE_RETENTION_MS, CompactedLog
from tests.support.fake_disk import Fault
from tests.support.log_builder import NOW_MS


def test_committed_records_are_cleaned_like_any_others() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.end_txn(7, commit=True)
    log.append(("a", "2"))
    log.roll()
    log.clean()
    assert log.values() == {"a": "2"}


def test_scenario_135_aborted_records_go_in_the_first_pass_and_are_never_the_latest() -> None:
    log = CompactedLog()
    log.append(("a", "1"))
    log.append(("a", "aborted"), ("b", "aborted"), producer_id=7, transactional=True)
    log.end_txn(7, commit=False)
    log.append(("c", "1"))
    log.roll()
    log.clean()
    assert log.values() == {"a": "1", "c": "1"}


def test_scenario_131_an_abort_marker_goes_step_by_step_and_last_of_all_when_its_producer_is_forgotten() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, epoch=3, transactional=True)
    log.end_txn(7, commit=False, epoch=4)
    log.append(("b", "1"))
    log.roll()
    log.clean()
    assert log.values() == {"b": "1"}
    (marker,) = log.control_batches()
    assert (marker.record_count, marker.delete_horizon_ms) == (1, None)
    log.clean_later(1)
    (marker,) = log.control_batches()
    assert (marker.record_count, marker.delete_horizon_ms) == (1, log.now_ms + DELETE_RETENTION_MS)
    log.clean_later()
    (marker,) = log.control_batches()
    assert (marker.record_count, marker.producer_epoch) == (0, 4)
    log.log.expire_producers(log.now_ms + log.config.producer_id_expiration_ms)
    log.clean_later(0)
    assert log.control_batches() == []


def test_scenario_132_a_marker_goes_two_passes_after_its_records() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.end_txn(7, commit=True)
    log.append(("a", "2"), producer_id=7, sequence=1)  # The producer's state no longer depends on the marker.
    log.append(("b", "1"))
    log.roll()
    log.clean()
    assert len(log.control_batches()) == 1
    assert log.control_batches()[0].delete_horizon_ms is None, "its record was still met in this pass"
    log.clean_later(1)
    (marker,) = log.control_batches()
    assert marker.delete_horizon_ms == log.now_ms + DELETE_RETENTION_MS
    assert marker.size_bytes in (79, 80)
    log.clean_later(DELETE_RETENTION_MS - 1)
    assert len(log.control_batches()) == 1
    log.clean_later(1)
    assert log.control_batches() == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_of_an_empty_transaction_gets_its_horizon_in_the_first_pass(commit: bool) -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.end_txn(7, commit=commit)
    log.end_txn(7, commit=commit)
    log.append(("end", "1"), producer_id=7, sequence=1)
    log.roll()
    log.clean()
    of_records, of_nothing = log.control_batches()
    assert not of_records.has_delete_horizon
    assert of_nothing.delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS


def test_an_abort_marker_stays_indexed_while_readers_may_need_it() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.end_txn(7, commit=False)
    log.append(("b", "1"), producer_id=7, sequence=1)
    log.append(("c", "1"))
    log.roll()
    log.clean()
    assert log.log.reader.aborted_transactions(0, 10) == [(7, 0)], "records of it were met in this pass"
    (indexed,) = log.log.segments[0].txn_index.entries()
    assert indexed == AbortedTxn(7, 0, 1, 2)
    log.clean_later(1)
    assert log.log.reader.aborted_transactions(0, 10) == [], "none is left that it could tell anything about"


def test_scenario_134_the_last_batch_of_an_active_producer_is_kept_for_its_sequence() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7)
    log.append(("a", "2"))
    log.append(("b", "1"))
    log.roll()
    log.clean()
    first = log.headers()[0]
    assert (first.producer_id, first.base_sequence, first.record_count, first.size_bytes) == (7, 0, 0, 61)
    assert first.last_offset == 0
    log.log.expire_producers(log.now_ms + log.config.producer_id_expiration_ms)
    log.clean_later(0)
    assert [header.producer_id for header in log.headers()] == [-1, -1]


def test_scenario_134_the_sequence_is_known_again_after_a_restart_without_snapshot() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"), producer_id=7)
    log.append(("a", "3"))
    log.append(("b", "1"))
    log.roll()
    log.clean()
    entry = log.reopen().log.producer(7)
    assert entry is not None
    assert entry.last_sequence == 1


def test_an_emptied_marker_ends_what_a_snapshot_from_before_it_says_is_open() -> None:
    log = CompactedLog(replace(COMPACT, segment_bytes=300))
    log.append(("z", "x" * 200))  # This record makes the segment too long to be merged.
    log.append(("a", "1"), producer_id=7, epoch=3, transactional=True)
    log.roll()
    log.end_txn(7, commit=False, epoch=4)
    log.append(("b", "x" * 150))
    log.sync()
    log.checkpoint()
    log.roll()
    log.clean()
    log.clean_later()
    log.clean_later()
    (marker,) = log.control_batches()
    assert marker.record_count == 0
    after = log.reopen().log
    assert after.last_stable_offset == after.log_end_offset == 4


def test_the_last_marker_of_an_active_producer_is_kept_for_its_epoch() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, epoch=3, transactional=True)
    log.end_txn(7, commit=True, epoch=4)
    log.append(("a", "2"))
    log.roll()
    log.clean()
    log.clean_later()
    log.clean_later()
    (marker,) = log.control_batches()
    assert (marker.producer_epoch, marker.record_count, marker.size_bytes) == (4, 0, 61)
    assert not marker.has_delete_horizon
    log.log.expire_producers(log.now_ms + log.config.producer_id_expiration_ms)
    log.clean_later(0)
    assert log.control_batches() == []


# --- Random histories.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_readers_see_the_same_table_however_often_it_is_cleaned(seed: int) -> None:
    """The expected table consists of the records of committed transactions in offset order."""
    rng = Random(seed)
    log = CompactedLog(replace(COMPACT, segment_bytes=rng.choice((200, 1000, 10**9))))
    log.key_map_bytes = rng.choice((3, 10, 10_000)) * ENTRY_BYTES
    history: dict[int, tuple[str, str | None]] = {}  # committed records, by offset
    pending: dict[int, dict[int, tuple[str, str | None]]] = {}  # pending records, by producer id and offset
    sequences = dict.fromkeys(range(3), 0)

    def write(step: int, producer: int | None) -> dict[int, tuple[str, str | None]]:
        records = [
            (f"k{rng.randrange(12)}", rng.choice((None, f"{step}.{place}"))) for place in range(rng.randint(1, 4))
        ]
        codec = rng.choice(list(Compression))
        if producer is None:
            offset = log.append(*records, compression=codec)
        else:
            offset = log.append(
                *records,
                producer_id=producer,
                sequence=sequences[producer],
                transactional=True,
                compression=codec,
            )
            sequences[producer] += len(records)
        return dict(enumerate(records, offset))

    def end(producer: int, *, commit: bool) -> None:
        log.end_txn(producer, commit=commit)
        written = pending.pop(producer)
        if commit:
            history.update(written)

    for step in range(150):
        match rng.randrange(12):
            case 0:
                log.roll()
            case 1:
                log.roll()
                log.clean()
            case 2:
                log.now_ms += rng.choice((1, DELETE_RETENTION_MS))
            case 3 | 4 | 5:
                if pending:
                    end(rng.choice(list(pending)), commit=rng.random() < 0.5)
            case 6 | 7:
                history.update(write(step, None))
            case _:
                producer = rng.randrange(3)
                pending.setdefault(producer, {}).update(write(step, producer))
    for producer in list(pending):
        end(producer, commit=False)
    table = dict(history[offset] for offset in sorted(history))
    expected = {key: value for key, value in table.items() if value is not None}
    assert log.committed_values() == expected
    log.roll()
    for _ in range(60):
        log.clean()
    assert log.cleaned_to == log.log.log_end_offset
    again = log.reopen()
    assert again.committed_values() == expected
    assert again.log.log_end_offset == log.log.log_end_offset
    keys = [record.key for record in again.records()]
    assert len(keys) == len(set(keys)), "each key is left once"


# Another broker's cleaner forgot open transactions between groups of segments, and removed the marker too early.
@pytest.mark.known_bug(20, "another broker")
def test_a_transaction_may_span_segments_and_groups_of_a_pass() -> None:
    log = CompactedLog(replace(COMPACT, segment_bytes=100))  # Every segment is a separate group.
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.roll()
    log.append(("filler", "x"))
    log.roll()
    log.end_txn(7, commit=True)
    log.roll()
    log.append(("b", "1"), producer_id=7, sequence=1)
    log.roll()
    log.clean()
    assert len(log.log.segments) > 3
    assert log.control_batches()[0].delete_horizon_ms is None, "a record of its transaction was met in this pass"
    assert log.values()["a"] == "1"


# In another broker, a full key map ended the pass between aborted records and their marker, so that the records became
# committed.
@pytest.mark.known_bug(21, "another broker")
def test_a_pass_that_ends_within_a_transaction_keeps_it_aborted() -> None:
    log = CompactedLog()
    log.append(("a", "good"))
    log.append(("x", "1"), ("y", "1"))
    log.append(("a", "aborted"), producer_id=7, transactional=True)
    log.append(*[(f"k{number}", "v") for number in range(10)])
    log.end_txn(7, commit=False)
    log.append(("end", "1"), producer_id=7, sequence=1)
    log.roll()
    log.key_map_bytes = 5 * ENTRY_BYTES
    log.clean()
    assert log.cleaned_to is not None
    assert log.cleaned_to < 14, "it ended before the marker"
    assert log.committed_values()["a"] == "good"
    while log.cleaned_to != log.log.log_end_offset:
        log.clean()
    assert log.values()["a"] == "good"


# Another broker's cleaner looked up markers in the key map, as if they were ordinary records.
@pytest.mark.known_bug(22, "another broker")
def test_keys_equal_to_a_markers_key_remove_no_marker() -> None:
    log = CompactedLog()
    log.append(("a", "1"), producer_id=7, transactional=True)
    log.end_txn(7, commit=True)
    log.append((b"\0\0\0\1", "a key that looks like COMMIT"), (b"\0\0\0\0", "and like ABORT"))
    log.append(("end", "1"), producer_id=7, sequence=1)
    log.roll()
    log.clean()
    ((header, batch),) = [(header, batch) for header, batch in log.batches() if header.is_control]
    marker = read_marker(batch, header=header)
    assert marker is not None
    assert (marker.offset, marker.is_commit) == (1, True)


# Another broker's cleaner deduplicated control batches by their keys, so that each log kept only one COMMIT.
@pytest.mark.known_bug(24, "another broker")
def test_each_transaction_keeps_its_own_marker() -> None:
    log = CompactedLog()
    for number in range(5):
        log.append((f"k{number}", "v"), producer_id=number, transactional=True)
        log.end_txn(number, commit=number % 2 == 0)
    log.append(("end", "1"))
    log.roll()
    log.clean()
    assert [header.base_offset for header in log.control_batches()] == [1, 3, 5, 7, 9]


# Kafka keeps every emptied control batch that has an active producer's epoch. Odradek keeps only the newest of them.
@pytest.mark.known_bug(57, "another broker")
def test_empty_control_batches_do_not_pile_up() -> None:
    log = CompactedLog()
    for _ in range(50):
        log.end_txn(7, commit=False, epoch=5)
    log.append(("end", "1"))
    log.roll()
    log.clean()
    assert len(log.control_batches()) == 50, "each has its delete horizon first"
    log.clean_later()
    (kept,) = log.control_batches()
    assert (kept.base_offset, kept.producer_epoch, kept.record_count) == (49, 5, 0)
    entry = log.reopen().log.producer(7)
    assert entry is None or entry.producer_epoch == 5


# When a cleaned segment overflowed, Kafka's cleaner read its batches again, although the first pass had used up the
# list of aborted transactions, so aborted records became committed.
@pytest.mark.known_bug(23, "KAFKA-20036")
def test_a_pass_that_begins_again_knows_the_aborted_transactions_again() -> None:
    call, has_failed = 0, True
    while has_failed:
        call += 1
        log = CompactedLog()
        for producer_id, commit in ((7, False), (8, True), (9, False)):
            log.append(
                ("a", f"of {producer_id}"), (f"k{producer_id}", "v"), producer_id=producer_id, transactional=True
            )
            log.end_txn(producer_id, commit=commit)
            log.roll()
        cleaner = log.start_pass()
        cleaner.build_offset_map()
        log.disk.fail(call, Fault.ENOSPC)
        try:
            cleaner.clean_next()
        except OSError:
            log.disk.heal()
            log.clean()
        else:
            has_failed = False
            continue
        assert log.committed_values() == {"a": "of 8", "k8": "v"}
        assert log.values() == {"a": "of 8", "k8": "v"}
    assert call > 3
