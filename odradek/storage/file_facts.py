"""What is known of a file that carries no checksum of its own: its size and its CRC-32C.

Facts are text, as the manifest has them, `size/crc`, and are only ever compared: a start reads those of every file of
every log, and has no time to make numbers of them.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from odradek.protocol.checksum import crc32c
from odradek.storage.disk import Buffer
from odradek.storage.file_names import TIME_INDEX
from odradek.storage.index import TIME_ENTRY_BYTES

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
