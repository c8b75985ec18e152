"""Applies transaction markers in `__share_group_state` to pending acknowledgements, both stored and in memory.

    control batch in the log → StateCore: stored state → leaders: state in memory

Source: docs/spec/share-groups.md#s5-6, #s5-12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.shares.core.state import FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK, TransactionEnd
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.shares.leader.shares import SharePartitionManager


class ShareMarkers:
    def __init__(
        self, coordinator: Callable[[], ShareCoordinator], shares: Callable[[], SharePartitionManager | None]
    ) -> None:
        """`shares` returns None until this broker process has received its first share request."""
        self._coordinator = coordinator
        self._shares = shares

    def require_loaded(self, index: int) -> None:
        """Raises KafkaError unless this broker currently serves this partition of `__share_group_state`."""
        self._coordinator().shard_of(index).read_state(lambda _: None)

    def apply_marker(self, index: int, ending: TransactionEnd) -> None:
        """Applies a marker that has been appended to this partition.

        Raises REQUEST_TIMED_OUT if an additional record cannot be written. The marker is then sent again, and the same
        acknowledgements are still pending.
        """
        shard = self._coordinator().shard_of(index)
        shard.complete_transaction(ending.producer_id, ending.producer_epoch, committed=ending.is_commit)
        if ending.transaction_version < FIRST_LEVEL_WITH_MARKER_EPOCH_CHECK:
            try:
                shard.submit(lambda core, now_ms: core.end_transaction(ending, now_ms))
            except KafkaError as error:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error
        shares = self._shares()
        if shares is not None:
            shares.end_transaction(ending)

    def reread_states(self, ending: TransactionEnd) -> None:
        """Makes leaders on this broker reread their state, because the broker that stores the state has appended a
        marker."""
        shares = self._shares()
        if shares is not None:
            shares.reread_pending(ending)
