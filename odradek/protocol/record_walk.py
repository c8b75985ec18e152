"""Checks a batch's decompressed records against the batch header, without creating an object for each record.

Every produced record is checked here, so this module is written for speed. Reading records one at a time takes 0.3 to
0.5 µs per record in Python, which is most of the broker's work for 100-byte records. However, a producer's records tend
to have the same layout. Two records have the same layout if they have the same size and the same *shape bytes* (all
lengths and counts). After two records with the same layout in a row, the walk compares whole columns of the batch,
using one strided slice for each shape byte, and skips all records that have the same layout.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import read_varint, read_varlong, record_too_large

Opened: TypeAlias = bytes | memoryview

_SHORT_RUN: Final = 8  # for fewer records, comparing columns costs more than reading the records
_PAUSE: Final = 64  # number of records to read one by one after a short run before looking for another run
_WINDOW: Final = 8192  # number of consecutive offset deltas with the same third byte in their varints

# Inverts the bit that means "more bytes follow", so that Python's fast test for ASCII can be used.
_FLIP: Final = bytes(byte ^ 0x80 for byte in range(256))
# The bytes at each position of the varint for the offset deltas 0, 1, 2 …
_ONLY_BYTES: Final = bytes(2 * delta for delta in range(64))
_FIRST_BYTES: Final = bytes(2 * delta | 0x80 for delta in range(64)) * (_WINDOW // 64)
_SECOND_BYTES: Final = b"".join(bytes([delta >> 6]) * 64 for delta in range(0, _WINDOW, 64))
_SECOND_OF_THREE_BYTES: Final = b"".join(bytes([delta >> 6 | 0x80]) * 64 for delta in range(0, _WINDOW, 64))


@dataclass(slots=True)
class RecordSurvey:
    min_timestamp_delta: int
    max_timestamp_delta: int
    has_null_key: bool


def survey_records(data: Opened, count: int, at: int = 0) -> RecordSurvey:
    """Checks `count` decompressed records. They must fill `data` from position `at` to its end and have consecutive
    offset deltas starting with 0.

    Raises MalformedMessage if a length, count or varint is invalid, if the parts of a record do not add up to its size,
    if the records do not fill `data`, or if an offset delta is not consecutive.
    """
    end = len(data)
    index = next_try = last_size = 0
    last_timestamp = -1  # zigzag-encoded, as in the record
    lowest, highest = 2**63, -(2**63)
    has_null_key = False
    try:
        while index < count:
            for index in range(index, count):  # noqa: B020  (left when a run of alike records is skipped)
                start = at
                size = data[at]
                if size < 0x80:
                    at += 1
                elif data[at + 1] < 0x80:
                    size = size & 0x7F | data[at + 1] << 7
                    at += 2
                else:
                    size, at = _read_zigzag(data, at)
                if size & 1:
                    raise MalformedMessage("a record has a negative length")
                stop = at + (size >> 1)
                timestamp = data[at + 1]  # the timestamp delta follows the attributes, which are not used
                if timestamp < 0x80:
                    at += 2
                else:
                    timestamp, at = _read_long_zigzag(data, at + 1)
                delta = data[at]
                if delta < 0x80:
                    at += 1
                else:
                    byte = data[at + 1]
                    if byte < 0x80:
                        delta = delta & 0x7F | byte << 7
                        at += 2
                    else:
                        delta, at = _read_zigzag(data, at)
                if delta != index + index:
                    raise MalformedMessage(f"record {index} has the offset delta {delta >> 1 ^ -(delta & 1)}")
                size = data[at]  # size of the key; a negative size means null
                if size < 0x80:
                    at += 1
                else:
                    size, at = _read_zigzag(data, at)
                if size & 1:
                    has_null_key = True
                else:
                    at += size >> 1
                size = data[at]  # size of the value
                if size < 0x80:
                    at += 1
                elif data[at + 1] < 0x80:
                    size = size & 0x7F | data[at + 1] << 7
                    at += 2
                else:
                    size, at = _read_zigzag(data, at)
                if not size & 1:
                    at += size >> 1
                at = _skip_headers(data, at, stop) if data[at] else at + 1
                if at != stop:
                    raise MalformedMessage("the parts of a record do not fill its length")
                if timestamp != last_timestamp:
                    last_timestamp = timestamp
                    timestamp = timestamp >> 1 ^ -(timestamp & 1)
                    if timestamp < lowest:
                        lowest = timestamp
                    if timestamp > highest:
                        highest = timestamp
                size = at - start
                if size == last_size and index >= next_try:
                    run = find_run(data, start, size, index + 1, count)
                    if not run.length:
                        next_try = index + _PAUSE
                    else:
                        at += run.length * size
                        index += run.length
                        deltas = [timestamp_delta(parts) for parts in set(run.timestamp_deltas())]
                        lowest, highest = min(lowest, *deltas), max(highest, *deltas)
                        break
                last_size = size
            index += 1
    except IndexError:
        raise MalformedMessage("a record is cut short") from None
    if at != end:
        raise MalformedMessage(f"{end - at} bytes follow the last record")
    return RecordSurvey(lowest, highest, has_null_key)


def check_record_sizes(data: Opened, count: int, limit_bytes: int) -> None:
    """Raises DecompressedTooLarge if one of the `count` records exceeds `limit_bytes`. The records must have been
    checked by `survey_records`. As in Kafka, a record's size does not include its length field."""
    if len(data) <= limit_bytes:
        return
    at = 0
    for _ in range(count):
        size, at = read_varint(data, at)
        if size > limit_bytes:
            raise record_too_large(size, limit_bytes)
        at += size


