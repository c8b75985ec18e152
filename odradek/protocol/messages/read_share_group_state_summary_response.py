"""ReadShareGroupStateSummaryResponse, versions 0-1. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, ZERO_UUID, Message, Struct


class ReadShareGroupStateSummaryResponse(Message):
    __slots__ = ("results",)
    API_KEY = 87
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        results: list[ReadStateSummaryResult] = UNSET,
    ) -> None:
        self.results = [] if results is UNSET else results


class ReadStateSummaryResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        *,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] = UNSET,
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is UNSET else partitions


class PartitionResult(Struct):
    __slots__ = (
        "partition",
        "error_code",
        "error_message",
        "state_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
        "txn_staged_count",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        txn_staged_count: int = 0,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.txn_staged_count = txn_staged_count
