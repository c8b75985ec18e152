"""ListGroupsRequest, versions 0-5. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message


class ListGroupsRequest(Message):
    __slots__ = ("states_filter", "types_filter")
    API_KEY = 16
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    def __init__(
        self,
        *,
        states_filter: list[str] = UNSET,
        types_filter: list[str] = UNSET,
    ) -> None:
        self.states_filter = [] if states_filter is UNSET else states_filter
        self.types_filter = [] if types_filter is UNSET else types_filter