def _read_zigzag(data: Opened, at: int) -> tuple[int, int]:
    """Decodes a varint of at least two bytes, but not its zigzag encoding, so bit 0 is the sign. Returns the value and
    the position after the varint."""
    byte = data[at + 1]
    if byte < 0x80:
        return data[at] & 0x7F | byte << 7, at + 2
    value, at = read_varint(data, at)
    return (value << 1 if value >= 0 else ~(value << 1)), at


def _read_long_zigzag(data: Opened, at: int) -> tuple[int, int]:
    byte = data[at + 1]
    if byte < 0x80:
        return data[at] & 0x7F | byte << 7, at + 2
    value, at = read_varlong(data, at)
    return (value << 1 if value >= 0 else ~(value << 1)), at


def _skip_headers(data: Opened, at: int, stop: int) -> int:
    """Returns the position after the headers. The number of headers is at `at`."""
    count, at = read_varint(data, at)
    if count < 0 or count > stop - at:
        raise MalformedMessage(f"{count} headers")
    for _ in range(count):
        size = data[at]
        if size < 0x80:
            at += 1
        else:
            size, at = _read_zigzag(data, at)
        if size & 1:
            raise MalformedMessage("a header has no key")
        at += size >> 1
        size = data[at]
        if size < 0x80:
            at += 1
        else:
            size, at = _read_zigzag(data, at)
        if not size & 1:
            at += size >> 1
    return at


class _Layout(NamedTuple):
    """The positions of a valid record's parts."""

    timestamp_at: int
    offset_at: int
    key_at: int  # position of the key's length, after the offset delta
    shape: list[int]  # positions of all bytes that determine where a part begins or ends


def _layout(data: Opened, start: int) -> _Layout:
    shape: list[int] = []

    def read_shape(at: int) -> tuple[int, int]:
        value, behind = read_varint(data, at)
        shape.extend(range(at, behind))
        return value, behind

    _, at = read_shape(start)
    timestamp_at = at + 1
    _, offset_at = read_varlong(data, timestamp_at)
    _, key_at = read_varint(data, offset_at)
    size, at = read_shape(key_at)
    size, at = read_shape(at + max(size, 0))
    count, at = read_shape(at + max(size, 0))
    for _ in range(2 * count):
        size, at = read_shape(at)
        at += max(size, 0)
    return _Layout(timestamp_at, offset_at, key_at, shape)


class AlikeRecords(NamedTuple):
    """Consecutive records with the same layout and consecutive offset deltas."""

    length: int  # number of records
    timestamp_bytes: list[bytes]  # the first bytes of all timestamp deltas, then the second bytes, and so on

    def timestamp_deltas(self) -> Iterator[tuple[int, ...]]:
        """Yields the bytes of each record's timestamp delta. Most of them are equal, so callers need to decode only the
        distinct ones."""
        return zip(*self.timestamp_bytes, strict=True)


_NO_RUN: Final = AlikeRecords(0, [])


def find_run(data: Opened, start: int, size: int, index: int, count: int) -> AlikeRecords:
    """Finds the records that follow the record of `size` bytes at `start` and have the same layout. Returns an empty
    run if comparing columns would not be worthwhile.

    index   index of the first record to examine, which must also be its offset delta
    count   number of records in the batch
    """
    first = start + size
    alike = min(count - index, (len(data) - first) // size)
    alike = min(alike, 64 - index if index < 64 else _WINDOW - (index & (_WINDOW - 1)))
    if alike < _SHORT_RUN or data[first] != data[start]:
        return _NO_RUN
    layout = _layout(data, start)
    if layout.offset_at - layout.timestamp_at > 3 or len(layout.shape) > 64:
        return _NO_RUN
    for at in layout.shape:
        column = bytes(data[at + size : at + size * alike + 1 : size])
        alike = len(column) - len(column.lstrip(column[:1] if column[0] == data[at] else b""))
        if alike < _SHORT_RUN:
            return _NO_RUN
    # Timestamp deltas are not part of the shape, but must have the same number of bytes in all records.
    timestamps = []
    for at in range(layout.timestamp_at, layout.offset_at):
        column = bytes(data[at + size : at + size * alike + 1 : size])
        marked = column if at == layout.offset_at - 1 else column.translate(_FLIP)
        if not marked.isascii():
            alike = next(place for place, byte in enumerate(marked) if byte >= 0x80)
        timestamps.append(column)
    if alike < _SHORT_RUN:
        return _NO_RUN
    at, place = layout.offset_at, index & (_WINDOW - 1)
    if index < 64:
        expected = [_ONLY_BYTES[index : index + alike]]
    elif index < _WINDOW:
        expected = [_FIRST_BYTES[index : index + alike], _SECOND_BYTES[index : index + alike]]
    elif index < 128 * _WINDOW:
        expected = [
            _FIRST_BYTES[place : place + alike],
            _SECOND_OF_THREE_BYTES[place : place + alike],
            bytes([index >> 13]) * alike,
        ]
    else:
        return _NO_RUN
    # Give up if the next deltas are longer or this record's delta was not encoded in the shortest form.
    if layout.key_at - layout.offset_at != len(expected):
        return _NO_RUN
    # Comparing these bytes is enough. A delta that has another length or is not in its shortest form would differ in
    # the bit that means "more bytes follow".
    for column in expected:
        if data[at + size : at + size * alike + 1 : size] != column:
            return _NO_RUN
        at += 1
    return AlikeRecords(alike, [column[:alike] for column in timestamps])


def timestamp_delta(parts: Iterable[int]) -> int:
    """Decodes a timestamp delta from the bytes of its varint."""
    zigzag = 0
    for place, part in enumerate(parts):
        zigzag |= (part & 0x7F) << 7 * place
    return zigzag >> 1 ^ -(zigzag & 1)
