"""EndTransactionRecord, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class EndTransactionRecord(Message):
    __slots__ = ()
    API_KEY = 24
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
