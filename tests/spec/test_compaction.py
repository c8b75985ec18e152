"""Tests which records survive log compaction, when other records are removed, and which records must never be lost.

Rules: docs/spec/transactions.md#s7; scenarios: #s8-9.
"""

from dataclasses import replace

import pytest

from odradek.protocol.batch_header import crc_ok
from odradek.protocol.compression import Compression
from odradek.storage.cleaner import UNCLEANABLE, cleanable_range, dirtiest
from odradek.storage.key_map import ENTRY_BYTES
from tests.support.compaction_scene import COMPACT, DELETE_RETENTION_MS, CompactedLog
from tests.support.log_builder import NOW_MS

# --- Keys.


def test_only_the_latest_record_of_each_key_survives() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"), ("a", "2"))
    log.append(("b", "2"), ("c", "1"))
    log.roll()
    log.clean()
    assert log.offsets() == [2, 3, 4]
    assert log.values() == {"a": "2", "b": "2", "c": "1"}


def test_the_active_segment_is_not_touched_and_its_keys_do_not_count() -> None:
    log = CompactedLog()
    log.append(("a", "1"))
    log.roll()
    log.append(("a", "2"), ("a", "3"))
    log.clean()
    assert log.offsets() == [0, 1, 2]


def test_a_record_without_key_is_dropped() -> None:
    log = CompactedLog()
    log.append((None, "1"), ("a", "1"), (None, "2"))
    log.append(("b", "1"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 3]


def test_an_empty_key_is_a_key() -> None:
    log = CompactedLog()
    log.append(("", "1"), ("", "2"))
    log.append(("end", "1"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2]


def test_long_keys_that_differ_at_the_end_are_different_keys() -> None:
    log = CompactedLog()
    log.append(("k" * 100 + "1", "x"), ("k" * 100 + "2", "x"), ("k" * 100 + "1", "y"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2]


def test_records_cleaned_before_give_way_to_later_ones() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"))
    log.roll()
    log.clean()
    log.append(("a", "2"))
    log.roll()
    log.clean()
    assert log.values() == {"b": "1", "a": "2"}
    assert log.offsets() == [1, 2]


def test_offsets_and_sequences_of_removed_records_stay_counted() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("c", "1"), producer_id=7)
    log.append(("c", "2"), ("d", "1"), producer_id=7, sequence=5)
    log.roll()
    log.clean()
    first, second = log.headers()
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 4, 2)
    assert (first.base_sequence, first.last_sequence) == (0, 4)
    assert (second.base_offset, second.record_count) == (5, 2)


def test_a_batch_without_removed_records_is_not_rewritten() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"), compression=Compression.GZIP)
    before = bytes(log.batches()[0][1])
    log.append(("c", "1"))
    log.roll()
    log.clean()
    assert bytes(log.batches()[0][1]) == before


@pytest.mark.parametrize("codec", Compression)
def test_rewritten_batches_keep_codec_and_timestamps_and_have_a_correct_crc(codec: Compression) -> None:
    log = CompactedLog()
    log.append(
        ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), compression=codec, timestamps=[NOW_MS + n for n in (5, 0, 3, 1)]
    )
    log.append(("b", "2"))
    log.roll()
    log.clean()
    header, batch = log.batches()[0]
    assert header.compression is codec
    assert crc_ok(batch, 0, len(batch))
    assert [(record.offset, record.timestamp) for record in log.records()][:2] == [(2, NOW_MS + 3), (3, NOW_MS + 1)]
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 3, NOW_MS + 3)


def test_log_append_time_stays_the_time_of_every_record() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"), ("t", None), log_append_time_ms=NOW_MS + 9)
    log.append(("b", "1"))
    log.roll()
    log.clean()
    header = log.headers()[0]
    assert header.is_log_append_time
    assert [record.timestamp for record in log.records()][:2] == [NOW_MS + 9, NOW_MS + 9]


# --- Tombstones.


def test_a_tombstone_stays_until_its_horizon_and_takes_the_value_at_once() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"))
    log.append(("a", None))
    log.append(("c", "1"))
    log.roll()
    log.clean()
    assert log.values() == {"b": "1", "a": None, "c": "1"}
    horizons = [header.delete_horizon_ms for header in log.headers()]
    assert horizons == [None, NOW_MS + DELETE_RETENTION_MS, None]

    log.clean_later(DELETE_RETENTION_MS - 1)
    assert log.values() == {"b": "1", "a": None, "c": "1"}
    assert log.headers()[1].delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS, "set once"

    log.clean_later(1)
    assert log.values() == {"b": "1", "c": "1"}


