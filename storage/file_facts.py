"""What is known of a file that carries no checksum of its own: its size and its CRC-32C."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from protocol.checksum import crc32c
from storage.disk import Buffer
from storage.file_names import TIME_INDEX
from storage.index import TIME_ENTRY_BYTES


class FileFacts(NamedTuple):
    """`crc` is None for a `.log`, whose batches have their own; `tail_crc` is that of the last time index entry."""

    size_bytes: int
    crc: int | None = None
    tail_crc: int | None = None

    @classmethod
    def of(cls, name: str, data: Buffer) -> "FileFacts":
        tail = crc32c(data[-TIME_ENTRY_BYTES:]) if name.endswith(TIME_INDEX) else None
        return cls(len(data), crc32c(data), tail)

    def match(self, data: Buffer) -> bool:
        return len(data) == self.size_bytes and crc32c(data) == self.crc


FactsByName: TypeAlias = Mapping[str, FileFacts]  # file name without directory


def is_as_left(left: FactsByName, name: str, data: Buffer) -> bool:
    """Whether `data` is what the clean stop left under `name`; also where nobody took note of it."""
    facts = left.get(name)
    return facts is None or facts.match(data)


NOTHING_NOTED: FactsByName = {}
