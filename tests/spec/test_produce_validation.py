"""Tests the broker's answers to produced records, for each row of tests/support/produced.py.

The conformance suite sends the same rows to Apache Kafka and compares its answers and the stored records.
"""

import gc
import tracemalloc
from dataclasses import replace

import pytest

from odradek.protocol.batch_header import crc_ok, pack_batch, read_batch_header
from odradek.protocol.compression import Compression, compress
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.storage.log_config import LogConfig
from odradek.storage.validation import BatchRules, RefusedRecords, check_produced, is_first_batch_transactional
from tests.support.batches import NOW_MS, changed, good_batch
from tests.support.produced import CODECS, ProduceCase, everything

TRANSACTIONAL_BIT = 0x10
CONFIG_TYPES = {"message.timestamp.type": str, "compression.type": str}


def rules_for(row: ProduceCase) -> BatchRules:
    settings: dict[str, object] = {}
    for name, value in row.topic.items():
        python_name = name.replace(".", "_")
        if name == "cleanup.policy":
            settings[python_name] = frozenset(value.split(","))
        else:
            settings[python_name] = CONFIG_TYPES.get(name, int)(value)
    return BatchRules.of("TOPIC", 0, LogConfig(**settings))  # type: ignore[arg-type]  # a table of settings


@pytest.mark.parametrize("row", everything(NOW_MS), ids=str)
def test_produced_records_are_accepted_or_refused_as_the_row_says(row: ProduceCase) -> None:
    """The rows include M1 to M3, M6 and M7 of docs/spec/kafka-4.4.md#s4-3, and O5 of #s5-5."""
    rules = rules_for(row)
    if row.is_whole_request:
        with pytest.raises(KafkaError) as whole:
            is_first_batch_transactional(row.records)
        assert (whole.value.code, whole.value.message) == (row.code, row.message)
        return
    is_first_batch_transactional(row.records)
    if row.code is not ErrorCode.NONE:
        with pytest.raises(RefusedRecords) as refused:
            check_produced(bytearray(row.records), rules, NOW_MS, row.version)
        assert refused.value.code is row.code, refused.value.reason
        assert refused.value.record_errors == row.record_errors
        assert refused.value.message == row.message
        return
    accepted = check_produced(bytearray(row.records), rules, NOW_MS, row.version)
    header = accepted.header
    assert header == read_batch_header(accepted.batch)
    assert header.size_bytes == len(accepted.batch)
    assert crc_ok(accepted.batch, 0, len(accepted.batch))
    assert header.base_offset == 0
    sent, stored = list(records_of(row.records)), list(records_of(accepted.batch))
    assert [(record.key, record.value, record.headers) for record in stored] == [
        (record.key, record.value, record.headers) for record in sent
    ]
    assert [record.offset for record in stored] == list(range(len(sent)))
    assert header.max_timestamp == max(-1, *(record.timestamp for record in stored))
    if rules.compression is not None:
        assert header.compression is rules.compression
    if rules.is_log_append_time:
        assert accepted.log_append_time_ms == NOW_MS
        assert {record.timestamp for record in stored} == {NOW_MS}
    else:
        assert accepted.log_append_time_ms is None
        assert not header.is_log_append_time


def test_a_batch_that_needs_no_change_is_not_copied() -> None:
    frame = bytearray(b"before") + good_batch() + b"behind"
    view = memoryview(frame)[6:-6]
    accepted = check_produced(view, BatchRules.of("t", 0, LogConfig()), NOW_MS, 8)
    accepted.batch[12:16] = b"\0\0\0\x05"
    assert frame[6 + 12 : 6 + 16] == b"\0\0\0\x05"


def test_a_wrong_largest_timestamp_is_corrected() -> None:
    wrong = bytearray(next(bytes(row.records) for row in everything(NOW_MS) if "by the header alone" in row.name))
    accepted = check_produced(wrong, BatchRules.of("t", 0, LogConfig()), NOW_MS, 8)
    assert accepted.header.max_timestamp == NOW_MS


def test_the_error_for_refused_records_holds_no_decompressed_records() -> None:
    """Checks that the exception for refused records holds no decompressed records, because the broker keeps it until
    the response has been sent. In a reference cycle, it would be kept until the next garbage collection."""
    opened = bytearray(4 * 1024 * 1024)  # The header describes records other than these bytes.
    batch = pack_batch(
        replace(read_batch_header(good_batch()), attributes=Compression.GZIP.value), compress(Compression.GZIP, opened)
    )
    kept: list[Exception] = []
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(RefusedRecords) as refused:
                check_produced(bytearray(batch), BatchRules.of("t", 0, LogConfig()), NOW_MS, 8)
            kept.append(refused.value)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held_bytes < len(opened)


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_is_decompressed_only_up_to_the_limit(codec: Compression) -> None:
    limit_bytes = 1_000_000
    bomb = build_batch([NewRecord(None, bytes(50_000_000), NOW_MS)], compression=codec)
    rules = BatchRules.of("t", 0, LogConfig(max_decompressed_message_bytes=limit_bytes, max_message_bytes=10**8))
    tracemalloc.start()
    try:
        with pytest.raises(RefusedRecords) as refused:
            check_produced(bomb, rules, NOW_MS, 9)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert peak_bytes < 4 * limit_bytes


# Kafka appends a transactional batch whose producer id is -1, although no marker can ever end its transaction.
@pytest.mark.known_bug(56, "Kafka")
def test_a_transactional_batch_without_a_producer_id_is_refused() -> None:
    rules = BatchRules.of("t", 0, LogConfig())
    batch = changed(good_batch(), attributes=TRANSACTIONAL_BIT)
    with pytest.raises(RefusedRecords) as refused:
        check_produced(batch, rules, NOW_MS, 9)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with_producer = changed(batch, producer_id=5, producer_epoch=0, base_sequence=0)
    assert check_produced(with_producer, rules, NOW_MS, 9).header.is_transactional
