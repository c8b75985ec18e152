"""Assigns keys to partitions with the same hash as Kafka's Java client."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the unsigned 32-bit MurmurHash2 (by Austin Appleby) of `data`, with the seed that Kafka's clients use."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if length != whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition for a key. Every client that hashes like the Java client chooses the same partition."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
