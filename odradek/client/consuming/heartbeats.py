"""The heartbeats of a member whose coordinator assigns the partitions (KIP-848, KIP-932), in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from odradek.client.common.errors import ClientError, RetriableError, code_of, refusal
from odradek.client.consuming.handover import LEAVE_TIMEOUT_MS
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from odradek.protocol.struct import Message

FIRST_VERSION = 1  # of both requests in which members name themselves

Said = TypeVar("Said")
Answer = TypeVar("Answer", bound=ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse)
Answer_contra = TypeVar("Answer_contra", contravariant=True)


class Step(Enum):
    """What to do after an answer."""

    GO_ON = auto()
    REPEAT = auto()  # after a pause
    FIND_COORDINATOR = auto()  # then repeat
    JOIN_ANEW = auto()  # with nothing: its partitions are lost
    GIVE_UP = auto()


class Decisions(Protocol[Said, Answer_contra]):
    """What a heartbeat says, and what its answer means."""

    @property
    def group_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def has_news(self) -> bool:
        """The coordinator ought to hear something before the next heartbeat is due."""

    def request(self) -> Message: ...

    def said(self) -> Said:
        """What the coordinator knows when the request just made has arrived; `answered` takes it."""

    def answered(self, said: Said, answer: Answer_contra) -> Step: ...

    def unanswered(self) -> None: ...

    def expelled(self) -> None: ...

    def leave_request(self) -> Message: ...


class Heartbeats(Generic[Said, Answer]):
    """They go on until the coordinator refuses the member, or the application has stopped asking for records."""

    def __init__(
        self,
        cluster: Cluster,
        decisions: Decisions[Said, Answer],
        answer: type[Answer],
        *,
        max_poll_interval_ms: float,
        progress: Callable[[], object],
        on_answer: Callable[[], Awaitable[None]],
        on_expelled: Callable[[], None],
        news: Callable[[], None],
    ) -> None:
        """progress     anything that changes while the application takes records or waits for them: where it stays the
                     same for `max_poll_interval_ms`, the member leaves
        on_answer    the coordinator has accepted a heartbeat. Raises RetriableError when it has to be repeated
        on_expelled  the member will join again, with nothing
        news         called when heartbeats have ended, with or without an `error`
        """
        self._cluster = cluster
        self._decisions = decisions
        self._answer = answer
        self._max_poll_interval_ms = max_poll_interval_ms
        self._progress = progress
        self._on_answer = on_answer
        self._on_expelled = on_expelled
        self._news = news
        self._task: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()  # a heartbeat, before its time
        self._error: ClientError | None = None

    def keep_up(self) -> None:
        """Begin, or begin again. Raises ClientError once when the group does not take this member."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_alive())

    def hasten(self) -> None:
        """The next one is due now."""
        self._is_due.set()

    async def leave(self) -> None:
        """At once, so that others need not wait for the session to run out."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._decisions.epoch > 0:
                await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        request, group_id = self._decisions.leave_request(), self._decisions.group_id
        self._decisions.expelled()
        with suppress(ClientError):  # a coordinator that is away finds out by itself
            node_id = await self._cluster.coordinator(group_id, CoordinatorType.GROUP, timeout_ms=0)
            await self._cluster.ask(request, self._answer, node_id=node_id, timeout_ms=LEAVE_TIMEOUT_MS)

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        progress, progressed_at = self._progress(), loop.time()
        failures = 0
        while True:
            if (now := self._progress()) != progress:
                progress, progressed_at = now, loop.time()
            elif (loop.time() - progressed_at) * 1000 > self._max_poll_interval_ms:
                await self._say_goodbye()
                break
            self._is_due.clear()
            try:
                goes_on = await self._beat()
                failures = 0
            except RetriableError:
                failures += 1
                await self._cluster.pause(failures)
                continue
            except ClientError as error:
                self._error = error
                break
            if goes_on and not self._decisions.has_news:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._decisions.heartbeat_interval_ms / 1000):
                        await self._is_due.wait()
        self._task = None
        self._news()

    async def _beat(self) -> bool:
        """False: the next one is to follow at once. Raises RetriableError for after a pause, ClientError for never."""
        decisions, group_id = self._decisions, self._decisions.group_id
        request, said = decisions.request(), decisions.said()
        try:
            answer = await self._cluster.ask_coordinator(
                group_id, CoordinatorType.GROUP, request, self._answer, min_version=FIRST_VERSION
            )
        except RetriableError:
            decisions.unanswered()
            raise
        refused = refusal(code_of(answer.error_code), f"the heartbeat of the group {group_id!r}", answer.error_message)
        match decisions.answered(said, answer):
            case Step.GO_ON:
                await self._on_answer()
                return True
            case Step.JOIN_ANEW:
                self._on_expelled()
                return False
            case Step.REPEAT:
                raise RetriableError(str(refused), refused.code)
            case Step.FIND_COORDINATOR:
                self._cluster.forget_coordinator(group_id, CoordinatorType.GROUP)
                raise RetriableError(str(refused), refused.code)
            case Step.GIVE_UP:
                raise refused
