"""Sends an admin client's requests and retries them on transient errors until they succeed or time out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from odradek.client.common.errors import STALE_COORDINATOR, check, code_of
from odradek.client.network.cluster import Cluster, CoordinatorType
from odradek.protocol.struct import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

KEY_NAMES = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}


class AdminRequests:
    def __init__(self, cluster: Cluster, *, timeout_s: float, request_timeout_ms: int) -> None:
        """Creates a sender of admin requests. `timeout_s` is how long transient errors are retried."""
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.request_timeout_ms = request_timeout_ms

    async def retry(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retries `ask` on transient errors until `timeout_s` has passed."""
        return await self.cluster.retry(ask, self.timeout_s)

    async def ask_any_broker(
        self, request: Message, answer: type[M], *, max_version: int | None = None, min_version: int = 0
    ) -> M:
        """Sends a request to any broker and returns the response. The caller checks the errors in it."""
        return await self.retry(
            lambda: self.cluster.ask(request, answer, max_version=max_version, min_version=min_version)
        )

    async def ask_broker(
        self, node_id: int, request: Message, answer: type[M], *, max_version: int | None = None, min_version: int = 0
    ) -> M:
        return await self.retry(
            lambda: self.cluster.ask(request, answer, node_id=node_id, max_version=max_version, min_version=min_version)
        )

    async def node_ids(self) -> list[int]:
        """Refreshes the metadata and returns the ids of all brokers."""
        await self.retry(lambda: self.cluster.refresh(()))
        return self.cluster.node_ids

    async def ask_group_coordinator(
        self, group_id: str, request: Message, answer: type[M], read: Callable[[M], T], max_version: int | None = None
    ) -> T:
        """Sends a request to a group's coordinator and returns `read(response)`. Retries the request if `read` raises a
        transient error."""

        async def ask() -> T:
            kind = CoordinatorType.GROUP
            return read(await self.cluster.ask_coordinator(group_id, kind, request, answer, max_version=max_version))

        return await self.retry(ask)

    def check_coordinator(self, kind: CoordinatorType, key: str, error_code: int, message: str | None = None) -> None:
        """Raises the error in a coordinator's response, if any. Forgets the coordinator if the error shows that another
        broker may have taken its place."""
        if code_of(error_code) in STALE_COORDINATOR:
            self.cluster.forget_coordinator(key, kind)
        check(error_code, f"the {KEY_NAMES[kind]} {key!r}", message)

    def check_group(self, group_id: str, error_code: int, message: str | None = None) -> None:
        self.check_coordinator(CoordinatorType.GROUP, group_id, error_code, message)
