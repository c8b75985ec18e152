"""ReadShareGroupStateResponse, versions 0-0. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, ZERO_UUID, Message, Struct


class ReadShareGroupStateResponse(Message):
    __slots__ = ("results",)
    API_KEY = 84
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        results: list[ReadStateResult] = UNSET,
    ) -> None:
        self.results = [] if results is UNSET else results


class ReadStateResult(Struct):
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
        "start_offset",
        "state_batches",
        "txn_staged",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        start_offset: int = 0,
        state_batches: list[StateBatch] = UNSET,
        txn_staged: list[TxnStagedRange] = UNSET,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.state_batches = [] if state_batches is UNSET else state_batches
        self.txn_staged = [] if txn_staged is UNSET else txn_staged


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class TxnStagedRange(Struct):
    __slots__ = (
        "first_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "ack_type",
        "delivery_count",
        "owner_member_id",
        "owner_member_epoch",
        "lock_deadline_ms",
        "transactional_id",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        ack_type: int = 0,
        delivery_count: int = 0,
        owner_member_id: str = "",
        owner_member_epoch: int = 0,
        lock_deadline_ms: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ack_type = ack_type
        self.delivery_count = delivery_count
        self.owner_member_id = owner_member_id
        self.owner_member_epoch = owner_member_epoch
        self.lock_deadline_ms = lock_deadline_ms
        self.transactional_id = transactional_id
