"""Tests that the fast walk over records agrees with a reader that decodes each record."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.record_walk import RecordSurvey, survey_records
from tests.support.batches import record, record_of
from tests.support.examples import examples

# The sizes of the key and of the value (None means null), and the number of headers.
Shape = tuple[int | None, int | None, int]

SHAPES: st.SearchStrategy[Shape] = st.tuples(
    st.none() | st.sampled_from([0, 1, 5, 63, 64, 200]),
    st.none() | st.sampled_from([0, 1, 40, 63, 64, 5000, 9000]),
    st.integers(0, 3),
)
# runs of similar records of any length, as producers send them
RUNS = st.lists(
    st.tuples(SHAPES, st.integers(1, 200), st.integers(-3, 3), st.sampled_from([0, 63, 64, 9000, 2**40])),
    min_size=1,
    max_size=6,
)


def content(size: int | None) -> bytes | None:
    return None if size is None else b"c" * size


@settings(max_examples=examples(60))
@given(runs=RUNS)
def test_timestamps_and_null_keys_are_found_whatever_the_records_look_like(
    runs: list[tuple[Shape, int, int, int]],
) -> None:
    deltas: list[int] = []
    has_null_key, data = False, bytearray()
    for (key, value, header_count), length, step, start in runs:
        for place in range(length):
            delta = start + step * place
            headers = [(f"h{number}", b"x" if number else None) for number in range(header_count)]
            data += record(len(deltas), delta, content(key), content(value), headers)
            deltas.append(delta)
            has_null_key |= key is None
    expected = RecordSurvey(min(deltas), max(deltas), has_null_key)
    assert survey_records(bytes(data), len(deltas)) == expected
    assert survey_records(memoryview(data), len(deltas)) == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_batches_of_every_width_of_offset_delta(count: int) -> None:
    data = b"".join(record(index, index // 100, None, b"value") for index in range(count))
    assert survey_records(data, count) == RecordSurvey(0, (count - 1) // 100, True)


@pytest.mark.parametrize("place", [0, 1, 20, 63, 64, 100, 8192, 9999])
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda index: record(index + 1, 0, None, b"value"), id="another offset delta"),
        pytest.param(lambda index: record(index, 0, None, b"value!")[:-2] + b"\0", id="a shorter value than it says"),
        pytest.param(lambda index: record(index, 0, None, b"value")[:-1] + b"\2", id="a header that is not there"),
        pytest.param(lambda index: record_of(record(index, 0, None, b"value")[1:] + b"\0"), id="a byte left over"),
    ],
)
def test_one_broken_record_among_ten_thousand_is_found(broken: Callable[[int], bytes], place: int) -> None:
    records = [record(index, 0, None, b"value") for index in range(10_000)]
    records[place] = broken(place)
    with pytest.raises(MalformedMessage):
        survey_records(b"".join(records), len(records))


def test_one_null_key_among_many_keys_is_seen() -> None:
    records = [record(index, 0, b"", b"value") for index in range(1000)]
    assert not survey_records(b"".join(records), 1000).has_null_key
    records[777] = record(777, 0, None, b"value")
    assert survey_records(b"".join(records), 1000).has_null_key


@pytest.mark.parametrize("count", [0, 1, 99, 101, 2**31 - 1])
def test_the_count_must_be_right(count: int) -> None:
    data = b"".join(record(index) for index in range(100))
    with pytest.raises(MalformedMessage):
        survey_records(data, count)
