"""Tests that records are assigned to the same partitions as by Kafka's Java client."""

import random
from collections import Counter

import pytest

from odradek.client.producing.partitioner import StickyChoice
from odradek.protocol.key_partition import murmur2, partition_for_key


# The hashes from Kafka's own unit test, keyed by the bytes of the record key.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_negative_hash_still_finds_a_partition() -> None:
    assert {partition_for_key(b"21", count) for count in range(1, 50)} <= set(range(50))
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_records_without_key_stay_with_a_partition_for_a_batch() -> None:
    choice = StickyChoice(1_000, random.Random(1))
    places = [choice.partition(100, 50) for _ in range(1_000)]
    for start in range(0, 1_000, 10):
        assert len(set(places[start : start + 10])) == 1


def test_all_partitions_get_about_the_same() -> None:
    choice = StickyChoice(1_000, random.Random(1))
    share = Counter(choice.partition(100, 4) for _ in range(40_000))
    assert set(share) == {0, 1, 2, 3}
    assert max(share.values()) < 1.2 * min(share.values())


def test_a_topic_that_shrank_is_chosen_from_anew() -> None:
    """Checks that a sticky partition is replaced if its topic was recreated with fewer partitions."""
    choice = StickyChoice(1_000_000, random.Random(3))
    while choice.partition(1, 8) < 2:
        choice = StickyChoice(1_000_000, random.Random())
    assert choice.partition(1, 2) in {0, 1}
