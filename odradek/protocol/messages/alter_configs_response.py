"""AlterConfigsResponse, versions 0-2. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class AlterConfigsResponse(Message):
    __slots__ = ("throttle_time_ms", "responses")
    API_KEY = 33
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResourceResponse] = UNSET,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses = [] if responses is UNSET else responses


class AlterConfigsResourceResponse(Struct):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name")

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
