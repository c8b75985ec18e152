"""ShareUpdateValue, versions 0-0. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class ShareUpdateValue(Message):
    __slots__ = (
        "snapshot_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
        "state_batches",
        "txn_staged",
        "txn_resolved",
    )
    API_KEY = 1
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    def __init__(
        self,
        *,
        snapshot_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] = UNSET,
        txn_staged: list[TxnStagedRange] = UNSET,
        txn_resolved: list[TxnResolvedRange] = UNSET,
    ) -> None:
        self.snapshot_epoch = snapshot_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches = [] if state_batches is UNSET else state_batches
        self.txn_staged = [] if txn_staged is UNSET else txn_staged
        self.txn_resolved = [] if txn_resolved is UNSET else txn_resolved


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


class TxnResolvedRange(Struct):
    __slots__ = ("first_offset", "last_offset", "producer_id", "producer_epoch", "outcome", "decided_at_ms")

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        outcome: int = 0,
        decided_at_ms: int = -1,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.outcome = outcome
        self.decided_at_ms = decided_at_ms
