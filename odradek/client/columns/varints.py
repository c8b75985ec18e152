"""Zigzag varints for whole columns at a time; odradek/protocol/varint.py has the same rules for one value.

Positions are int64 indexes into the bytes. The reader's loops run over the bytes of the longest varint, not over
records.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from odradek.protocol.errors import MalformedMessage

Bytes: TypeAlias = NDArray[np.uint8]
Int64s: TypeAlias = NDArray[np.int64]

_MORE = 0x80
_SEVEN_BITS = 0x7F
VARINT_BYTES = 5  # at most, for a 32-bit value
VARLONG_BYTES = 10


def _unzigzag(values: Int64s) -> Int64s:
    return (values >> 1) ^ -(values & 1)


# Values by their bytes, little-endian: nearly all varints of a record are that short.
_OF_ONE_BYTE = _unzigzag(np.arange(_MORE, dtype=np.int64))
_TWO_BYTES = np.arange(_MORE << 8, dtype=np.int64)
_OF_TWO_BYTES = _unzigzag(_TWO_BYTES & _SEVEN_BITS | _TWO_BYTES >> 8 << 7)


def read_varints(data: Bytes, at: Int64s, limit_bytes: int = VARINT_BYTES) -> tuple[Int64s, Int64s]:
    """The values at the positions `at`, and the positions behind them.

    Raises MalformedMessage for one of more than `limit_bytes`, IndexError for one that reaches beyond `data`.
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
            raise MalformedMessage(f"a varint of more than {limit_bytes} bytes")
        byte = data.take(at[longer])
        value[longer] |= (byte & _SEVEN_BITS).astype(np.uint64) << np.uint64(7 * index)
        at[longer] += 1
        longer = longer[byte >= _MORE]
    if limit_bytes == VARINT_BYTES:
        value &= np.uint64(0xFFFF_FFFF)  # the fifth byte may carry bits that do not fit; Kafka drops them
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), at


def zigzag(values: Int64s) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_sizes(zigzagged: NDArray[np.uint64]) -> Int64s:
    """Bytes that each value takes."""
    sizes = np.ones(len(zigzagged), dtype=np.int64)
    rest = zigzagged >> np.uint64(7)
    while rest.any():
        sizes += rest != 0
        rest >>= np.uint64(7)
    return sizes


def varint_columns(zigzagged: NDArray[np.uint64], sizes: Int64s) -> tuple[Bytes, NDArray[np.bool_]]:
    """The bytes of each value in a row of its own, and which bytes of the row are its: both (values, longest)."""
    width = int(sizes.max(initial=1))
    rows = np.empty((len(zigzagged), width), dtype=np.uint8)
    used = np.empty((len(zigzagged), width), dtype=np.bool_)
    for column in range(width):
        byte = ((zigzagged >> np.uint64(7 * column)) & np.uint64(_SEVEN_BITS)).astype(np.uint8)
        rows[:, column] = np.where(sizes > column + 1, byte | _MORE, byte)
        used[:, column] = sizes > column
    return rows, used
