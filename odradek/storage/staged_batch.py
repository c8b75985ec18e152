"""One batch on its way into a segment, as the parts of a log tell each other of it."""

from dataclasses import dataclass

from odradek.storage.disk import Buffer


@dataclass(slots=True)
class StagedBatch:
    batch: Buffer
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
