"""Sends heartbeats in the background for a member whose coordinator assigns the partitions (KIP-848, KIP-932)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from odradek.client.common.errors import ClientError, RetriableError, code_of, refusal
from odradek.client.consuming.handover import LEAVE_TIMEOUT_MS
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.struct import Message

JOIN_EPOCH = 0
FIRST_VERSION = 1  # first version of both heartbeat requests that lets members choose their own ids

ReportedState = TypeVar("ReportedState")
Answer = TypeVar("Answer", bound=ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse)


class HeartbeatStep(Enum):
    """How to continue after a response."""

    GO_ON = auto()
    REPEAT = auto()  # repeat the heartbeat after a pause
    FIND_COORDINATOR = auto()  # look the coordinator up, then repeat the heartbeat
    JOIN_ANEW = auto()  # rejoin without partitions, because the previous partitions are lost
    GIVE_UP = auto()


STEPS: Mapping[ErrorCode, HeartbeatStep] = {
    ErrorCode.NONE: HeartbeatStep.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatStep.REPEAT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatStep.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: HeartbeatStep.FIND_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatStep.JOIN_ANEW,
    ErrorCode.FENCED_MEMBER_EPOCH: HeartbeatStep.JOIN_ANEW,
    ErrorCode.GROUP_ID_NOT_FOUND: HeartbeatStep.JOIN_ANEW,
}


@dataclass(slots=True)
class HeartbeatDecisions(ABC, Generic[ReportedState, Answer]):
    """Builds the heartbeats and processes the responses. Sends no requests."""

    group_id: str
    member_id: str
    epoch: int = field(default=JOIN_EPOCH, kw_only=True)
    _interval_ms: int = field(default=0, kw_only=True)
    # The member's state as the coordinator knows it; None if the next heartbeat must be complete.
    _reported_state: ReportedState | None = field(default=None, kw_only=True)

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._interval_ms

    @property
    def has_changes(self) -> bool:
        """True if the coordinator should receive a heartbeat before the next one is due."""
        return self._reported_state is not None and self._reported_state != self.current_state()

    @abstractmethod
    def request(self) -> Message:
        """Builds the next heartbeat. It is complete if the member joins or the last heartbeat may have been lost;
        otherwise it contains only the changes."""

    @abstractmethod
    def leave_request(self) -> Message: ...

    @abstractmethod
    def current_state(self) -> ReportedState:
        """Returns the state that the coordinator will have once the current request has arrived. It is later passed to
        `handle_answer`."""

    @abstractmethod
    def apply_answer(self, answer: Answer) -> None:
        """Processes a successful response, which may contain an assignment."""

    @abstractmethod
    def end_membership(self) -> None:
        """Ends the membership. The member may rejoin later."""

    def handle_answer(self, sent_state: ReportedState, answer: Answer) -> HeartbeatStep:
        """Updates the state after a response and returns how to continue.

        sent_state   the state that the request reported; the member may have changed since then
        """
        code = code_of(answer.error_code)
        step = STEPS.get(code, HeartbeatStep.GIVE_UP)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch == JOIN_EPOCH:
            # On a join, this error means that a group of another type has this id. Later, it means that the group was
            # deleted.
            step = HeartbeatStep.GIVE_UP
        match step:
            case HeartbeatStep.GO_ON:
                self.epoch, self._interval_ms, self._reported_state = (
                    answer.member_epoch,
                    answer.heartbeat_interval_ms,
                    sent_state,
                )
                self.apply_answer(answer)
            case HeartbeatStep.JOIN_ANEW | HeartbeatStep.GIVE_UP:
                self.end_membership()
            case HeartbeatStep.REPEAT | HeartbeatStep.FIND_COORDINATOR:
                self._reported_state = None
        return step

    def forget_reported_state(self) -> None:
        """Makes the next heartbeat complete, because the last heartbeat may not have arrived."""
        self._reported_state = None


class Heartbeats(Generic[ReportedState, Answer]):
    """Sends heartbeats until the coordinator refuses the member or the application stops polling."""

    def __init__(
        self,
        cluster: Cluster,
        decisions: HeartbeatDecisions[ReportedState, Answer],
        answer: type[Answer],
        *,
        max_poll_interval_ms: float,
        progress: Callable[[], object],
        on_answer: Callable[[], Awaitable[None]],
        on_expelled: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        """Creates a sender of heartbeats. `ensure_running` starts it.

        progress     returns a value that changes whenever the application takes records or waits for them. If it stays
                     the same for `max_poll_interval_ms`, the member leaves.
        on_answer    called after a successful heartbeat; raises RetriableError to repeat the heartbeat
        on_expelled  called when the member has to rejoin without partitions
        on_change    called when the heartbeats have stopped; `ensure_running` then raises their error, if any
        """
        self._cluster = cluster
        self._decisions = decisions
        self._answer = answer
        self._max_poll_interval_ms = max_poll_interval_ms
        self._progress = progress
        self._on_answer = on_answer
        self._on_expelled = on_expelled
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._send_now = asyncio.Event()  # set to send the next heartbeat early
        self._error: ClientError | None = None

    def ensure_running(self) -> None:
        """Starts or restarts the heartbeats. Raises ClientError once if the group does not accept this member."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def send_now(self) -> None:
        """Sends the next heartbeat without waiting until it is due."""
        self._send_now.set()

    async def leave_group(self) -> None:
        """Leaves the group immediately, so that the other members do not have to wait for the session to expire."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._decisions.epoch > 0:
                await self._send_leave()

    async def _send_leave(self) -> None:
        request, group_id = self._decisions.leave_request(), self._decisions.group_id
        self._decisions.end_membership()
        with suppress(ClientError):  # if the coordinator cannot be reached, it removes the member later
            node_id = await self._cluster.coordinator(group_id, CoordinatorType.GROUP, timeout_ms=0)
            await self._cluster.ask(request, self._answer, node_id=node_id, timeout_ms=LEAVE_TIMEOUT_MS)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        progress, progressed_at = self._progress(), loop.time()
        failures = 0
        while True:
            if (now := self._progress()) != progress:
                progress, progressed_at = now, loop.time()
            elif (loop.time() - progressed_at) * 1000 > self._max_poll_interval_ms:
                await self._send_leave()
                break
            self._send_now.clear()
            try:
                is_accepted = await self._send_heartbeat()
                failures = 0
            except RetriableError:
                failures += 1
                await self._cluster.pause(failures)
                continue
            except ClientError as error:
                self._error = error
                break
            if is_accepted and not self._decisions.has_changes:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._decisions.heartbeat_interval_ms / 1000):
                        await self._send_now.wait()
        self._task = None
        self._on_change()

    async def _send_heartbeat(self) -> bool:
        """Sends one heartbeat. Returns False if the next heartbeat should be sent now. Raises RetriableError if this
        heartbeat should be retried after a pause, and ClientError if heartbeats must stop."""
        decisions, group_id = self._decisions, self._decisions.group_id
        request, sent_state = decisions.request(), decisions.current_state()
        try:
            answer = await self._cluster.ask_coordinator(
                group_id, CoordinatorType.GROUP, request, self._answer, min_version=FIRST_VERSION
            )
        except RetriableError:
            decisions.forget_reported_state()
            raise
        refused = refusal(code_of(answer.error_code), f"the heartbeat of the group {group_id!r}", answer.error_message)
        match decisions.handle_answer(sent_state, answer):
            case HeartbeatStep.GO_ON:
                await self._on_answer()
                return True
            case HeartbeatStep.JOIN_ANEW:
                self._on_expelled()
                return False
            case HeartbeatStep.REPEAT:
                raise RetriableError(str(refused), refused.code)
            case HeartbeatStep.FIND_COORDINATOR:
                self._cluster.forget_coordinator(group_id, CoordinatorType.GROUP)
                raise RetriableError(str(refused), refused.code)
            case HeartbeatStep.GIVE_UP:
                raise refused
