"""A shard is one core of a coordinator together with its partition of an internal topic. It runs one turn at a time.

    decide → append → replay → settle → arm timers → replies, markers, response      all in one turn of the loop
                                                   → the turns that follow (`FollowUps`)

If the records of a turn cannot be written, the core does not change. The client receives NOT_COORDINATOR or another
code from `error_translations.py`, such as UNKNOWN_SERVER_ERROR for a batch that is too large. The exception is an
outcome with `may_split`, whose records may be written in several batches. If a batch cannot be written, the earlier
batches stay in the log and have been replayed, but the outcome is not settled.

Nothing is sent before the records are appended, so a crash between any two steps loses only changes that no client or
partition has seen. If the partition's settings require a sync, everything that is sent waits for the sync. Even the
response to a turn without records waits, because it may depend on records that are still being synced.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from odradek.broker.api.error_translations import Receiver, translate
from odradek.broker.coordinators.shard_records import (
    RecordFormat,
    RecordProducer,
    ReplayTarget,
    ShardLog,
    no_headers,
    replay_log,
)
from odradek.broker.runtime.clock import Clock, Scan, TimerHandle, Timers
from odradek.broker.runtime.waiting import Deferred, NowOrLater
from odradek.protocol.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.protocol.records import NewRecord, batch_of_one, build_batch, plain_batch

logger = logging.getLogger(__name__)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C", bound="Core")

# Delay before retrying a timer whose outcome could not be written, because an immediate retry would probably also fail.
RETRY_TIMER_MS: Final = 1_000


class OutcomeLike(Protocol[R_co]):
    """The members that the outcomes of all cores have in common. Each core has its own `Outcome` class, which documents
    them. See `groups/common/outcome.py`, `transactions/turn.py` and `shares/core/state.py`."""

    @property
    def response(self) -> R_co | None: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def replies(self) -> Sequence[Any]: ...
    @property
    def timers(self) -> Sequence[Any]: ...
    @property
    def markers(self) -> Sequence[Any]:
        """The markers required by the decision. Empty except in the transaction coordinator."""

    @property
    def may_split(self) -> bool: ...
    @property
    def must_sync(self) -> bool: ...


class Core(ReplayTarget, Protocol):
    """Makes decisions based on replayed state. In a shard, the core's reply tokens are `Deferred`s."""

    def settle(self, outcome: Any) -> None: ...
    def on_loaded(self, now_ms: int) -> OutcomeLike[None]: ...
    def on_timer(self, key: Any, now_ms: int) -> OutcomeLike[None]: ...
    def unload(self, code: ErrorCode) -> Sequence[Any]: ...


def unchanged(response: R) -> R:
    return response


