"""Markers in `__share_group_state`: their effect on pending acknowledgements, stored and in memory.

    control batch in the log → StateCore: stored state → leaders: state in memory

Source: docs/spec/share-groups.md#s5-6, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.shares.core.state import EPOCH_TELLS_SINCE, Ending
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.shares.leader.shares import Shares


class ShareMarkers:
    def __init__(self, coordinator: Callable[[], ShareCoordinator], shares: Callable[[], Shares | None]) -> None:
        """shares: None while nothing has been shared by this process"""
        self._coordinator = coordinator
        self._shares = shares

    def require_loaded(self, index: int) -> None:
        """Raises KafkaError unless this partition of `__share_group_state` is served here and now."""
        self._coordinator().shard_of(index).look(lambda _: None)

    def end(self, index: int, ending: Ending) -> None:
        """Its marker was appended to this partition. Raises REQUEST_TIMED_OUT where the rest cannot be: it is to be
        sent again, and finds what is pending as it was."""
        shard = self._coordinator().shard_of(index)
        shard.complete_transaction(ending.producer_id, ending.producer_epoch, committed=ending.is_commit)
        if ending.transaction_version < EPOCH_TELLS_SINCE:
            try:
                shard.submit(lambda core, now_ms: core.end_transaction(ending, now_ms))
            except KafkaError as error:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error
        shares = self._shares()
        if shares is not None:
            shares.end_transaction(ending)

    def check(self, ending: Ending) -> None:
        """A marker without partitions: one of another broker was appended to the state of share partitions that are
        led here. What is stored says what it did."""
        shares = self._shares()
        if shares is not None:
            shares.reread_pending(ending)
