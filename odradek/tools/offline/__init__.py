"""Reads logs from their directories, without a broker. This module re-exports the public names of
`odradek.files.offline`."""

from odradek.files.offline import (
    DamagedLog,
    NoLogs,
    PartitionLog,
    SegmentFile,
    Stretch,
    headers,
    partitions_at,
    segments_of,
    stretches,
)

__all__ = [
    "DamagedLog",
    "NoLogs",
    "PartitionLog",
    "SegmentFile",
    "Stretch",
    "headers",
    "partitions_at",
    "segments_of",
    "stretches",
]
