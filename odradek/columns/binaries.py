"""Arrow binary arrays from and into plain bytes: the copies are Arrow's, in C++."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.columns.varints import Bytes, Int64s

_INLINE_BYTES = 12  # a view holds values up to here itself; of longer ones the first four bytes and their place
_PREFIX_BYTES = 4
_VIEW_BYTES = 16
READABLE_BEHIND = _INLINE_BYTES  # bytes that must be readable behind the last value


def gather(data: pa.Buffer, source: Bytes, starts: Int64s, sizes: Int64s) -> pa.Array:
    """A binary array of `sizes[i]` bytes from `starts[i]` on; a negative size is null.

    `source` is `data` as numpy sees it, with READABLE_BEHIND bytes behind the last value. The values are copied out.
    """
    count = len(starts)
    present = sizes >= 0
    lengths = sizes if (is_whole := bool(present.all())) else np.where(present, sizes, 0)
    views = np.zeros((count, _VIEW_BYTES), dtype=np.uint8)
    fields = views.view(np.int32)
    fields[:, 0] = lengths
    short = lengths <= _INLINE_BYTES
    if short.any():
        rows = slice(None) if short.all() else np.flatnonzero(short)
        inline = _windows(source, starts[rows] if is_whole else np.where(present[rows], starts[rows], 0), _INLINE_BYTES)
        if (lengths[rows] < _INLINE_BYTES).any():
            inline[np.arange(_INLINE_BYTES) >= lengths[rows][:, None]] = 0
        views[rows, 4:] = inline
    if not short.all():
        rows = np.flatnonzero(~short) if short.any() else slice(None)
        views[rows, 4:8] = _windows(source, starts[rows], _PREFIX_BYTES)
        fields[rows, 3] = starts[rows]  # in buffer 0
    validity = None if is_whole else pa.py_buffer(np.packbits(present, bitorder="little"))
    array = pa.Array.from_buffers(pa.binary_view(), count, [validity, pa.py_buffer(views), data])
    return array.cast(pa.binary())


def _windows(source: Bytes, starts: Int64s, size: int) -> Bytes:
    """`size` bytes from each start on, in rows."""
    every = np.ndarray((max(len(source) - size + 1, 0),), dtype=f"V{size}", buffer=source, strides=(1,))
    return every[starts].view(np.uint8).reshape(len(starts), size)


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
