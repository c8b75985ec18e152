"""Reads Odradek or Apache Kafka logs from their directories without a broker, even while they are being written.

directories   the partitions below a path, and the checkpoints that concern them
segments      the valid segments of a partition, and the position of an offset or timestamp in them
walk          batch headers and complete batches, up to the end of the log or the first damage
transactions  the transactions in the batches, with their aborted ranges and the last stable offset
survey        the bounds, aborted transactions and starting points for readers of a partition
tables        table rows about the transactions, producers, segments and bounds of a partition

Nothing is locked or written. A file is read with `pread` up to the size that it had when it was listed, so that a
broker may append, compact and delete at the same time.
"""

from odradek.files.offline.directories import NoLogs, PartitionLog, partitions_at
from odradek.files.offline.segments import SegmentFile, segments_of
from odradek.files.offline.walk import DamagedLog, Stretch, headers, stretches

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