class Shard(Generic[C]):
    """One core of a coordinator together with its partition; see the module's docstring."""

    def __init__(
        self,
        name: str,
        log: ShardLog,
        new_core: Callable[[], C],
        record_format: RecordFormat,
        clock: Clock,
        timers: Timers,
        *,
        when_unreadable: ErrorCode = ErrorCode.NOT_COORDINATOR,
        send_markers: Callable[[Sequence[Any], KafkaError | None], None] | None = None,
    ) -> None:
        """Creates a shard that is not loaded yet.

        name             name of the partition, for log messages
        new_core         creates an empty core; called for each load
        when_unreadable  the error code for all requests if the log cannot be read
        send_markers     called with the markers of an outcome once the outcome is as durable as the settings require,
                         or with an error if the outcome could not be made durable
        """
        self._name = name
        self._log = log
        self._new_core = new_core
        self._format = record_format
        self._clock = clock
        self._timers = timers
        self._when_unreadable = when_unreadable
        self._send_markers = send_markers
        self._follow_ups = FollowUps()
        self._armed: dict[Hashable, ArmedTimer] = {}
        self._core: C | None = None
        self._refusal_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.has_begun_to_load = False

    @property
    def is_loaded(self) -> bool:
        return self._core is not None

    @property
    def is_away(self) -> bool:
        """True if all requests, including future ones, are refused."""
        return self._core is None and self._refusal_code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def core(self) -> C:
        """The loaded core. The caller must pass a decision from this core to `carry_out` immediately, or discard the
        decision. Raises KafkaError if the core is not loaded."""
        if self._core is None:
            raise KafkaError(self._refusal_code)
        return self._core

    # Requests.

    def submit(
        self,
        decide: Callable[[C, int], OutcomeLike[R]],
        parked: Deferred[R] | None = None,
        *,
        finish: Callable[[R], R] = unchanged,
        producer: RecordProducer | None = None,
    ) -> NowOrLater[R]:
        """Runs one turn. Returns the response, or a Deferred if the response is not ready. If the core has stored
        `parked`, the method returns `parked`. Otherwise the returned Deferred resolves after the sync.

        producer  the producer whose transaction contains the records; they take effect when the transaction is
                  committed
        finish    converts the core's response, for instance to the form of an old request version
        raises    KafkaError if the core refuses, the records cannot be written, or the core is not loaded
        """
        now_ms = self._clock.now_ms()
        return self.carry_out(decide(self.core, now_ms), now_ms, parked, finish=finish, producer=producer)

    def carry_out(
        self,
        outcome: OutcomeLike[R],
        now_ms: int,
        parked: Deferred[R] | None = None,
        *,
        finish: Callable[[R], R] = unchanged,
        producer: RecordProducer | None = None,
    ) -> NowOrLater[R]:
        """Completes a turn with an outcome that the core has just returned; see `submit`."""
        core = self._core
        assert core is not None, "the core has just returned this outcome"
        with self._follow_ups:
            self._apply(core, outcome, now_ms, producer)
            if outcome.response is None:
                if parked is None:
                    raise RuntimeError(f"{self._name}: a turn returned no answer, and did not park its request")
                self._release(outcome)
                return parked
            response = finish(outcome.response)
            must_sync = outcome.must_sync or (producer is not None and producer.must_sync)
            if self._log.is_durable(must_sync=must_sync):  # the common case, which needs no Deferred
                self._send_answers(outcome)
                return response
            answer: Deferred[R] = Deferred()
            self._release_later(outcome, must_sync, answer, response)
            # The answer is already done only if an earlier sync has failed, in which case `outcome` raises the error.
            return answer.outcome() if answer.is_done else answer

    def follow_up(self, turn: Callable[[], None]) -> None:
        """Runs a turn after the current one, or immediately if no turn is running."""
        self._follow_ups.add(turn)

    def submit_maintenance(self, decide: Callable[[C, int], OutcomeLike[object]]) -> bool:
        """Runs a turn that no client is waiting for. Returns whether the turn ran and its records are in the log. If
        the records cannot be written, logs a warning and does not retry."""
        if self._core is None:
            return False
        now_ms = self._clock.now_ms()
        outcome = decide(self._core, now_ms)
        with self._follow_ups:
            try:
                self._apply(self._core, outcome, now_ms)
            except KafkaError as error:
                logger.warning("%s: records that no client waits for could not be written: %s", self._name, error)
                return False
            self._release(outcome)
        return True

    def fire_soon(self, key: Hashable) -> None:
        """Makes one of the core's timers fire as soon as possible, in a later turn of the loop."""
        self._arm(key, 0)

    def read_state(self, read: Callable[[C], R]) -> R:
        """Reads state that may not be durable yet. Used for lists and descriptions."""
        return read(self.core)

    def complete_transaction(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Commits or aborts the producer's pending records. Called after a transaction marker has been appended to this
        partition."""
        self.core.replay_marker(producer_id, producer_epoch, committed=committed)

    # Loading and unloading.

    def load_if_empty(self) -> bool:
        """Starts serving immediately if the log is empty and returns whether it did. Returns False if loading has
        already begun."""
        if self.has_begun_to_load or not self._log.is_empty:
            return False
        self.has_begun_to_load = True
        self._core = self._new_core()
        self._activate(self._core)
        return True

    async def load(self) -> None:
        """Replays the log into a new core, then starts serving. If the log cannot be read, logs the error and refuses
        requests."""
        self.has_begun_to_load = True
        self._refusal_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        core = self._new_core()
        try:
            await replay_log(self._log, self._format, core)
        except (MalformedMessage, KafkaError) as error:
            self._refusal_code = self._when_unreadable
            logger.error("%s cannot be loaded, so its coordinator is not available: %s", self._name, error)
            return
        if self._refusal_code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return  # The shard has been unloaded in the meantime.
        self._core = core
        self._activate(core)

    def _activate(self, core: C) -> None:
        """Starts serving with the loaded core and carries out its initial outcome: timers, replies and overdue
        records."""
        if core is not self._core:
            return  # The shard has been unloaded in the meantime.
        now_ms = self._clock.now_ms()
        outcome = core.on_loaded(now_ms)
        with self._follow_ups:
            try:
                self._apply(core, outcome, now_ms)
            except KafkaError as error:
                logger.warning("%s is loaded, but records could not be written; trying again: %s", self._name, error)
                self._timers.after(RETRY_TIMER_MS, _retry(partial(self._activate, core)))
                return
            self._release(outcome)

    def unload(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Drops all state. Waiting and future requests fail with `code`."""
        self._refusal_code = code
        core, self._core = self._core, None
        for armed in self._armed.values():
            armed.handle.cancel()
        self._armed.clear()
        if core is not None:
            for reply in core.unload(code):
                reply.token.resolve(reply.message)

    def end(self) -> None:
        """Unloads the shard permanently and stops sending markers."""
        self.unload()
        self._send_markers = None

    # Private methods.

    def _apply(
        self, core: C, outcome: OutcomeLike[object], now_ms: int, producer: RecordProducer | None = None
    ) -> None:
        if outcome.records:
            self._append_and_replay(core, outcome.records, now_ms, producer, may_split=outcome.may_split)
        core.settle(outcome)
        for timer in outcome.timers:
            self._arm(timer.key, timer.delay_ms)

    def _append_and_replay(
        self, core: C, records: Sequence[Any], now_ms: int, producer: RecordProducer | None, *, may_split: bool
    ) -> None:
        batch, header = self._batch(records, now_ms, producer)
        if len(batch) > self._log.max_batch_bytes:
            if not may_split or len(records) == 1:
                raise KafkaError(translate(Receiver.COORDINATOR, ErrorCode.RECORD_LIST_TOO_LARGE))
            middle = len(records) // 2
            self._append_and_replay(core, records[:middle], now_ms, producer, may_split=True)
            self._append_and_replay(core, records[middle:], now_ms, producer, may_split=True)
            return
        try:
            base_offset = self._log.append(batch, now_ms, None if producer is None else producer.guard, header)
        except KafkaError as error:
            raise KafkaError(translate(Receiver.COORDINATOR, error.code), error.message) from error
        try:
            for record_offset, record in enumerate(records, base_offset):
                core.replay(record, record_offset, NO_PRODUCER_ID if producer is None else producer.producer_id)
        except Exception:
            # The record is in the log but not in memory, so this core differs from one that a restart would load.
            logger.exception(
                "%s: a record that this broker wrote cannot be replayed; its coordinator stops", self._name
            )
            self.unload()
            raise

    def _batch(
        self, records: Sequence[Any], now_ms: int, producer: RecordProducer | None
    ) -> tuple[bytearray, BatchHeader | None]:
        """Encodes records as a batch. Also returns the batch's header if it can be determined without parsing the
        batch."""
        form = self._format
        if producer is None and form.compression is Compression.NONE:  # the common case
            if len(records) == 1:
                record = records[0]
                key, value = form.encode(record)
                headers = () if form.headers is no_headers else form.headers(record)
                return batch_of_one(key, value, now_ms, form.base_sequence, headers)
            encoded = []
            for record in records:
                key, value = form.encode(record)
                encoded.append((key, value, form.headers(record)))
            return plain_batch(encoded, now_ms, form.base_sequence)
        batch = build_batch(
            [NewRecord(*form.encode(record), now_ms, form.headers(record)) for record in records],
            base_sequence=form.base_sequence,
            compression=form.compression,
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            is_transactional=producer is not None,
        )
        return batch, None

    def _release(self, outcome: OutcomeLike[object]) -> None:
        """Sends the replies once the outcome is durable."""
        if not outcome.replies and not outcome.markers:
            return
        if self._log.is_durable(must_sync=outcome.must_sync):
            self._send_answers(outcome)
        else:
            self._release_later(outcome, outcome.must_sync)

    def _release_later(
        self, outcome: OutcomeLike[R], must_sync: bool, answer: Deferred[R] | None = None, response: R | None = None
    ) -> None:
        def release(failure: KafkaError | None) -> None:
            error = None if failure is None else KafkaError(translate(Receiver.COORDINATOR, failure.code))
            with self._follow_ups:
                self._send_answers(outcome, error, answer, response)

        self._log.when_durable(release, must_sync=must_sync)

    def _send_answers(
        self,
        outcome: OutcomeLike[R],
        error: KafkaError | None = None,
        answer: Deferred[R] | None = None,
        response: R | None = None,
    ) -> None:
        """Sends the replies, the response if it had to wait, and then the markers, all within one turn.

        error  the reason the outcome is not durable, or None
        """
        for reply in outcome.replies:
            if error is None:
                reply.token.resolve(reply.message)
            else:
                reply.token.fail(error)
        if answer is not None and error is not None:
            answer.fail(error)
        elif answer is not None and response is not None:
            answer.resolve(response)
        if outcome.markers and self._send_markers is not None:
            self._send_markers(outcome.markers, error)

    def _arm(self, key: Hashable, delay_ms: float | None) -> None:
        """Arms a timer, or disarms it if the delay is None. Postponing a timer, as every heartbeat does, only changes
        its due time. If the timer wakes early, it is armed again."""
        armed = self._armed.get(key)
        if delay_ms is not None:
            due_ms = self._timers.monotonic_ms() + delay_ms
            if armed is not None and armed.wakes_ms <= due_ms:
                armed.due_ms = due_ms
                return
            self._armed[key] = ArmedTimer(due_ms, self._timers.after(delay_ms, partial(self._timer_woke, key)))
        elif armed is not None:
            del self._armed[key]
        if armed is not None:
            armed.handle.cancel()

    def _retry_later(self, key: Hashable) -> None:
        due_ms = self._timers.monotonic_ms() + RETRY_TIMER_MS
        self._armed[key] = ArmedTimer(
            due_ms, self._timers.after(RETRY_TIMER_MS, _retry(partial(self._timer_woke, key)))
        )

    def _timer_woke(self, key: Hashable) -> None:
        armed = self._armed.pop(key)
        left_ms = armed.due_ms - self._timers.monotonic_ms()
        if left_ms > 0:
            self._arm(key, left_ms)
        else:
            self._fire(key)

    def _fire(self, key: Hashable) -> None:
        core = self._core
        if core is None:
            return
        now_ms = self._clock.now_ms()
        outcome = core.on_timer(key, now_ms)
        with self._follow_ups:
            try:
                self._apply(core, outcome, now_ms)
            except KafkaError as error:
                logger.warning("%s: records of timer %s could not be written; trying again: %s", self._name, key, error)
                self._retry_later(key)
                return
            self._release(outcome)


def _retry(action: Callable[[], None]) -> Scan:
    """Returns an action that retries a failed write. A test that advances its clock does not trigger the retry, because
    advancing the clock would not remove the cause of the failure."""
    return Scan(action, RETRY_TIMER_MS, _no_due_time)


def _no_due_time() -> None:
    return None


class ArmedTimer:
    """An armed timer.

    due_ms    time at which the timer fires
    wakes_ms  time at which the timer checks whether it is due
    """

    __slots__ = ("due_ms", "handle", "wakes_ms")

    def __init__(self, due_ms: float, handle: TimerHandle) -> None:
        self.due_ms = self.wakes_ms = due_ms
        self.handle = handle


class FollowUps:
    """A queue of turns caused by other turns, for instance to complete a transaction after its last marker. The queue
    prevents a turn from running inside another turn (ADR 13). The current turn is a `with` block. When the block ends,
    the queued turns run in the order in which they were added, including turns that are added while they run."""

    __slots__ = ("_depth", "_turns")

    def __init__(self) -> None:
        # Depth of nested turns: a reply may cause the next request immediately, and its turn is then part of the
        # current one.
        self._depth = 0
        self._turns: deque[Callable[[], None]] | None = None  # created when needed; an empty deque takes 0.7 KiB

    def add(self, turn: Callable[[], None]) -> None:
        """Runs a turn after the current one, or immediately if no turn is running."""
        if self._turns is None:
            self._turns = deque()
        self._turns.append(turn)
        if self._depth == 0:
            with self:
                pass

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            while self._turns:
                turn = self._turns.popleft()
                try:
                    turn()
                except Exception:  # An exception in this turn must not affect the turn that queued it.
                    logger.exception("a follow-up turn of a coordinator failed")
        self._depth -= 1
