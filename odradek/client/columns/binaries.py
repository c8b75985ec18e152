"""Reads and writes entire columns of zigzag varints and converts between Arrow binary arrays and plain bytes.

odradek/protocol/records.py reads and writes single varints of the same format. Positions are int64 indexes into the
bytes. A loop that reads varints has one iteration per byte of the longest varint, not one per record. Arrow copies the
binary values in C++.
"""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.protocol.errors import MalformedMessage

Bytes: TypeAlias = NDArray[np.uint8]
Int64s: TypeAlias = NDArray[np.int64]

_MORE = 0x80
_SEVEN_BITS = 0x7F
VARINT_BYTES = 5  # maximum encoded size of a 32-bit value
VARLONG_BYTES = 10


def _unzigzag(values: Int64s) -> Int64s:
    return (values >> 1) ^ -(values & 1)


# The values of all one- and two-byte varints, indexed by their bytes in little-endian order. Nearly all varints in a
# record are this short.
_OF_ONE_BYTE = _unzigzag(np.arange(_MORE, dtype=np.int64))
_TWO_BYTES = np.arange(_MORE << 8, dtype=np.int64)
_OF_TWO_BYTES = _unzigzag(_TWO_BYTES & _SEVEN_BITS | _TWO_BYTES >> 8 << 7)


def read_varints(data: Bytes, at: Int64s, limit_bytes: int = VARINT_BYTES) -> tuple[Int64s, Int64s]:
    """Reads the values at the positions `at`. Returns the values and the positions after them.

    Raises MalformedMessage for a varint of more than `limit_bytes`, and IndexError for a varint that extends beyond
    `data`.
    """
    byte = data.take(at)
    at = at + 1
    is_longer = byte >= _MORE
    if not is_longer.any():
        return _OF_ONE_BYTE.take(byte), at
    if is_longer.all():
        second = data.take(at)
        if not (second >= _MORE).any():
            return _OF_TWO_BYTES.take(byte.astype(np.int64) | second.astype(np.int64) << 8), at + 1
    value = (byte & _SEVEN_BITS).astype(np.uint64)
    longer = np.flatnonzero(is_longer)
    for index in range(1, limit_bytes + 1):
        if not longer.size:
            break
        if index == limit_bytes:
            raise MalformedMessage(f"a varint has more than {limit_bytes} bytes")
        byte = data.take(at[longer])
        value[longer] |= (byte & _SEVEN_BITS).astype(np.uint64) << np.uint64(7 * index)
        at[longer] += 1
        longer = longer[byte >= _MORE]
    if limit_bytes == VARINT_BYTES:
        value &= np.uint64(0xFFFF_FFFF)  # the fifth byte may contain bits that do not fit, which Kafka drops
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), at


def zigzag(values: Int64s) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(zigzagged: NDArray[np.uint64]) -> Int64s:
    """Returns the encoded size of each value in bytes."""
    sizes = np.ones(len(zigzagged), dtype=np.int64)
    rest = zigzagged >> np.uint64(7)
    while rest.any():
        sizes += rest != 0
        rest >>= np.uint64(7)
    return sizes


def varint_columns(zigzagged: NDArray[np.uint64], sizes: Int64s) -> tuple[Bytes, NDArray[np.bool_]]:
    """Encodes each value into a separate row. Returns the rows, and a mask of the used bytes of each row. Both arrays
    have a row for each value and as many columns as the longest encoding has bytes."""
    width = int(sizes.max(initial=1))
    rows = np.empty((len(zigzagged), width), dtype=np.uint8)
    used = np.empty((len(zigzagged), width), dtype=np.bool_)
    for column in range(width):
        byte = ((zigzagged >> np.uint64(7 * column)) & np.uint64(_SEVEN_BITS)).astype(np.uint8)
        rows[:, column] = np.where(sizes > column + 1, byte | _MORE, byte)
        used[:, column] = sizes > column
    return rows, used


_INLINE_BYTES = 12  # an Arrow view stores values up to this size inline, and only the position of longer values
PADDING_BYTES = _INLINE_BYTES  # number of bytes after the last value that must be readable
_INLINE = np.dtype(f"V{_INLINE_BYTES}")
# For a long value, the first four bytes and the buffer number (0) remain empty, because Arrow's cast reads neither of
# them.
_VIEW = np.dtype(
    {"names": ["size", "inline", "place"], "formats": ["<i4", _INLINE, "<i4"], "offsets": [0, 4, 12], "itemsize": 16}
)


def gather(data: pa.Buffer, source: Bytes, starts: Int64s, sizes: Int64s) -> pa.Array:
    """Returns a binary array whose i-th value is the `sizes[i]` bytes that begin at `starts[i]`. A negative size means
    null.

    `source` is a numpy view of `data`, and must have PADDING_BYTES more bytes after the last value. The values are
    copied.
    """
    count = len(starts)
    present = sizes >= 0
    if not (is_whole := bool(present.all())):
        starts, sizes = np.where(present, starts, 0), np.where(present, sizes, 0)
    views = np.zeros(count, dtype=_VIEW)
    views["size"] = sizes
    short = np.flatnonzero(sizes <= _INLINE_BYTES)
    if len(short) < count:
        views["place"] = starts
    every = np.ndarray((max(len(source) - _INLINE_BYTES + 1, 0),), dtype=_INLINE, buffer=source, strides=(1,))
    if len(short) == count:
        views["inline"] = every[starts]
    elif len(short):
        views["inline"][short] = every[starts[short]]
    validity = None if is_whole else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), count, [validity, pa.py_buffer(views), data]).cast(pa.binary())


def from_rows(rows: Bytes, used: NDArray[np.bool_]) -> pa.Array:
    """Returns a binary array whose i-th value consists of the used bytes of row i, in order."""
    ends = np.cumsum(used.sum(axis=1), dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows[used]))]
    )


def content_of(array: pa.Array) -> memoryview:
    """Returns the concatenated values of a binary array without nulls."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    return memoryview(data if data is not None else b"")[int(offsets[0]) : int(offsets[-1])]
