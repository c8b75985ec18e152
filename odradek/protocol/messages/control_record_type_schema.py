"""ControlRecordTypeSchema, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class ControlRecordTypeSchema(Message):
    __slots__ = ("type",)
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = None

    def __init__(
        self,
        *,
        type: int = 0,
    ) -> None:
        self.type = type
