"""AbortTransactionRecord, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class AbortTransactionRecord(Message):
    __slots__ = ("reason",)
    API_KEY = 25
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        reason: str | None = None,
    ) -> None:
        self.reason = reason
