"""The latest offset of every key in a stretch of a log, in bounded memory.

Kafka's table takes `log.cleaner.dedupe.buffer.size` bytes, 24 for each key (a hash of 16 and the offset). In Python, a
table that has to be probed would be ten times slower than a dict, so this is a dict. It holds fewer keys in the same
memory; a log with more keys takes more passes, each of which continues where the last one ended.
"""

from hashlib import blake2b
from typing import Final

ENTRY_BYTES: Final = 160  # of the dict (at two thirds full), the key and the offset, measured
_HASH_BYTES: Final = 16


class KeyMap:
    """Full keys below 16 bytes, hashes of 16 bytes of all others: as in Kafka, two keys may not collide in 128 bits."""

    __slots__ = ("_capacity", "_latest", "end_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._capacity = max(1, memory_bytes // ENTRY_BYTES)
        self._latest: dict[bytes, int] = {}
        self.end_offset = 0  # the map knows every record below, from where it began

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def is_full(self) -> bool:
        return len(self._latest) >= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Offsets come in ascending order."""
        self._latest[key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()] = offset
        self.end_offset = offset + 1

    def latest(self, key: bytes) -> int:
        """-1 for a key that the stretch does not hold."""
        return self._latest.get(key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest(), -1)
