"""ConsumerGroupRegularExpressionKey, versions 0-0. Written by `python -m odradek.protocol.generate`."""

from __future__ import annotations

from odradek.protocol.struct import Message


class ConsumerGroupRegularExpressionKey(Message):
    __slots__ = ("group_id", "regular_expression")
    API_KEY = 16
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = None

    def __init__(
        self,
        *,
        group_id: str = "",
        regular_expression: str = "",
    ) -> None:
        self.group_id = group_id
        self.regular_expression = regular_expression