def test_the_delete_horizon_replaces_the_base_timestamp_and_records_keep_their_timestamps() -> None:
    log = CompactedLog()
    log.append(("a", None), ("b", "1"), timestamps=[NOW_MS - 50, NOW_MS - 20])
    log.append(("c", "1"))
    log.roll()
    log.clean()
    header, batch = log.batches()[0]
    assert header.base_timestamp == NOW_MS + DELETE_RETENTION_MS
    assert header.max_timestamp == NOW_MS - 20
    assert [record.timestamp for record in log.records()][:2] == [NOW_MS - 50, NOW_MS - 20]
    assert crc_ok(batch, 0, len(batch))


def test_a_tombstone_that_is_not_the_latest_goes_like_any_record() -> None:
    log = CompactedLog()
    log.append(("a", None))
    log.append(("a", "1"))
    log.roll()
    log.clean()
    assert log.values() == {"a": "1"}


# --- The end of a pass.


def test_scenario_133_an_open_transaction_holds_back_everything_behind_it() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"))
    log.append(("b", "1"), producer_id=7, transactional=True)
    log.append(("b", "2"), ("b", "3"))
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2, 3, 4], "what lies below the last stable offset is cleaned, the rest is as it was"
    assert log.cleaned_to == 2


def test_scenario_133_records_behind_an_open_transaction_do_not_count_as_latest() -> None:
    log = CompactedLog()
    log.append(("a", "committed"))
    log.append(("b", "1"), producer_id=7, transactional=True)
    log.append(("a", "open"), producer_id=7, sequence=1, transactional=True)
    log.roll()
    log.clean()
    assert log.records()[0].value == b"committed"
    log.end_txn(7, commit=False)
    log.roll()
    log.clean()
    assert log.values()["a"] == "committed"


def test_segments_younger_than_the_minimum_lag_wait() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    log = CompactedLog(config)
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    log.now_ms += 900
    log.append(("a", "3"), ("a", "4"))
    log.roll()
    log.now_ms += 900
    log.clean()
    assert log.offsets() == [1, 2, 3]
    log.now_ms += 900
    log.clean()
    assert log.offsets() == [3]


def test_the_last_offset_of_the_cleaned_range_is_kept_as_an_empty_batch() -> None:
    log = CompactedLog()
    log.append(("a", "1"))
    log.append((None, "no key"))
    log.roll()
    log.clean()
    assert [(header.last_offset, header.record_count) for header in log.headers()] == [(0, 1), (1, 0)]
    assert log.reopen().log.log_end_offset == 2


def test_a_full_key_map_ends_the_pass_and_the_next_one_goes_on_from_there() -> None:
    log = CompactedLog()
    for _ in range(3):
        for key in range(20):
            log.append((f"key-{key}", "x"))
    log.roll()
    log.key_map_bytes = 7 * ENTRY_BYTES
    cleaned_to = []
    while log.cleaned_to != log.log.log_end_offset:
        log.clean()
        cleaned_to.append(log.cleaned_to)
    assert cleaned_to[0] == 7
    assert log.offsets() == list(range(40, 60))


def test_a_pass_with_a_full_map_continues_past_records_without_keys() -> None:
    log = CompactedLog()
    log.append(("a", "1"))
    log.append(("b", "aborted"), producer_id=7, transactional=True)
    log.end_txn(7, commit=False)
    log.append(("c", "1"))
    log.roll()
    log.key_map_bytes = ENTRY_BYTES
    log.clean()
    assert log.cleaned_to == 3


def test_cleaning_again_changes_nothing() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("b", "1"), ("a", "2"))
    log.append(("b", None), producer_id=7)
    log.append(("c", "1"), producer_id=7, sequence=1, transactional=True)
    log.end_txn(7, commit=True)
    log.roll()
    log.clean()
    before = [bytes(batch) for _, batch in log.batches()]
    log.clean_later(1)
    assert [bytes(batch) for _, batch in log.batches()] == before


# --- Segments.


def test_small_segments_become_one() -> None:
    log = CompactedLog()
    for number in range(10):
        log.append((f"k{number % 3}", "v"))
        log.roll()
    log.clean()
    assert [segment.base_offset for segment in log.log.segments] == [0, 10]
    assert log.offsets() == [7, 8, 9]


