"""StreamsGroupDescribeRequest, versions 0-1. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message


class StreamsGroupDescribeRequest(Message):
    __slots__ = ("group_ids", "include_authorized_operations", "include_topology_description")
    API_KEY = 89
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        group_ids: list[str] = UNSET,
        include_authorized_operations: bool = False,
        include_topology_description: bool = False,
    ) -> None:
        self.group_ids = [] if group_ids is UNSET else group_ids
        self.include_authorized_operations = include_authorized_operations
        self.include_topology_description = include_topology_description
