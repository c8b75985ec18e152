"""Tests the cache of recently appended batches. All logs share its memory budget."""

from random import Random

import pytest

from odradek.storage.appended import StagedBatch
from odradek.storage.staging import ENTRY_OVERHEAD_BYTES, LogTail, TailCache


def add(tail: LogTail, base_offset: int, position: int, *batches: bytes) -> None:
    staged = [StagedBatch(batch, len(batch), base_offset + at, base_offset + at, 0) for at, batch in enumerate(batches)]
    tail.add(position, staged)


def tail_of(*batches: bytes) -> LogTail:
    tail = TailCache().new_tail()
    add(tail, 10, 100, *batches)
    return tail


def read(tail: LogTail, start: int, end: int | None, max_bytes: int) -> tuple[bytes, int, int] | None:
    found = tail.read(start, end, max_bytes)
    return None if found is None else (b"".join(found[0]), found[1], found[2])


@pytest.mark.parametrize(
    ("start", "end", "max_bytes", "data", "position"),
    [
        (10, None, 100, b"aaabbbbcc", 100),
        (11, None, 100, b"bbbbcc", 103),
        (12, None, 100, b"cc", 107),
        (10, 12, 100, b"aaabbbb", 100),
        (10, 11, 100, b"aaa", 100),
        (10, None, 5, b"aaabb", 100),  # the last batch is cut off
        (10, None, 7, b"aaabbbb", 100),
        (10, None, 8, b"aaabbbbc", 100),
        (10, None, 2, b"aaa", 100),  # the first batch is returned completely
        (11, None, 0, b"bbbb", 103),
        (10, 12, 8, b"aaabbbb", 100),
    ],
)
def test_cached_batches_are_cut_like_a_read_of_the_file(
    start: int, end: int | None, max_bytes: int, data: bytes, position: int
) -> None:
    assert read(tail_of(b"aaa", b"bbbb", b"cc"), start, end, max_bytes) == (data, len(data), position)


def test_offsets_before_the_first_cached_batch_are_not_in_the_cache() -> None:
    assert tail_of(b"a").read(9, None, 10) is None
    assert TailCache().new_tail().read(0, None, 10) is None


def test_batches_of_several_records_are_found_by_any_of_their_offsets() -> None:
    tail = TailCache().new_tail()
    tail.add(0, [StagedBatch(b"abc", 3, 0, 9, 0), StagedBatch(b"def", 3, 10, 19, 0)])
    assert read(tail, 4, None, 3) == (b"abc", 3, 0)
    assert read(tail, 15, None, 3) == (b"def", 3, 3)


def test_the_budget_is_shared_and_what_came_first_goes_first() -> None:
    cost = 10 + ENTRY_OVERHEAD_BYTES
    cache = TailCache(budget_bytes=3 * cost)
    one, other = cache.new_tail(), cache.new_tail()
    add(one, 0, 0, b"1" * 10)
    add(other, 0, 0, b"2" * 10)
    add(one, 1, 10, b"3" * 10)
    assert cache.used_bytes == 3 * cost
    add(other, 1, 10, b"4" * 10)
    assert one.read(0, None, 10) is None
    assert read(one, 1, None, 10) == (b"3" * 10, 10, 10)
    add(other, 2, 20, b"5" * 10)
    assert other.read(0, None, 10) is None
    assert read(one, 1, None, 10) == (b"3" * 10, 10, 10)


def test_a_batch_larger_than_the_budget_is_not_kept() -> None:
    cache = TailCache(budget_bytes=100)
    tail = cache.new_tail()
    add(tail, 0, 0, b"x" * 1000)
    assert cache.used_bytes == 0
    assert tail.read(0, None, 10) is None


def test_clearing_one_log_gives_its_bytes_back_and_leaves_the_others() -> None:
    cache = TailCache(budget_bytes=2 * (10 + ENTRY_OVERHEAD_BYTES))
    one, other = cache.new_tail(), cache.new_tail()
    add(one, 0, 0, b"1" * 10)
    one.clear()
    assert cache.used_bytes == 0
    add(other, 0, 0, b"2" * 10)
    add(one, 7, 0, b"3" * 10)
    assert read(other, 0, None, 10) == (b"2" * 10, 10, 0)
    assert read(one, 7, None, 10) == (b"3" * 10, 10, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_holds_and_every_read_is_right_whatever_happens(seed: int) -> None:
    random = Random(seed)
    cache = TailCache(budget_bytes=random.choice([500, 5_000, 50_000]))
    tails = [cache.new_tail() for _ in range(3)]
    files = [b"" for _ in tails]
    starts = [[0] for _ in tails]  # by log: the position of the batch at each offset, followed by the end
    for _ in range(3_000):
        which = random.randrange(3)
        tail = tails[which]
        step = random.random()
        if step < 0.02:
            tail.clear()
            files[which], starts[which] = b"", [0]
        elif step < 0.6:
            batches = [bytes([random.randrange(256)]) * random.randint(1, 40) for _ in range(random.randint(1, 5))]
            add(tail, len(starts[which]) - 1, len(files[which]), *batches)
            for batch in batches:
                files[which] += batch
                starts[which].append(len(files[which]))
        elif len(starts[which]) > 1:
            start = random.randrange(len(starts[which]) - 1)
            max_bytes = random.randint(1, 100)
            found = read(tail, start, None, max_bytes)
            if found is not None:
                position = starts[which][start]
                size = max(max_bytes, starts[which][start + 1] - position)
                assert found[0] == files[which][position : position + size]
                assert found[2] == position
        assert 0 <= cache.used_bytes <= 50_000
