"""Tests that all readers of the record format (docs/formats/record-batch.md) find the same records in the same
bytes."""

from collections.abc import Callable, Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.client.columns.records import read_records
from odradek.client.consuming.fetched import records_in
from odradek.protocol.batch_header import HEADER_BYTES, read_batch_header
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.record_walk import survey_records
from odradek.protocol.records import Record, records_of
from odradek.storage.compaction import PassTransactions, collect_keys
from odradek.storage.key_map import KeyMap
from tests.support.batches import batch_of, record
from tests.support.examples import examples

Read = list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]

CONTENT = st.none() | st.binary(max_size=70)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=2)
# Runs of similar records, with other records between the runs. Three of the readers process such runs column by column.
RUNS = st.lists(
    st.tuples(CONTENT, CONTENT, HEADERS, st.integers(-3, 2**33), st.integers(1, 80)), min_size=1, max_size=4
)
EDITS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=2)


def one_by_one(batch: bytes) -> Read:
    """Reads with `odradek.protocol.records.records_of`. The other readers are compared with this one."""
    return [as_row(each) for each in records_of(batch)]


def as_row(read: Record) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    return read.offset, read.timestamp, read.key, read.value, tuple(read.headers)


def as_consumer(batch: bytes) -> Read:
    found = records_in(memoryview(batch), read_batch_header(batch), "t", 0)
    return [(each.offset, each.timestamp_ms, each.key, each.value, tuple(each.headers)) for each in found]


def as_table(batch: bytes) -> Read:
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"]),
        )
        for row in read_records(batch).to_pylist()
    ]


def as_text(key: str) -> str:
    """Returns a header key as it appears in a table, where invalid UTF-8 is replaced. Other readers keep invalid UTF-8
    as surrogates."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def with_valid_text(read: Read | None) -> Read | None:
    if read is None:
        return None
    return [(*row[:4], tuple((as_text(key), value) for key, value in row[4])) for row in read]


def latest_offsets(batch: bytes, keys: Iterable[bytes | None]) -> dict[bytes, int]:
    """Returns the latest offset of each of these keys, as compaction determines it."""
    learnt = KeyMap(1 << 20)
    collect_keys([(read_batch_header(batch), memoryview(batch))], learnt, PassTransactions(()), 0)
    return {key: learnt.latest(key) for key in keys if key is not None}


def outcome(reader: Callable[[bytes], Read], batch: bytes) -> Read | None:
    """Returns the records that the reader finds, or None if the reader refuses the bytes."""
    try:
        return reader(batch)
    except MalformedMessage:
        return None


def is_surveyed(data: bytes, count: int) -> bool:
    """Returns whether the bytes pass validation, which walks over records without building them."""
    try:
        survey_records(data, count)
    except MalformedMessage:
        return False
    return True


@settings(max_examples=examples(150))
@given(runs=RUNS, edits=EDITS)
# Record 9 gets an offset delta of two bytes instead of one, so its key starts later than the keys of the following
# records.
@example(runs=[(None, None, [("", b"")], 0, 33), (None, None, [], 0, 1)], edits=[(84, 0x80)])
# The value becomes empty, and its former contents become the number of headers: 1,610,612,736.
@example(runs=[(None, b"\x80\x80\x80\x80\x0c", [("a", None)], 0, 1)], edits=[(5, 0)])
def test_all_readers_find_the_same_records_in_the_same_bytes_or_none(
    runs: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int, int]],
    edits: list[tuple[int, int]],
) -> None:
    data, count = bytearray(), 0
    for key, value, headers, timestamp_delta, length in runs:
        for _ in range(length):
            data += record(count, timestamp_delta, key, value, headers)
            count += 1
    for at, byte in edits:
        data[at % len(data)] = byte
    batch = bytes(batch_of(bytes(data), count))
    expected = outcome(one_by_one, batch)
    assert outcome(as_consumer, batch) == expected
    assert outcome(as_table, batch) == with_valid_text(expected)
    counts_up = expected is not None and [row[0] for row in expected] == list(range(count))
    assert is_surveyed(batch[HEADER_BYTES:], count) is counts_up
    if counts_up:
        assert latest_offsets(batch, (row[2] for row in expected or ())) == {
            row[2]: row[0] for row in expected or () if row[2] is not None
        }
