"""DescribeLogDirsRequest, versions 1-5. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class DescribeLogDirsRequest(Message):
    __slots__ = ("topics",)
    API_KEY = 35
    MIN_VERSION = 1
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 2

    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = UNSET,
    ) -> None:
        self.topics = [] if topics is UNSET else topics


class DescribableLogDirTopic(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = UNSET,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is UNSET else partitions
