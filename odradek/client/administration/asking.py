"""Requests that are repeated until an answer comes or the time is over."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from odradek.client.common.errors import STALE_COORDINATOR, code_of, refusal
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.struct import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Asking:
    def __init__(self, cluster: Cluster, *, timeout_s: float, request_timeout_ms: int) -> None:
        """timeout_s   how long transient errors are retried"""
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.request_timeout_ms = request_timeout_ms

    async def patiently(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retries transient errors until the time is over."""
        return await self.cluster.patiently(ask, self.timeout_s)

    async def any_broker(
        self, request: Message, answer: type[M], *, max_version: int | None = None, min_version: int = 0
    ) -> M:
        """The answer of some broker; errors within it are the caller's."""
        return await self.patiently(
            lambda: self.cluster.ask(request, answer, max_version=max_version, min_version=min_version)
        )

    async def broker(
        self, node_id: int, request: Message, answer: type[M], *, max_version: int | None = None, min_version: int = 0
    ) -> M:
        return await self.patiently(
            lambda: self.cluster.ask(request, answer, node_id=node_id, max_version=max_version, min_version=min_version)
        )

    async def node_ids(self) -> list[int]:
        """Lists all brokers, as the cluster tells now."""
        await self.patiently(lambda: self.cluster.refresh(()))
        return self.cluster.node_ids

    async def group_coordinator(
        self, group_id: str, request: Message, answer: type[M], *, max_version: int | None = None
    ) -> M:
        """One attempt, to be made within `patiently`."""
        return await self.cluster.ask_coordinator(
            group_id, CoordinatorType.GROUP, request, answer, max_version=max_version
        )

    def check_group(self, group_id: str, error_code: int, message: str | None = None) -> None:
        """Raises the error of an answer from the coordinator, which is looked for again after some."""
        code = code_of(error_code)
        if code in STALE_COORDINATOR:
            self.cluster.forget_coordinator(group_id, CoordinatorType.GROUP)
        if code is not ErrorCode.NONE:
            raise refusal(code, f"the group {group_id!r}", message)
