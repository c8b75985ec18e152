"""The iteration order of Java's hash maps and sets.

Kafka's assignors depend on this order, so this broker's assignors use the same order to produce the same results. No
other code may depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import mul
from struct import unpack
from typing import TypeVar

T = TypeVar("T")

MIN_BUCKETS = 16
FILLED = 3, 4  # the fraction 3/4: a map grows when it is more than three quarters full
MASK = 0xFFFFFFFF
POWER_COUNT = 256
POWERS = [pow(31, exponent, 1 << 32) for exponent in range(POWER_COUNT - 1, -1, -1)]
GOLDEN = 0x9E3779B9  # the multiplier of Fibonacci hashing, derived from the golden ratio


def in_hash_order(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Sorts items by hash bucket. Items in the same bucket keep the given order. `hash_of` returns Java's `hashCode` as
    an unsigned 32-bit number."""
    items = list(items)
    buckets = MIN_BUCKETS
    while len(items) * FILLED[1] > buckets * FILLED[0]:
        buckets *= 2

    return sorted(items, key=lambda item: spread(hash_of(item)) & (buckets - 1))


def spread(hash_code: int) -> int:
    """Mixes the high bits of a hash code into the low bits, because only the low bits select the bucket."""
    return hash_code ^ hash_code >> 16


def hash_of_text(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    count = len(data) // 2
    units = unpack(f">{count}H", data)
    # Topic names and most ids are short enough to be multiplied with POWERS, which is several times as fast as the
    # loop.
    if count <= POWER_COUNT:
        total: int = sum(map(mul, units, POWERS[POWER_COUNT - count :]))
        return total & MASK
    value = 0
    for unit in units:
        value = (value * 31 + unit) & MASK
    return value


def hash_of_uuid(uuid: bytes) -> int:
    both = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (both >> 32 ^ both) & MASK


def hash_of_int(value: int) -> int:
    return value & MASK


def compared_as_java_does(text: str) -> bytes:
    """Returns a sort key for the order of `String.compareTo`, which compares UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def in_timeline_order(names: Iterable[str]) -> list[str]:
    """Returns names in the iteration order of `TimelineHashMap`, Kafka's own hash table. `names` must be in insertion
    order.

    The high bits of the multiplied hash code select a slot. Within a slot, the most recently added name comes first.
    Kafka's table does not shrink when names are removed. This function derives the size from the current names, because
    a restart of Kafka resets the size anyway.
    """
    last_first = [*names][::-1]
    bits = 2
    while len(last_first) * 8 > 9 << bits:
        bits += 1
    return sorted(last_first, key=lambda name: (hash_of_text(name) * GOLDEN & MASK) >> 32 - bits)
