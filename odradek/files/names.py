"""Kafka's names for the files in a data directory, for partition directories, and for the files in them."""

import re
from typing import Final

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"  # suffix of a file that is about to be unlinked
CLEANED: Final = ".cleaned"  # a segment that compaction is still writing
SWAP: Final = ".swap"  # a compacted segment that is about to replace the old segments
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

# Files of the data directory itself.
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
QUORUM_STATE: Final = "quorum-state"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
MANIFEST: Final = ".odradek_manifest"  # not part of Kafka
REFUSED: Final = ".odradek_refused"  # not part of Kafka; in the directory of a partition that a start has refused

OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_DOOMED: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_MAX_DIRECTORY_NAME: Final = 255


def offset_file(offset: int, suffix: str) -> str:
    """Returns a file name such as `00000000000000000123.log`. The offset has twenty digits, so that names sort by
    offset."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Returns the offset at the beginning of a file's name, or None if the name does not begin with one."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def partition_of(directory: str) -> tuple[str, int] | None:
    """Returns the topic and partition that a directory's name contains, or None if it is not the name of a partition
    directory."""
    match = _DIRECTORY.fullmatch(directory)
    return (match["topic"], int(match["partition"])) if match else None


def doomed_directory(topic: str, partition: int, unique_hex: str) -> str:
    """Returns the name that a deleted partition's directory has until its files are removed.

    unique_hex  32 hexadecimal digits

    As in Kafka, a long topic name is shortened to fit the maximum file name length.
    """
    ending = f"-{partition}.{unique_hex}-delete"
    return topic[: _MAX_DIRECTORY_NAME - len(ending)] + ending


def stray_directory(topic: str, partition: int, unique_hex: str) -> str:
    """Returns Kafka's name for a directory set aside because it belongs to no partition. Long topic names are
    shortened, as in `doomed_directory`."""
    ending = f"-{partition}.{unique_hex}-stray"
    return topic[: _MAX_DIRECTORY_NAME - len(ending)] + ending


def is_doomed_directory(directory: str) -> bool:
    return _DOOMED.fullmatch(directory) is not None
