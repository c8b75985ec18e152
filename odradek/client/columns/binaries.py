"""Arrow binary arrays from and into plain bytes: the copies are Arrow's, in C++."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.client.columns.varints import Bytes, Int64s

_INLINE_BYTES = 12  # a view holds values up to here itself; of longer ones their place
READABLE_BEHIND = _INLINE_BYTES  # bytes that must be readable behind the last value
_INLINE = np.dtype(f"V{_INLINE_BYTES}")
# The first four bytes of a long value, and the number of its buffer (0), stay empty: Arrow's cast reads neither.
_VIEW = np.dtype(
    {"names": ["size", "inline", "place"], "formats": ["<i4", _INLINE, "<i4"], "offsets": [0, 4, 12], "itemsize": 16}
)


def gather(data: pa.Buffer, source: Bytes, starts: Int64s, sizes: Int64s) -> pa.Array:
    """A binary array of `sizes[i]` bytes from `starts[i]` on; a negative size is null.

    `source` is `data` as numpy sees it, with READABLE_BEHIND bytes behind the last value. The values are copied out.
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
    """A binary array whose value i is made of the used bytes of row i, in their order."""
    ends = np.cumsum(used.sum(axis=1), dtype=np.int64)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows[used]))]
    )


def content_of(array: pa.Array) -> memoryview:
    """All values of a binary array without nulls, one after the other."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    return memoryview(data if data is not None else b"")[int(offsets[0]) : int(offsets[-1])]
