"""Checks the decompressed records of a batch against its header, without creating an object for any record.

Every produced record passes through here, so this is written for speed: one record at a time takes 0.3 to 0.5 µs in
Python, which at 100 bytes a record is most of the broker's work. But the records of a producer tend to look alike. Two
records of the same size whose *shape bytes* (all lengths and counts) agree have the same layout. Once two in a row do,
the walk compares whole columns of the batch, a strided slice for each shape byte, and skips all records that agree.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import read_varint, read_varlong

Opened: TypeAlias = bytes | memoryview

_SHORT_RUN: Final = 8  # fewer records than this make a comparison of columns dearer than a look at each
_PAUSE: Final = 64  # records to look at singly before the next try after a short run
_WINDOW: Final = 8192  # offset deltas with the same third varint byte

_FLIP: Final = bytes(byte ^ 0x80 for byte in range(256))  # turns "has more bytes" into ASCII, which Python tests fast
# What the varints of the offset deltas 0, 1, 2 … have at each byte:
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
    """Walks `count` opened records that must fill `data` from the position `at` on, offset deltas counting up from 0.

    Raises MalformedMessage when a length, a count or a varint is wrong, a record's parts do not fill it, the records
    do not fill `data`, or an offset delta is not the next one.
    """
    end = len(data)
    index = next_try = last_size = 0
    last_timestamp = -1  # as it stands in the record, in zigzag
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
                    raise MalformedMessage("a record of negative length")
                stop = at + (size >> 1)
                timestamp = data[at + 1]  # behind the attributes, which mean nothing
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
                size = data[at]  # of the key; any negative size means null
                if size < 0x80:
                    at += 1
                else:
                    size, at = _read_zigzag(data, at)
                if size & 1:
                    has_null_key = True
                else:
                    at += size >> 1
                size = data[at]  # of the value
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
                    raise MalformedMessage("a record whose parts do not fill its length")
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
        raise MalformedMessage(f"{end - at} bytes behind the last record")
    return RecordSurvey(lowest, highest, has_null_key)


def _read_zigzag(data: Opened, at: int) -> tuple[int, int]:
    """A varint of two bytes or more, not decoded further, so that bit 0 is its sign; and the position behind it."""
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
    """The position behind the headers whose count stands at `at`."""
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
            raise MalformedMessage("a header without a key")
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
    """Where a record, known to be good, keeps what."""

    timestamp_at: int
    offset_at: int
    key_at: int  # behind the offset delta: of the key's length
    shape: list[int]  # the positions of all bytes that say where something begins or ends


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
    """Records that stand one behind the other, all laid out alike, their offset deltas counting up."""

    length: int  # how many
    timestamp_bytes: list[bytes]  # their timestamp deltas: all first bytes, all second bytes …

    def timestamp_deltas(self) -> Iterator[tuple[int, ...]]:
        """The bytes of each. Most are the same: callers that need numbers have to decode only the distinct ones."""
        return zip(*self.timestamp_bytes, strict=True)


_NO_RUN: Final = AlikeRecords(0, [])


def find_run(data: Opened, start: int, size: int, index: int, count: int) -> AlikeRecords:
    """The records behind the one of `size` bytes at `start` that are laid out like it; none where that is not worth it.

    index   that of the first of them, which is also the offset delta it must have
    count   how many records the batch has
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
    # the shape does not cover the timestamp delta: it must take as many bytes in each record
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
    if layout.key_at - layout.offset_at != len(expected):  # the next deltas are wider, or its own was not the shortest
        return _NO_RUN
    # A delta of another width, or not of the shortest form, differs in the bit that says whether more bytes follow.
    for column in expected:
        if data[at + size : at + size * alike + 1 : size] != column:
            return _NO_RUN
        at += 1
    return AlikeRecords(alike, [column[:alike] for column in timestamps])


def timestamp_delta(parts: Iterable[int]) -> int:
    """Computes the value of a varint's bytes."""
    zigzag = 0
    for place, part in enumerate(parts):
        zigzag |= (part & 0x7F) << 7 * place
    return zigzag >> 1 ^ -(zigzag & 1)
