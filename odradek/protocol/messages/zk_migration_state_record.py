"""ZkMigrationStateRecord, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class ZkMigrationStateRecord(Message):
    __slots__ = ("zk_migration_state",)
    API_KEY = 21
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        zk_migration_state: int = 0,
    ) -> None:
        self.zk_migration_state = zk_migration_state
