"""Encodes and decodes the manifest of a clean shutdown, which contains the size and CRC-32C of each file that has no
checksum of its own.

The facts about a file are a string of the form `size/crc`. These strings are only compared for equality, and every
start reads the facts about all files of all logs, so converting the strings to numbers would waste time. Layout:
docs/formats/checkpoints.md.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final, TypeAlias

from odradek.files.names import TIME_INDEX
from odradek.files.structures import TIME_INDEX_ENTRY
from odradek.protocol.checksum import crc32c
from odradek.protocol.struct import Buffer

_VERSION: Final = "0"
_TIME_ENTRY_BYTES: Final = TIME_INDEX_ENTRY.size_bytes

FactsByName: TypeAlias = Mapping[str, str]  # by file name, without the directory

NO_FACTS: Final[FactsByName] = {}


def facts_of(name: str, data: Buffer) -> str:
    """Returns the facts about a file as `size/crc`, or `size/crc/crc of the last entry` for a time index."""
    if name.endswith(TIME_INDEX):
        return f"{len(data)}/{crc32c(data)}/{crc32c(data[-_TIME_ENTRY_BYTES:])}"
    return f"{len(data)}/{crc32c(data)}"


def facts_of_log(size_bytes: int) -> str:
    """Returns the facts about a `.log` file. They contain no CRC, because each batch has its own."""
    return f"{size_bytes}"


def is_as_left(left: FactsByName, name: str, data: Buffer) -> bool:
    """Returns whether `data` is unchanged since the clean shutdown. The function also returns True if the manifest does
    not contain the file."""
    facts = left.get(name)
    return facts is None or facts == facts_of(name, data)


def is_last_entry_as_left(left: FactsByName, name: str, size_bytes: int, entry: Buffer) -> bool:
    """Like `is_as_left`, but for a time index if only its last entry has been read."""
    facts = left.get(name)
    if facts is None:
        return True
    size, _, crc = facts.split("/")
    return (size, crc) == (str(size_bytes), str(crc32c(entry)))


def encode_manifest(broker_epoch: int, directories: Mapping[str, FactsByName]) -> bytes:
    """Encodes a manifest.

    directories   facts by name of the directory within the data directory; "." is the data directory itself
    """
    lines = [str(broker_epoch)]
    for directory, files in directories.items():
        lines.append(" ".join([directory, *chain.from_iterable(files.items())]))
    body = "".join(f"{line}\n" for line in lines).encode()
    return f"{_VERSION} {crc32c(body)}\n".encode() + body


def decode_manifest(data: bytes, broker_epoch: int | None) -> dict[str, dict[str, str]] | None:
    """Decodes a manifest. Returns None if it is damaged or has a different broker epoch."""
    head, _, body = data.partition(b"\n")
    if head != f"{_VERSION} {crc32c(body)}".encode():
        return None
    epoch, *lines = body.decode().splitlines()
    if epoch != str(broker_epoch):
        return None
    directories = {}
    for line in lines:
        directory, *facts = line.split(" ")
        directories[directory] = dict(zip(facts[::2], facts[1::2], strict=True))
    return directories
