"""A share partition on its leader. It connects the decision core with the log, the lock timer, state writes and waiting
fetches.

    LOADING → ACTIVE → GONE     GONE after a fencing error, the topic's deletion, or the end of the last session

A fetch that finds the share partition GONE loads a new one. Source: docs/spec/share-groups.md#s2-7, #s3-7, #s3-9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.configuration.topic_settings import BY_DURATION, duration_ms
from odradek.broker.runtime.waiting import Deferred, NowOrLater, in_thread, start_unattended
from odradek.broker.shares.core.in_flight import Acknowledgement, StateWrite
from odradek.broker.shares.core.partition import SharePartition
from odradek.broker.shares.core.state import (
    UNDECIDED_START_OFFSET,
    PendingTransaction,
    SharePartitionKey,
    TransactionEnd,
)
from odradek.broker.shares.leader.group_settings import EARLIEST, LATEST, ShareGroupSettings
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import Persister
    from odradek.broker.partitions.partition import Partition
    from odradek.broker.runtime.clock import Clock, TimerHandle, Timers
    from odradek.broker.runtime.workers import Workers
    from odradek.broker.shares.core.dead_letters import DeadLetter

log = logging.getLogger("odradek.shares")

# Errors indicating that this leader has lost the right to write.
FENCING: Final = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)


class SharePartitionPhase(Enum):
    LOADING = auto()
    ACTIVE = auto()
    GONE = auto()


class Waiter(Protocol):
    def wake(self) -> None: ...


class LiveSharePartition:
    """A share partition that this broker leads, with its state in memory.

    failure            why loading failed; None if loading has not failed
    is_reading         whether a fetch is reading from disk for this share partition; if so, other fetches skip it
    state_epoch        the state epoch of every state write
    leader_epoch       the leader epoch of every state write
    limits             the group's settings that affect decisions
    is_read_committed  whether the group receives only the records of committed transactions
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        *,
        persister: Persister,
        settings: ShareGroupSettings,
        clock: Clock,
        lock_clock: Clock,
        timers: Timers,
        workers: Workers,
        call_soon: Callable[[Callable[[], None]], object],
        on_gone: Callable[[LiveSharePartition], None],
        has_session: Callable[[SharePartitionKey, str], bool],
        on_overdue: Callable[[LiveSharePartition, PendingTransaction], None],
        on_pending: Callable[[LiveSharePartition], None],
        on_dead_letters: Callable[[LiveSharePartition, Sequence[DeadLetter]], None],
    ) -> None:
        """Creates the share partition in the phase LOADING; `load` starts reading its state.

        lock_clock       the clock that measures acquisition locks
        has_session      returns whether a member still fetches this share partition from this broker
        on_overdue       called with a transaction if locks expire while acknowledgements are pending in it
        on_pending       called after loading and after a transactional acknowledgement, because `producer_ids` may have
                         grown
        on_dead_letters  called with records that are stored as ARCHIVING; copies them and then calls `archive_copied`
        """
        self.key = key
        self.partition = partition
        self.phase = SharePartitionPhase.LOADING
        self.failure: KafkaError | None = None
        self.is_reading = False
        self._core: SharePartition | None = None
        self.state_epoch = 0
        self.leader_epoch = partition.log.leader_epoch
        self._persister = persister
        self._settings = settings
        self.take_settings()
        self._clock = clock
        self.lock_clock = lock_clock
        self._timers = timers
        self._workers = workers
        self._call_soon = call_soon
        self._on_gone = on_gone
        self._has_session = has_session
        self._on_overdue = on_overdue
        self._on_pending = on_pending
        self._on_dead_letters = on_dead_letters
        self._ended_meanwhile: list[TransactionEnd] = []  # markers that arrived while the state was being loaded
        self._awaiting_load: list[Deferred[bool]] = []
        self._timer: TimerHandle | None = None
        self._timer_due_ms = 0
        self._waiting: dict[Waiter, None] = {}

    @property
    def core(self) -> SharePartition:
        assert self._core is not None
        return self._core

    @property
    def is_loaded(self) -> bool:
        return self._core is not None

    @property
    def lock_expired_count(self) -> int:
        return 0 if self._core is None else self._core.pending.lock_expired_count

    @property
    def producer_ids(self) -> Set[int]:
        """The producers that may have pending acknowledgements in this share partition."""
        return frozenset() if self._core is None else self._core.pending.producer_ids

    def take_settings(self) -> None:
        """Adopts the group's current settings. Called when they may have changed."""
        self.limits = self._settings.limits(self.key.group_id)
        self.is_read_committed = self._settings.is_read_committed(self.key.group_id)

    # Waiting.

    def park(self, wait: Waiter) -> None:
        self._waiting[wait] = None

    def unpark(self, wait: Waiter) -> None:
        self._waiting.pop(wait, None)

    def wake(self) -> None:
        """Wakes the waiting fetches, because records may be available or the share partition is GONE. Each fetch runs
        in a separate iteration of the event loop."""
        for wait in self._waiting:
            self._call_soon(wait.wake)

    # Loading.

    def load(self) -> None:
        start_unattended(self._load())

    def when_loaded(self) -> Deferred[bool]:
        """Resolves when the share partition is ACTIVE. Fails with a KafkaError if it cannot be loaded or is GONE."""
        answer: Deferred[bool] = Deferred()
        match self.phase:
            case SharePartitionPhase.LOADING:
                self._awaiting_load.append(answer)
            case SharePartitionPhase.ACTIVE:
                answer.resolve(True)
            case SharePartitionPhase.GONE:
                answer.fail(self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return answer

    def _resolve_awaiting(self) -> None:
        awaiting, self._awaiting_load = self._awaiting_load, []
        for answer in awaiting:
            answer.follow(self.when_loaded())

    async def _load(self) -> None:
        """Loads the stored state. The share partition can become GONE during any await."""
        try:
            stored = await self._persister.read(self.key, self.leader_epoch)
            if self._is_closed:
                return
            self.state_epoch = stored.state_epoch
            if stored.start_offset != UNDECIDED_START_OFFSET:
                self._activate(SharePartition(stored.start_offset, stored.batches, stored.pending))
                return
            start_offset = await self._find_start()
            if not self._is_closed:
                self._activate(SharePartition(start_offset))
        except KafkaError as error:
            if not self._is_closed:
                self._cannot_load(error)

    @property
    def _is_closed(self) -> bool:
        return self.phase is SharePartitionPhase.GONE

    async def _find_start(self) -> int:
        """Returns the offset at which the group starts reading, according to its setting. Raises KafkaError if the log
        contains no such offset."""
        log = self.partition.log
        reset = self._settings.auto_offset_reset(self.key.group_id)
        if reset == EARLIEST:
            return log.log_start_offset
        if reset == LATEST:
            return log.high_watermark
        age_ms = duration_ms(reset.removeprefix(BY_DURATION))
        assert age_ms is not None, "the setting was validated when it was set"
        since_ms = self._clock.now_ms() - age_ms
        found = await in_thread(self._workers, lambda: log.reader.offset_for_timestamp(since_ms))
        if found is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return found.offset

    def _activate(self, core: SharePartition) -> None:
        self._core = core
        self.phase = SharePartitionPhase.ACTIVE
        for ending in self._ended_meanwhile:
            self.end_transaction(ending)
        used_up = core.archive_used_up(self.limits)
        if used_up is not None:
            self._store(used_up)
        self._on_pending(self)
        self._hand_over_dead_letters()
        self.arm()
        self.wake()
        self._resolve_awaiting()

    def _cannot_load(self, error: KafkaError) -> None:
        self.failure = KafkaError(translate(Receiver.SHARE_LEADER, error.code), error.message)
        log.warning("share partition %s cannot be loaded: %s", self.key, error)
        self.drop()

    def drop(self) -> None:
        """Discards the state in memory. The stored state is kept."""
        if self.phase is SharePartitionPhase.GONE:
            return
        self.phase = SharePartitionPhase.GONE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_gone(self)
        self.wake()
        self._resolve_awaiting()

    # Changes.

    async def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Applies acknowledgements and waits until they are stored. If the share partition is still being loaded, first
        waits until it is loaded (#s3-7 L1). Raises KafkaError with an error code that can be sent to clients."""
        if self.phase is SharePartitionPhase.LOADING:
            await self.when_loaded()
        try:
            if self.phase is not SharePartitionPhase.ACTIVE:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            write = self.core.acknowledge(member_id, acknowledgements, self.limits, self.lock_clock.now_ms())
        finally:
            self.arm()  # locks may have been renewed even if the request fails
        if write is not None:
            await self._store_and_wait(write)

    def release(self, member_id: str) -> None:
        """Releases the records of a member whose session has ended, without waiting for the write."""
        if self.phase is SharePartitionPhase.ACTIVE:
            write = self.core.release(member_id, self.limits)
            if write is not None:
                self._store(write)

    # Acknowledging in a transaction.

    def require_acquired(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], transaction: PendingTransaction
    ) -> None:
        """Raises KafkaError unless all acknowledgements can become pending. `make_pending` must be called in the same
        iteration of the event loop."""
        if self.phase is not SharePartitionPhase.ACTIVE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.core.pending.require_acquired(member_id, acknowledgements, transaction, self.lock_clock.now_ms())

    def make_pending(
        self,
        member_id: str,
        member_epoch: int,
        acknowledgements: Sequence[Acknowledgement],
        transaction: PendingTransaction,
        *,
        must_sync: bool,
    ) -> PendingWrite:
        """Starts storing the acknowledgements as pending. `must_sync` must be set if the producer takes part in a
        two-phase commit."""
        write = self.core.pending.acknowledge(member_id, member_epoch, acknowledgements, transaction, self.limits)
        self._on_pending(self)
        return PendingWrite(self, write, write is None or self._write_state(write, must_sync=must_sync))

    def made_pending(self, write: StateWrite) -> None:
        """Applies a pending write. Call it once this write and all other writes of its request have been stored."""
        for ending in self.core.pending.write_stored(write):
            self._apply_marker(ending)
        self._hand_over_dead_letters()
        self.arm()
        self.wake()

    def not_made_pending(self, write: StateWrite, error: KafkaError) -> None:
        """Restores the previous state after a pending write has failed."""
        log.warning("the state of share partition %s could not be stored: %s", self.key, error)
        self.core.write_failed(write, self.limits)
        if error.code in FENCING:
            self.drop()
        else:
            self._hand_over_dead_letters()
        self.arm()
        self.wake()

    def undo_pending(self, write: StateWrite) -> None:
        """Undoes a pending write that has been stored, after another write of its request has failed."""
        self._store(self.core.pending.undo_write(write, self.limits, self.lock_clock.now_ms()))
        self.arm()
        self.wake()

    def end_transaction(self, ending: TransactionEnd) -> None:
        """Applies a marker that has ended a transaction. Its effect on the stored state has already been appended."""
        if self.phase is SharePartitionPhase.LOADING:
            self._ended_meanwhile.append(ending)
        core = self._core
        if (
            self.phase is not SharePartitionPhase.ACTIVE
            or core is None
            or ending.producer_id not in core.pending.producer_ids
        ):
            return
        self._apply_marker(ending)
        self._hand_over_dead_letters()
        self.arm()
        self.wake()

    def _apply_marker(self, ending: TransactionEnd) -> None:
        write = self.core.pending.apply_marker(ending, self._has_its_session, self.limits, self.lock_clock.now_ms())
        if write is not None:
            self._store(write)

    def holds_pending(self, transaction: PendingTransaction) -> bool:
        return self.phase is SharePartitionPhase.ACTIVE and self.core.pending.has_pending_of(transaction)

    def release_pending(self, transaction: PendingTransaction) -> None:
        """Releases the overdue records of a transaction whose outcome cannot be determined."""
        if self.phase is SharePartitionPhase.ACTIVE:
            write = self.core.pending.release(transaction, self.limits, self.lock_clock.now_ms())
            if write is not None:
                self._store(write)
            self.wake()

    def reread_ended(self, ending: TransactionEnd) -> None:
        """Reads the stored state again after a marker has ended a transaction. Called only if another broker stores the
        state."""
        if self.phase is SharePartitionPhase.ACTIVE:
            for transaction in self.core.pending.ended_by(ending):
                start_unattended(self._reread(transaction, releases=False))

    def reread_pending(self, transaction: PendingTransaction) -> None:
        """Reads the stored state again after the transaction has ended. Overdue records that are still stored as
        pending are released, because no marker will end their acknowledgements."""
        start_unattended(self._reread(transaction, releases=True))

    async def _reread(self, transaction: PendingTransaction, *, releases: bool) -> None:
        if not self._is_active:
            return
        try:
            stored = await self._persister.read(self.key, self.leader_epoch)
        except KafkaError as error:
            if self._is_active:
                log.warning("the state of share partition %s cannot be read again: %s", self.key, error)
            return
        if not self._is_active:
            return
        self.core.pending.adopt_stored_state(transaction, stored.batches, stored.pending, self.limits)
        self._on_pending(self)
        if releases:
            self.release_pending(transaction)
        self._hand_over_dead_letters()
        self.arm()
        self.wake()

    @property
    def _is_active(self) -> bool:
        return self.phase is SharePartitionPhase.ACTIVE

    def _has_its_session(self, member_id: str) -> bool:
        return self._has_session(self.key, member_id)

    def arm(self) -> None:
        """Starts the lock timer for the earliest time at which a lock may expire."""
        if self.phase is not SharePartitionPhase.ACTIVE:
            return
        due_ms = self.core.flight.earliest_deadline_ms
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._timers.after(max(0, due_ms - self.lock_clock.now_ms()), self._locks_due)

    def _locks_due(self) -> None:
        self._timer = None
        if self.phase is not SharePartitionPhase.ACTIVE:
            return
        write = self.core.expire_locks(self.limits, self.lock_clock.now_ms())
        self.arm()
        if write is not None:
            self._store(write)
            self.wake()
        overdue = self.core.pending.overdue
        while overdue:
            self._on_overdue(self, overdue.pop())

    def _store(self, write: StateWrite) -> None:
        """Stores a change that no request waits for."""
        start_unattended(self._stored_or_undone(write))

    async def _stored_or_undone(self, write: StateWrite) -> None:
        with suppress(KafkaError):
            await self._store_and_wait(write)

    def _write_state(self, write: StateWrite, *, must_sync: bool = False) -> Deferred[bool]:
        return self._persister.write(self.key, self.state_epoch, self.leader_epoch, write, must_sync=must_sync)

    async def _store_and_wait(self, write: StateWrite) -> None:
        """Stores a change and waits for the result. If storing fails, undoes the change and raises KafkaError with an
        error code that can be sent to clients."""
        core = self.core
        try:
            await self._write_state(write)
        except KafkaError as error:
            log.warning("the state of share partition %s could not be stored: %s", self.key, error)
            core.write_failed(write, self.limits)
            if error.code in FENCING:
                self.drop()
            elif core.flight.archiving:
                self._hand_over_dead_letters()
            raise KafkaError(translate(Receiver.SHARE_LEADER, error.code), error.message) from None
        else:
            core.write_stored(write)
            if core.flight.archiving:
                self._hand_over_dead_letters()
        finally:
            self.wake()

    # The dead-letter queue.

    def _hand_over_dead_letters(self) -> None:
        """Passes the records that are stored as ARCHIVING to the dead-letter queue.

        The records are passed even if the share partition is GONE, because the records remain stored as ARCHIVING and
        it may take a while before a fetch loads the share partition again.
        """
        core = self.core
        if core.flight.archiving:
            self._on_dead_letters(self, core.take_dead_letters(self.limits))

    def archive_copied(self, letters: Sequence[DeadLetter]) -> None:
        """Archives these records once copying has finished, successfully or not."""
        write = self.core.archive_copied(letters)
        if write is not None:
            self._store(write)
            self.wake()


class PendingWrite(NamedTuple):
    """The acknowledgements of one request in one share partition while they are being stored.

    write   None if all of the acknowledgements were already pending
    stored  the share coordinator's response; True if there is no write
    """

    live: LiveSharePartition
    write: StateWrite | None
    stored: NowOrLater[bool]
