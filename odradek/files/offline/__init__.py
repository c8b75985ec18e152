"""Logs read from their directories, without a broker: of Odradek or Apache Kafka, at rest or being written.

    directories   which partitions lie below a path, and what the checkpoints beside them say
    segments      the segments of a partition that count, and where in them an offset or a timestamp lies
    walk          batch headers and whole batches, up to where a log ends or is damaged
    transactions  what the batches say about transactions: aborted ranges, the last stable offset
    producers     what a snapshot says about the producers before it

Nothing is locked and nothing is written. A file is read up to the size that it had when it was listed, by `pread`, so
that a broker may append, compact and delete meanwhile.
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
