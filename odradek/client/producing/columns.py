"""Columns of Arrow → record batches for an outbox. numpy and pyarrow come with `odradek[columns]`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.client.common.values import RecordMetadata
from odradek.protocol.compression import Compression

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.columns import EncodedBatch

COLUMN_BATCH_BYTES = 256 * 1024


def encoded(
    keys: pa.Array | None,
    values: pa.Array,
    timestamps_ms: pa.Array | None,
    headers: pa.Array | None,
    batch_bytes: int,
    compression: Compression,
) -> list[EncodedBatch]:
    """All batches, so that a row that cannot be encoded is found before any of them is sent. Raises ValueError."""
    import numpy as np
    import pyarrow as pa

    from odradek.client.columns import encode

    if timestamps_ms is None:
        timestamps_ms = pa.array(np.full(len(values), time.time_ns() // 1_000_000, dtype=np.int64))
    return list(
        encode(values, timestamps_ms, keys=keys, headers=headers, batch_bytes=batch_bytes, compression=compression)
    )


def all_of(futures: Sequence[asyncio.Future[RecordMetadata]]) -> asyncio.Future[list[RecordMetadata]]:
    """Resolved when all are; fails with the first that does. It need not be awaited."""
    together: asyncio.Future[list[RecordMetadata]] = asyncio.gather(*futures)
    together.add_done_callback(lambda done: done.cancelled() or done.exception())
    return together
