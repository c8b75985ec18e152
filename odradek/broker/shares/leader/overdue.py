"""Ends transactions holding records whose acquisition locks have expired.

If such records were delivered again immediately, the transaction might still commit, and its output would become
visible even though the records are processed again. The transaction coordinator therefore aborts the transaction as if
it had timed out, and the abort marker releases the records.

    the coordinator's response   what happens to the records
    a marker is coming           they wait for the marker
    a two-phase commit           they wait for its decision, however long that takes
    ended long ago               they get the state that the share coordinator has stored
    no response                  they are released after one more lock duration

Source: docs/spec/share-groups.md#s5-13, row 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.runtime.clock import Scan
from odradek.broker.runtime.waiting import Deferred, NowOrLater, sleep, start_unattended, wait_for_answer
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
        """Aborts the transaction. If the coordinator is unavailable, raises KafkaError or returns a result that fails
        with it."""


class OverdueTransactions:
    def __init__(
        self,
        coordinator: Callable[[], TransactionEnder],
        clock: Clock,
        timers: Timers,
        may_be_two_phase: Callable[[int], bool],
    ) -> None:
        """`may_be_two_phase` returns whether the producer with this id takes part, or may take part, in two-phase
        commits."""
        self._coordinator = coordinator
        self._clock = clock
        self._timers = timers
        self._may_be_two_phase = may_be_two_phase

    def end_transaction(self, live: LiveSharePartition, transaction: PendingTransaction) -> None:
        """Starts ending the transaction, which has pending acknowledgements in this share partition."""
        start_unattended(self._abort_until_ended(live, transaction))

    async def _abort_until_ended(self, live: LiveSharePartition, transaction: PendingTransaction) -> None:
        until_ms = self._clock.now_ms() + live.limits.lock_duration_ms
        transactional_id, producer_id, producer_epoch = transaction
        while live.holds_pending(transaction):
            if transactional_id is None:  # stored by other software; without the id, the coordinator is unknown
                live.release_pending(transaction)
                return
            try:
                fate = await wait_for_answer(
                    self._coordinator().abort_overdue(transactional_id, producer_id, producer_epoch)
                )
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
            "the transaction %r of producer %d cannot be ended (%s), so its acknowledgements in %s are discarded",
            transaction.transactional_id,
            transaction.producer_id,
            error,
            live.key,
        )
        live.release_pending(transaction)

    def _before_next_attempt(self, until_ms: int, *, is_late: bool) -> Deferred[None]:
        if not is_late:
            return sleep(self._timers, min(RETRY_MS, max(1, until_ms - self._clock.now_ms())))
        passed: Deferred[None] = Deferred()
        # With a `Scan`, a test can move its clock ahead without repeating these attempts, which would fail again: time
        # alone does not make the coordinator available.
        self._timers.after(RETRY_MS, Scan(partial(passed.resolve, None), RETRY_MS, lambda: None))
        return passed
