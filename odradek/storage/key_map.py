"""Stores the latest offset of every key in a range of a log, in bounded memory.

Kafka uses a table of `log.cleaner.dedupe.buffer.size` bytes, with 24 bytes for each key (a hash of 16 bytes and the
offset). In Python, a custom hash table would be ten times slower than a dict, so this module uses a dict, which stores
fewer keys in the same memory. A log with more keys needs several passes, each continuing where the previous pass ended.
"""

from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 160  # measured size of a dict entry (at two thirds full), its key and its offset
_HASH_BYTES: Final = 16


class KeyMap:
    """A map from keys to offsets. It stores keys of fewer than 16 bytes unchanged, and a 16-byte hash of every other
    key. Like Kafka, it assumes that no two 128-bit hashes collide."""

    __slots__ = ("_capacity", "_latest", "end_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._capacity = max(1, memory_bytes // ENTRY_BYTES)
        self._latest: dict[bytes, int] = {}
        self.end_offset = 0  # the map contains every key below this offset

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def is_full(self) -> bool:
        return len(self._latest) >= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Stores a key's latest offset. Callers must pass ascending offsets."""
        self._latest[key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()] = offset
        self.end_offset = offset + 1

    def latest(self, key: bytes) -> int:
        """Returns the key's latest offset, or -1 if the range does not contain it."""
        return self._latest.get(key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest(), -1)
