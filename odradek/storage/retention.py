"""Which of the oldest segments may be deleted: a pure decision, in Kafka's order and with Kafka's limits."""

from collections.abc import Callable, Sequence

from odradek.storage.log_config import LogConfig
from odradek.storage.segment import Segment

FOREVER_MS = 2**62


def count_deletable(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    relied_on_from: int | None = None,
) -> int:
    """How many segments, from the oldest on, are to be deleted. All of them means: roll first, then delete.

    1. those wholly below the log start offset, whatever `cleanup.policy` says; then, where it says `delete`,
    2. as many as leave at least `retention.bytes`,
    3. those whose largest timestamp is more than `retention.ms` ago.

    relied_on_from  from this offset on nothing goes by size or age: somebody outside has yet to decide about it
    """
    next_bases = [segment.base_offset for segment in segments[1:]]

    def prefix(first: int, is_past: Callable[[Segment, int | None], bool], limit: int = high_watermark) -> int:
        for at in range(first, len(segments)):
            segment, next_base = segments[at], next_bases[at] if at < len(next_bases) else None
            is_empty_active = next_base is None and segment.size_bytes == 0
            if is_empty_active or (next_base or high_watermark) > limit or not is_past(segment, next_base):
                return at
        return len(segments)

    count = prefix(0, lambda _, next_base: next_base is not None and next_base <= log_start_offset)
    if not config.is_deleted:
        return count
    undecided = high_watermark if relied_on_from is None else relied_on_from
    if config.retention_bytes is not None:
        surplus = sum(segment.size_bytes for segment in segments[count:]) - config.retention_bytes

        def is_surplus(segment: Segment, _: int | None) -> bool:
            nonlocal surplus
            if surplus < segment.size_bytes:
                return False
            surplus -= segment.size_bytes
            return True

        count = prefix(count, is_surplus, undecided)
    if config.retention_ms is not None:
        oldest_ms = now_ms - config.retention_ms
        count = prefix(count, lambda segment, _: segment.largest_timestamp() < oldest_ms, undecided)
    return count


def deletable_from_ms(
    segments: Sequence[Segment], config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int
) -> int | None:
    """From when on `count_deletable` is more than 0 as things stand, `now_ms` or later; None: never."""

    def count(at_ms: int) -> int:
        return count_deletable(
            segments, config, log_start_offset=log_start_offset, high_watermark=high_watermark, now_ms=at_ms
        )

    if count(now_ms):
        return now_ms
    if config.retention_ms is None or not count(FOREVER_MS):
        return None
    return segments[0].largest_timestamp() + config.retention_ms + 1
