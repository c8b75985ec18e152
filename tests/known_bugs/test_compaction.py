"""Bugs of other brokers in log compaction; each comment names the cause."""

from dataclasses import replace

from odradek.protocol.control_records import read_marker
from odradek.storage.key_map import ENTRY_BYTES
from tests.support.compaction_scene import COMPACT, CompactedLog
from tests.support.fake_disk import Fault


# The cleaner forgot open transactions between groups of segments, and took the marker too early.
def test_known_bug_20_a_transaction_may_span_segments_and_groups_of_a_pass() -> None:
    log = CompactedLog(replace(COMPACT, segment_bytes=100))  # every segment is a group of its own
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


# A full key map ended the pass between aborted records and their marker; the records became committed ones.
def test_known_bug_21_a_pass_that_ends_within_a_transaction_keeps_it_aborted() -> None:
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


# Markers were looked up in the map of keys like records.
def test_known_bug_22_keys_equal_to_a_markers_key_remove_no_marker() -> None:
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


# Control batches were deduplicated by key, which left one COMMIT per log.
def test_known_bug_24_each_transaction_keeps_its_own_marker() -> None:
    log = CompactedLog()
    for number in range(5):
        log.append((f"k{number}", "v"), producer_id=number, transactional=True)
        log.end_txn(number, commit=number % 2 == 0)
    log.append(("end", "1"))
    log.roll()
    log.clean()
    assert [header.base_offset for header in log.control_batches()] == [1, 3, 5, 7, 9]


# Kafka keeps every emptied control batch with the epoch of an active producer; here it is the newest of them.
def test_known_bug_57_empty_control_batches_do_not_pile_up() -> None:
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


# KAFKA-20036: when a cleaned segment overflowed, its batches were read a second time, with what was known of aborted
# transactions used up by the first; aborted records came out as committed ones.
def test_known_bug_23_a_pass_that_begins_again_knows_the_aborted_transactions_again() -> None:
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
        cleaner.learn()
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
