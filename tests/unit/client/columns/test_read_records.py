"""Tests that the columns returned by `read_records` contain the same records that `odradek.protocol.records` returns
one at a time."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.columns import AbortedTransaction, read_records
from odradek.client.columns.headers import CorruptBatch
from odradek.protocol.batch_header import HEADER_BYTES, batches
from odradek.protocol.control_records import marker_batch
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Compression, NewRecord, build_batch, records_of
from tests.support.examples import examples
from tests.support.oracle import directories, needs_oracle, unpack

TIMESTAMPS = st.integers(0, 2**42)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
RECORDS = st.lists(
    st.builds(NewRecord, st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300), TIMESTAMPS, HEADERS),
    min_size=1,
    max_size=80,
)
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(Compression), st.none() | TIMESTAMPS, st.none() | TIMESTAMPS),
    min_size=1,
    max_size=4,
)


def log_of(*batches_of_records: Sequence[NewRecord], **options: int) -> bytes:
    """Returns consecutive batches of a log, with their offsets."""
    data, offset = bytearray(), 0
    for records in batches_of_records:
        data += build_batch(records, base_offset=offset, producer_id=options.get("producer_id", -1))
        offset += len(records)
    return bytes(data)


def some(count: int, value: bytes = b"value") -> list[NewRecord]:
    return [NewRecord(b"%d" % number, value, 1000 + number) for number in range(count)]


def one_by_one(data: bytes) -> list[dict[str, object]]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(header.is_log_append_time),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for position, header in batches(data)
        if not header.is_control
        for record in records_of(data, position)
    ]


MANY_BATCHES = log_of(*(some(1 + number % 4, b"v" * number) for number in range(60)))

MANY_RUNS = log_of(*(some(20, b"v" * (number % 5 * 30)) for number in range(50)))


@settings(max_examples=examples(60))
@given(BATCHES)
def test_columns_hold_what_is_read_record_by_record(
    content: list[tuple[list[NewRecord], Compression, int | None, int | None]],
) -> None:
    data, offset = bytearray(), 0
    for records, compression, append_time, horizon in content:
        data += build_batch(
            records,
            base_offset=offset,
            compression=compression,
            log_append_time_ms=append_time,
            delete_horizon_ms=horizon,
        )
        offset += len(records) + 3  # compaction leaves gaps
    assert read_records(data).to_pylist() == one_by_one(bytes(data))


@pytest.mark.parametrize("size", [0, 1, 12, 13, 200, 20_000])
@pytest.mark.parametrize("count", [1, 2, 31, 63, 64, 65, 200])
def test_runs_of_records_of_one_size_are_found_to_their_end(size: int, count: int) -> None:
    records = some(count, bytes(size))
    if count > 64:
        records[count // 2] = NewRecord(None, bytes(size + 1), 1)
    data = log_of(records, some(3))
    assert read_records(data).to_pylist() == one_by_one(data)


@pytest.mark.parametrize("seed", range(6))
def test_many_small_batches_are_read_as_each_of_them_alone(seed: int) -> None:
    """Checks that reading many batches yields the same records as reading each batch alone. The reader walks the
    batches in parallel, one step at a time."""
    rng = random.Random(seed)
    counts = [rng.randrange(1, rng.choice((3, 70))) for _ in range(rng.choice((47, 48, 90)))]
    most = rng.choice((20, 200, 9_000))  # lengths encoded in one, two and three bytes
    data = log_of(*([NewRecord(b"k", bytes(rng.randrange(most)), 5) for _ in range(count)] for count in counts))
    assert read_records(data).to_pylist() == one_by_one(data)


@pytest.mark.parametrize("seed", range(12))
def test_runs_of_one_size_in_many_batches_are_found_to_their_end(seed: int) -> None:
    """Checks that runs of records of the same size are read completely. Each batch has its own record size, and some
    batches also have a record of another size."""
    rng = random.Random(seed)
    most = rng.choice((20, 200, 9_000))
    per_batch = []
    for _ in range(rng.choice((48, 60))):
        records = some(rng.choice((70, 70, rng.randrange(1, 150))), bytes(rng.randrange(most)))
        for number in rng.sample(range(len(records)), rng.choice((0, 0, 1)) * rng.randrange(2)):
            records[number] = NewRecord(None, bytes(rng.randrange(most)), 1)
        per_batch.append(records)
    data = log_of(*per_batch)
    assert read_records(data).to_pylist() == one_by_one(data)


@settings(max_examples=examples(400))
@given(st.sampled_from([MANY_BATCHES, MANY_RUNS]), st.integers(0, 30_000), st.integers(1, 255))
def test_damage_among_many_small_batches_is_refused_or_read_and_nothing_else_happens(
    good: bytes, at: int, flip: int
) -> None:
    at = HEADER_BYTES + at % (len(good) - HEADER_BYTES)
    data = bytearray(good)
    data[at] ^= flip
    if any(position <= at < position + HEADER_BYTES for position, _ in batches(good)):
        return
    try:
        expected = one_by_one(bytes(data))
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            read_records(data, check_crcs=False)
    else:
        assert read_records(data, check_crcs=False).to_pylist() == expected


@settings(max_examples=examples(300))
@given(st.integers(0, 1000), st.integers(1, 255), st.booleans())
def test_damaged_records_are_refused_or_read_and_nothing_else_happens(at: int, flip: int, has_headers: bool) -> None:
    headers = (("name", b"content"),) if has_headers else ()
    data = bytearray(log_of([NewRecord(b"key", b"value" * (n % 3), 5, headers) for n in range(40)]))
    at = HEADER_BYTES + at % (len(data) - HEADER_BYTES)
    data[at] ^= flip
    with pytest.raises(CorruptBatch, match="offsets 0 to 39"):
        read_records(data)
    try:
        expected = one_by_one(bytes(data))
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            read_records(data, check_crcs=False)
    else:
        table = read_records(data, check_crcs=False, columns=["offset", "key", "value"])
        assert table.to_pylist() == [{name: row[name] for name in ("offset", "key", "value")} for row in expected]


def test_a_batch_that_is_cut_short_ends_the_table() -> None:
    whole = log_of(some(3))
    data = log_of(some(3), some(3))
    for end in range(len(whole), len(data)):
        assert read_records(data[:end]).num_rows == 3
    assert read_records(b"").num_rows == 0


def test_offsets_bound_the_rows() -> None:
    data = log_of(some(5), some(5), some(5))
    table = read_records(data, start_offset=3, end_offset=11, columns=["offset"])
    assert table["offset"].to_pylist() == list(range(3, 11))


def test_only_the_columns_asked_for_are_built() -> None:
    data = log_of(some(2))
    assert read_records(data, columns=["value", "offset"]).schema == pa.schema(
        [("offset", pa.int64()), ("value", pa.binary())]
    )
    with pytest.raises(ValueError, match="no such column: size"):
        read_records(data, columns=["size"])


def test_header_keys_that_are_no_text_are_readable() -> None:
    data = log_of([NewRecord(None, b"", 0, (("\udcff", b"content"),))])
    assert read_records(data)["headers"].to_pylist() == [[{"key": "�", "value": b"content"}]]


def transaction(producer_id: int, base_offset: int, count: int, *, commit: bool | None) -> bytes:
    data = build_batch(
        some(count), base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    if commit is not None:
        data += marker_batch(
            producer_id=producer_id, producer_epoch=0, is_commit=commit, coordinator_epoch=0, timestamp_ms=0,
            base_offset=base_offset + count,
        )  # fmt: skip
    return bytes(data)


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    data = b"".join(
        [
            transaction(1, 0, 2, commit=None),
            transaction(2, 2, 2, commit=True),  # offset 4: the marker
            transaction(1, 5, 1, commit=False),  # offset 6: the marker, which ends the transaction that started at 0
            transaction(1, 7, 2, commit=True),  # offset 9: the marker
        ]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    assert read_records(data, aborted=aborted, columns=["offset"])["offset"].to_pylist() == [2, 3, 7, 8]
    assert read_records(data, columns=["offset"])["offset"].to_pylist() == [0, 1, 2, 3, 5, 7, 8]


@needs_oracle
@pytest.mark.parametrize("name", directories())
def test_logs_that_kafka_wrote_give_the_same_rows_in_columns_and_one_by_one(name: str, tmp_path: Path) -> None:
    for path in sorted(unpack(name, tmp_path).glob("*/*.log")):
        data = path.read_bytes().rstrip(b"\0") if name == "unclean-torn" else path.read_bytes()
        expected = one_by_one(data)
        table = read_records(data)
        assert table.num_rows == len(expected)
        assert table.to_pylist() == expected, path