def test_segments_do_not_grow_beyond_segment_bytes() -> None:
    log = CompactedLog(replace(COMPACT, segment_bytes=400))
    for number in range(10):
        log.append((f"k{number}", "v" * 50))
        log.roll()
    log.clean()
    assert all(segment.size_bytes <= 400 for segment in log.log.segments)
    assert len(log.log.segments) < 10
    assert log.offsets() == list(range(10))


def test_offsets_and_timestamps_are_found_in_a_cleaned_segment() -> None:
    log = CompactedLog(replace(COMPACT, index_interval_bytes=100))
    for number in range(200):
        log.append((f"k{number % 50}", "v"), timestamps=[NOW_MS + number])
    log.roll()
    log.clean()
    assert log.offsets() == list(range(150, 200))
    found = log.log.reader.offset_for_timestamp(NOW_MS + 170)
    assert found is not None
    assert (found.offset, found.timestamp) == (170, NOW_MS + 170)
    result = log.log.reader.read(10, max_bytes=100)
    assert result.chunks[0][7] == 150


def test_a_log_goes_on_while_it_is_cleaned() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    cleaner = log.start_pass()
    cleaner.build_offset_map()
    log.append(("b", "1"))
    log.roll()
    replacement = cleaner.clean_next()
    log.append(("c", "1"))
    assert replacement is not None
    assert log.log.replace_segments(replacement)
    replacement.finish()
    assert log.offsets() == [1, 2, 3]


def test_a_segment_deleted_meanwhile_is_not_brought_back() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    log.append(("b", "1"))
    cleaner = log.start_pass()
    cleaner.build_offset_map()
    replacement = cleaner.clean_next()
    assert replacement is not None
    log.log.delete_records_before(2)
    removal = log.log.retention(log.now_ms)
    assert removal is not None
    removal.rename()
    assert not log.log.replace_segments(replacement)
    replacement.discard()
    assert log.offsets() == [2]
    assert log.reopen().offsets() == [2]


def test_damage_is_reported_and_not_vouched_for_with_a_new_crc() -> None:
    log = CompactedLog()
    log.append(("a", "1"), ("a", "2"))
    log.append(("b", "1"))
    log.roll()
    segment = log.log.segments[0]
    segment.file.write_at([b"\xff"], 70)
    with pytest.raises(UNCLEANABLE):
        log.clean()


# --- The choice of the next log.


def test_the_log_with_the_largest_dirty_ratio_comes_first() -> None:
    logs = {}
    for name, clean, dirty in (("tidy", 10, 1), ("filthy", 1, 10), ("even", 5, 5)):
        log = CompactedLog()
        for _ in range(clean):
            log.append(("k", "v"))
        log.roll()
        log.cleaned_to = log.log.log_end_offset
        for _ in range(dirty):
            log.append(("k", "v"))
        log.roll()
        logs[name] = log.found()
    assert dirtiest(logs) == "filthy"
    assert logs["even"].dirty_ratio == 0.5


def test_a_log_below_the_ratio_waits_unless_its_records_are_overdue() -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1000)
    log = CompactedLog(config)
    log.append(("k", "v"))
    log.roll()
    log.cleaned_to = 1
    log.append(("k", "v"))
    log.roll()
    assert not log.found().wants_cleaning
    log.now_ms += 1001
    assert log.found().wants_cleaning


def test_a_log_without_dirty_segments_needs_no_cleaning() -> None:
    log = CompactedLog()
    log.append(("k", "v"))
    assert not log.found().wants_cleaning, "the active segment does not count"
    log.roll()
    assert log.found().wants_cleaning
    log.clean()
    assert not log.found().wants_cleaning


@pytest.mark.parametrize("cleaned_to", [None, -1, 3, 10**9])
def test_a_checkpoint_outside_of_the_log_means_from_the_start(cleaned_to: int | None) -> None:
    log = CompactedLog()
    for _ in range(10):
        log.append(("k", "v"))
    log.roll()
    log.log.delete_records_before(5)
    found = cleanable_range(
        log.log.segments,
        log.config,
        cleaned_to=cleaned_to,
        log_start_offset=5,
        log_end_offset=10,
        last_stable_offset=10,
        now_ms=NOW_MS,
    )
    assert found.first_dirty_offset == 5
