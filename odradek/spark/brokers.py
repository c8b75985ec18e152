"""Connects a query to its cluster. The client is imported on first use, because most of Spark's Python workers only
plan a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.client.security.settings import SecuritySettings

if TYPE_CHECKING:
    from odradek.client import Admin, Consumer


@dataclass(frozen=True, slots=True)
class Brokers:
    """The connection settings that all clients of a source or sink share."""

    bootstrap_servers: str
    timeout_ms: float = 60_000
    bootstrap_timeout_ms: float = 30_000
    security: SecuritySettings = field(default_factory=SecuritySettings, repr=False)

    def admin(self) -> Admin:
        from odradek.client import Admin

        return Admin(
            bootstrap_servers=self.bootstrap_servers,
            default_api_timeout_ms=self.timeout_ms,
            bootstrap_timeout_ms=self.bootstrap_timeout_ms,
            **self.security,
        )

    def consumer(self, isolation_level: str) -> Consumer:
        from odradek.client import Consumer

        return Consumer(
            bootstrap_servers=self.bootstrap_servers,
            isolation_level=isolation_level,
            default_api_timeout_ms=self.timeout_ms,
            bootstrap_timeout_ms=self.bootstrap_timeout_ms,
            allow_auto_create_topics=False,
            **self.security,
        )
