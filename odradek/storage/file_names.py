"""The names that Kafka gives to a partition's directory and to the files in it; and facts about a file that carries no
checksum of its own: its size and its CRC-32C.

Facts are text, as the manifest has them, `size/crc`, and are only ever compared: a start reads those of every file of
every log, and has no time to make numbers of them.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from odradek.protocol.checksum import crc32c
from odradek.storage.disk import Buffer
from odradek.storage.index import TIME_ENTRY_BYTES

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"  # behind the name of a file that waits to be unlinked
CLEANED: Final = ".cleaned"  # a segment that compaction is still writing
SWAP: Final = ".swap"  # a segment that compaction has finished, about to take the place of the old ones
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_DOOMED: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_MAX_DIRECTORY_NAME: Final = 255


def offset_file(offset: int, suffix: str) -> str:
    """`00000000000000000123.log`, for instance: twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset that a file's name begins with; None for a file that is not named by one."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def partition_of(directory: str) -> tuple[str, int] | None:
    """The topic and partition that a directory's name stands for; None for any other directory."""
    match = _DIRECTORY.fullmatch(directory)
    return (match["topic"], int(match["partition"])) if match else None


def doomed_directory(topic: str, partition: int, unique_hex: str) -> str:
    """The name a partition's directory bears from its deletion until its files are gone.

    unique_hex  32 hexadecimal digits. As in Kafka a long topic name is cut so that the whole fits a file name.
    """
    ending = f"-{partition}.{unique_hex}-delete"
    return topic[: _MAX_DIRECTORY_NAME - len(ending)] + ending


def stray_directory(topic: str, partition: int, unique_hex: str) -> str:
    """The name under which a directory is set aside that belongs to no partition; Kafka's, and cut as above."""
    ending = f"-{partition}.{unique_hex}-stray"
    return topic[: _MAX_DIRECTORY_NAME - len(ending)] + ending


def is_doomed_directory(directory: str) -> bool:
    return _DOOMED.fullmatch(directory) is not None


FactsByName: TypeAlias = Mapping[str, str]  # by file name without directory

NOTHING_NOTED: Final[FactsByName] = {}


def facts_of(name: str, data: Buffer) -> str:
    """`size/crc`; of a time index `size/crc/crc of the last entry`."""
    if name.endswith(TIME_INDEX):
        return f"{len(data)}/{crc32c(data)}/{crc32c(data[-TIME_ENTRY_BYTES:])}"
    return f"{len(data)}/{crc32c(data)}"


def facts_of_log(size_bytes: int) -> str:
    """A `.log`: its batches have CRCs."""
    return f"{size_bytes}"


def is_as_left(left: FactsByName, name: str, data: Buffer) -> bool:
    """Whether `data` is what the clean stop left under `name`; also where nobody took note of it."""
    facts = left.get(name)
    return facts is None or facts == facts_of(name, data)


def is_last_entry_as_left(left: FactsByName, name: str, size_bytes: int, entry: Buffer) -> bool:
    """The same of a time index of which only the last entry was read."""
    facts = left.get(name)
    if facts is None:
        return True
    size, _, crc = facts.split("/")
    return (size, crc) == (str(size_bytes), str(crc32c(entry)))
