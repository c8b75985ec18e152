"""GroupMetadataKey, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class GroupMetadataKey(Message):
    __slots__ = ("group",)
    API_KEY = 2
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = None

    def __init__(
        self,
        *,
        group: str = "",
    ) -> None:
        self.group = group
