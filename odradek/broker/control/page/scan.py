"""Records of one id in the partition of an internal topic, which it shares with many others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.batch_header import batches
from odradek.protocol.records import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from odradek.protocol.records import Record


def records_naming(name: bytes, portions: Iterable[bytes]) -> Iterator[Record]:
    """Those that may name it: of batches that hold its bytes, or are compressed. The others are not decoded."""
    for portion in portions:
        for position, header in batches(portion):
            if header.is_compressed or portion.find(name, position, position + header.size_bytes) >= 0:
                yield from records_of(portion, position)
