"""ProducerSnapshot, versions 1-1. Written by `python -m odradek.protocol.generate`."""

# ruff: noqa: RUF023 (slots are in wire order)

from __future__ import annotations

from odradek.protocol.struct import UNSET, Message, Struct


class ProducerSnapshot(Message):
    __slots__ = ("crc", "producer_entries")
    MIN_VERSION = 1
    MAX_VERSION = 1
    FLEXIBLE_SINCE = None

    def __init__(
        self,
        *,
        crc: int = 0,
        producer_entries: list[ProducerEntry] = UNSET,
    ) -> None:
        self.crc = crc
        self.producer_entries = [] if producer_entries is UNSET else producer_entries


class ProducerEntry(Struct):
    __slots__ = (
        "producer_id",
        "epoch",
        "last_sequence",
        "last_offset",
        "offset_delta",
        "timestamp",
        "coordinator_epoch",
        "current_txn_first_offset",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        epoch: int = 0,
        last_sequence: int = 0,
        last_offset: int = 0,
        offset_delta: int = 0,
        timestamp: int = 0,
        coordinator_epoch: int = 0,
        current_txn_first_offset: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
