"""Tests that columns are encoded as batches that the broker accepts and that any reader of records can read."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.columns import encode, read_headers, read_records
from odradek.client.columns.records import HEADERS_TYPE
from odradek.protocol.batch_header import HEADER_BYTES, crc_ok, read_batch_header
from odradek.protocol.record_walk import survey_records
from odradek.protocol.records import Compression, Record, records_of
from tests.support.examples import examples

CELLS = st.none() | st.binary(max_size=200)
HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=9)}), max_size=3
)
ROWS = st.lists(st.tuples(CELLS, CELLS, st.integers(-1, 2**42), HEADERS), min_size=1, max_size=200)


@settings(max_examples=examples(80))
@given(ROWS, st.integers(100, 4000), st.booleans(), st.sampled_from(Compression))
def test_every_row_is_a_record_in_its_order(
    rows: list[tuple[bytes | None, bytes | None, int, list[dict[str, bytes]] | None]],
    batch_bytes: int,
    has_headers: bool,
    compression: Compression,
) -> None:
    keys, values, timestamps, headers = zip(*rows, strict=True)
    found: list[Record] = []
    for batch in encode(
        pa.array(values, pa.binary()),
        pa.array(timestamps, pa.int64()),
        keys=pa.array(keys, pa.binary()),
        headers=pa.array(headers, HEADERS_TYPE) if has_headers else None,
        batch_bytes=batch_bytes,
        compression=compression,
    ):
        data = batch.data
        header = read_batch_header(data)
        records = list(records_of(data))
        assert batch.first_row == len(found)
        assert header.record_count == batch.record_count == len(records)
        assert header.size_bytes == len(data)
        assert crc_ok(data, 0, len(data))
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert [record.offset for record in records] == list(range(len(records)))
        if compression is Compression.NONE:
            assert len(data) <= batch_bytes or len(records) == 1
            survey_records(memoryview(data)[HEADER_BYTES:], len(records))
        found += records
    assert [(record.key, record.value, record.timestamp) for record in found] == list(
        zip(keys, values, timestamps, strict=True)
    )
    if has_headers:
        assert [record.headers for record in found] == [
            tuple((each["key"], each["value"]) for each in row or ()) for row in headers
        ]


def test_a_sealed_batch_names_its_producer() -> None:
    (batch,) = encode(pa.array([b"a", b"b"]), pa.array([1, 2]))
    header = read_batch_header(batch.seal(producer_id=7, producer_epoch=3, base_sequence=40, is_transactional=True))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 40, 41)
    assert header.is_transactional
    assert crc_ok(batch.data, 0, len(batch.data))


def test_text_and_chunks_and_slices_are_taken_as_they_are() -> None:
    values = pa.chunked_array([pa.array(["left out", "one"])[1:], pa.array(["two", "three"])])
    (batch,) = encode(values, pa.array([0, 1, 2]))
    assert read_records(batch.data)["value"].to_pylist() == [b"one", b"two", b"three"]


def test_more_rows_than_one_join_handles_are_encoded() -> None:
    count = 100_000
    values = pa.array([b"%0100d" % number for number in range(count)])
    data = b"".join(batch.data for batch in encode(values, pa.array(range(count)), batch_bytes=65_536))
    table = read_records(data)
    assert table["value"].combine_chunks().equals(values)
    assert read_headers(data)["record_count"].to_numpy().sum() == count


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    batches = list(encode(pa.array([b"a", bytes(5000), b"b"]), pa.array([0, 0, 0]), batch_bytes=1000))
    assert [batch.record_count for batch in batches] == [1, 1, 1]


def test_no_rows_make_no_batch() -> None:
    assert list(encode(pa.array([], pa.binary()), pa.array([], pa.int64()))) == []


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"timestamps": pa.array([1])}, "2 values, but 1 timestamps"),
        ({"timestamps": pa.array([1, None])}, "a record has no timestamp"),
        ({"timestamps": pa.array([1, 2]), "keys": pa.array([b"k"])}, "2 values, but 1 keys"),
        (
            {"timestamps": pa.array([1, 2]), "headers": pa.array([[{"key": None, "value": b""}], []], HEADERS_TYPE)},
            "a header has no key",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, pa.Array], complaint: str) -> None:
    timestamps = columns.pop("timestamps")
    with pytest.raises(ValueError, match=complaint):
        list(encode(pa.array([b"a", b"b"]), timestamps, **columns))
