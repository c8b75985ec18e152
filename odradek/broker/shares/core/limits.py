"""The settings of a share group that apply to a share partition. They are read for each decision."""

from __future__ import annotations

from typing import NamedTuple

LAST_ATTEMPT_ALONE_ABOVE = 2  # with a smaller limit every second delivery would be of one record


class Limits(NamedTuple):
    """The group's value, or the broker's where the group has none.

    delivery_count_limit     share.delivery.count.limit
    max_record_locks         share.partition.max.record.locks: how many offsets may be in flight
    lock_duration_ms         share.record.lock.duration.ms
    renew_enabled            share.renew.acknowledge.enable
    """

    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    lock_duration_ms: int = 30_000
    renew_enabled: bool = True

    @property
    def throttled_from(self) -> int:
        """Records that were delivered this often go out in ever smaller numbers."""
        return max(2, (self.delivery_count_limit + 1) // 2)

    @property
    def last_attempt(self) -> int | None:
        """A record that was delivered this often is delivered for the last time, and alone. None: it need not be."""
        limit = self.delivery_count_limit
        return limit - 1 if limit > LAST_ATTEMPT_ALONE_ABOVE else None
