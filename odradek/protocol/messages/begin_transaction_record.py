"""BeginTransactionRecord, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class BeginTransactionRecord(Message):
    __slots__ = ("name",)
    API_KEY = 23
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        name: str | None = None,
    ) -> None:
        self.name = name
