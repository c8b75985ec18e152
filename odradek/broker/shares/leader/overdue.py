"""Locks that ran out while the acknowledgement was pending in a transaction: the transaction is ended first.

Otherwise it could still commit: its output would be visible, and the records delivered again. So the coordinator is
asked to abort it as if it had timed out, and the abort marker gives the records back.

    the coordinator's answer     records
    a marker is coming           wait for it
    a two-phase commit           wait for its decision, however long that takes
    over long ago                are as the share coordinator has them
    none                         are given back after one more lock duration

Source: docs/spec/share-groups.md#s5-13, row 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.delayed import Deferred, NowOrLater
from odradek.broker.runtime.waiting import after, arrived, unattended
from odradek.broker.transactions.turn import OverdueFate
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.shares.core.state import PendingTransaction
    from odradek.broker.shares.leader.live_partition import LiveSharePartition

log = logging.getLogger("odradek.shares")

RETRY_MS: Final = 500


class TransactionEnder(Protocol):
    def abort_overdue(self, transactional_id: str, producer_id: int, producer_epoch: int) -> NowOrLater[OverdueFate]:
        """Raises KafkaError, or fails with it, where the coordinator cannot be asked."""


class OverdueTransactions:
    def __init__(
        self,
        coordinator: Callable[[], TransactionEnder],
        clock: Clock,
        timers: Timers,
        may_be_two_phase: Callable[[int], bool],
    ) -> None:
        """may_be_two_phase: whether a producer id takes part in two-phase commits, or may do so as far as is known"""
        self._coordinator = coordinator
        self._clock = clock
        self._timers = timers
        self._may_be_two_phase = may_be_two_phase

    def found(self, live: LiveSharePartition, transaction: PendingTransaction) -> None:
        """Has the transaction ended, in which something is pending in this share partition."""
        unattended(self._end(live, transaction))

    async def _end(self, live: LiveSharePartition, transaction: PendingTransaction) -> None:
        until_ms = self._clock.now_ms() + live.limits.lock_duration_ms
        transactional_id, producer_id, producer_epoch = transaction
        while live.holds_pending(transaction):
            if transactional_id is None:  # written by somebody else: nobody to be asked
                live.release_pending(transaction)
                return
            try:
                fate = await arrived(self._coordinator().abort_overdue(transactional_id, producer_id, producer_epoch))
            except KafkaError as error:
                is_late = self._clock.now_ms() >= until_ms
                if is_late and not self._may_be_two_phase(producer_id):
                    self._give_up(live, transaction, error)
                    return
            else:
                if fate is OverdueFate.OVER:
                    live.reread_pending(transaction)
                return
            await self._before_next_attempt(until_ms, is_late=is_late)

    def _give_up(self, live: LiveSharePartition, transaction: PendingTransaction, error: KafkaError) -> None:
        log.warning(
            "the transaction %r of producer %d cannot be ended (%s): its acknowledgements in %s are given up",
            transaction.transactional_id,
            transaction.producer_id,
            error,
            live.key,
        )
        live.release_pending(transaction)

    def _before_next_attempt(self, until_ms: int, *, is_late: bool) -> Deferred[None]:
        if not is_late:
            return after(self._timers, min(RETRY_MS, max(1, until_ms - self._clock.now_ms())))
        passed: Deferred[None] = Deferred()
        # A clock that is moved ahead brings no coordinator back, and leaves these attempts out.
        self._timers.after(RETRY_MS, Scan(partial(passed.resolve, None), RETRY_MS, lambda: None))
        return passed
