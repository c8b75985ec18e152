"""ConsumerProtocolAssignment, versions 0-3. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class ConsumerProtocolAssignment(Message):
    __slots__ = ("assigned_partitions", "user_data")
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = None

    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartition] = UNSET,
        user_data: bytes | None = None,
    ) -> None:
        self.assigned_partitions = [] if assigned_partitions is UNSET else assigned_partitions
        self.user_data = user_data


class TopicPartition(Struct):
    __slots__ = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = UNSET,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is UNSET else partitions
