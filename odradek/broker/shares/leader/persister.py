"""The seam between those who serve share partitions and the share coordinator that stores their state.

`Persister` is what a leader and the group coordinator ask; what passes through it is what requests 83 to 87 hold, so
that the coordinator could live on another broker. `LocalPersister` asks the one in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from odradek.broker.runtime.delayed import Deferred
from odradek.broker.shares.core.state import (
    Outcome,
    PendingRange,
    ResolvedRange,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    StoredState,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from odradek.broker.coordinators.share_coordinator import ShareCoordinator
    from odradek.broker.runtime.clock import Clock, Timers
    from odradek.broker.shares.core.state_core import StateCore

R = TypeVar("R")

FIRST_RETRY_MS: Final = 10
LONGEST_RETRY_MS: Final = 500
RETRIABLE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Persister(Protocol):
    """Each answer may be there at once; a refusal is a KafkaError in it."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Deferred[bool]: ...

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StoredState]: ...

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        pending: Sequence[PendingRange] = (),
        resolved: Sequence[ResolvedRange] = (),
        must_sync: bool = False,
    ) -> Deferred[bool]:
        """`must_sync`: pending in a two-phase commit. A request has no field for it: its receiver asks the same set."""

    def delete(self, key: SharePartitionKey) -> Deferred[bool]: ...

    def summarize(self, key: SharePartitionKey) -> Deferred[StateSummary]: ...


class LocalPersister:
    """The share coordinator of this process. Its topic is created by the first question.

    While the coordinator loads it is asked again for as long as a write may take, then its refusal stands.
    """

    def __init__(
        self,
        coordinator: Callable[[], ShareCoordinator],
        has_topic: Callable[[], bool],
        create_topic: Callable[[str], Deferred[Any]],
        clock: Clock,
        timers: Timers,
        *,
        write_timeout_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._has_topic = has_topic
        self._create_topic = create_topic
        self._clock = clock
        self._timers = timers
        self._write_timeout_ms = write_timeout_ms

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Deferred[bool]:
        return self._ask(key, lambda core, now_ms: core.initialize(key, state_epoch, start_offset, now_ms))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[StoredState]:
        return self._ask(key, lambda core, now_ms: core.read(key, leader_epoch, now_ms))

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        pending: Sequence[PendingRange] = (),
        resolved: Sequence[ResolvedRange] = (),
        must_sync: bool = False,
    ) -> Deferred[bool]:
        return self._ask(
            key,
            lambda core, now_ms: core.write(
                key,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=batches,
                pending=pending,
                resolved=resolved,
                must_sync=must_sync,
                now_ms=now_ms,
            ),
        )

    def delete(self, key: SharePartitionKey) -> Deferred[bool]:
        return self._ask(key, lambda core, _: core.delete(key))

    def summarize(self, key: SharePartitionKey) -> Deferred[StateSummary]:
        return self._ask(key, lambda core, _: Outcome(core.summarize(key)))

    def _ask(self, key: SharePartitionKey, decide: Callable[[StateCore, int], Outcome[R]]) -> Deferred[R]:
        answer: Deferred[R] = Deferred()
        until_ms = self._clock.now_ms() + self._write_timeout_ms
        if self._has_topic():
            self._attempt(key, decide, answer, until_ms, FIRST_RETRY_MS)
        else:  # whether it was created or could not be is seen by asking
            self._create_topic(SHARE_GROUP_STATE).when_done(
                lambda _: self._attempt(key, decide, answer, until_ms, FIRST_RETRY_MS)
            )
        return answer

    def _attempt(
        self,
        key: SharePartitionKey,
        decide: Callable[[StateCore, int], Outcome[R]],
        answer: Deferred[R],
        until_ms: int,
        retry_ms: int,
    ) -> None:
        try:
            told = self._coordinator().shard_for(key).submit(decide)
        except KafkaError as error:
            self._refused(error, key, decide, answer, until_ms, retry_ms)
            return
        if isinstance(told, Deferred):
            told.when_done(partial(self._told, key, decide, answer, until_ms, retry_ms))
        else:
            answer.resolve(told)

    def _told(
        self,
        key: SharePartitionKey,
        decide: Callable[[StateCore, int], Outcome[R]],
        answer: Deferred[R],
        until_ms: int,
        retry_ms: int,
        told: Deferred[R],
    ) -> None:
        try:
            response = told.outcome()
        except KafkaError as error:
            self._refused(error, key, decide, answer, until_ms, retry_ms)
            return
        answer.resolve(response)

    def _refused(
        self,
        error: KafkaError,
        key: SharePartitionKey,
        decide: Callable[[StateCore, int], Outcome[R]],
        answer: Deferred[R],
        until_ms: int,
        retry_ms: int,
    ) -> None:
        if error.code not in RETRIABLE or self._clock.now_ms() + retry_ms > until_ms:
            answer.fail(error)
            return
        later_ms = min(2 * retry_ms, LONGEST_RETRY_MS)
        self._timers.after(retry_ms, partial(self._attempt, key, decide, answer, until_ms, later_ms))
