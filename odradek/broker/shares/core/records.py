"""Encodes and decodes the records of `__share_group_state`. See docs/formats/share-group-state.md."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import TypeVar

from odradek.broker.shares.core.state import (
    ACCEPT,
    DEAD_LETTER,
    REJECT,
    PendingRange,
    Resolution,
    ResolvedRange,
    SharePartitionKey,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    StateDeletion,
    StateRecord,
)
from odradek.protocol.codec import Write, decode, encode, writer
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages import (
    read_share_group_state_response,
    share_snapshot_value,
    share_update_value,
    write_share_group_state_request,
)
from odradek.protocol.messages.share_snapshot_key import ShareSnapshotKey
from odradek.protocol.messages.share_snapshot_value import ShareSnapshotValue
from odradek.protocol.messages.share_update_key import ShareUpdateKey
from odradek.protocol.messages.share_update_value import ShareUpdateValue

SHORT = struct.Struct(">h")
VERSION_BYTES = 2
KEY_VERSION = VALUE_VERSION = 0
SNAPSHOT, UPDATE = ShareSnapshotKey.API_KEY, ShareUpdateKey.API_KEY
REMEMBERED = 1024  # number of cached keys; most writes concern the same few share partitions
VALUE_PREFIX = SHORT.pack(VALUE_VERSION)


def encode_record(record: StateRecord) -> tuple[bytes, bytes | None]:
    match record:
        case StateDeletion():
            return _key(SNAPSHOT, record.key), None
        case ShareSnapshot():
            snapshot = ShareSnapshotValue(
                snapshot_epoch=record.snapshot_epoch,
                state_epoch=record.state_epoch,
                leader_epoch=record.leader_epoch,
                start_offset=record.start_offset,
                delivery_complete_count=record.delivery_complete_count,
                create_timestamp=record.created_ms,
                write_timestamp=record.written_ms,
                state_batches=[stored_batch(share_snapshot_value.StateBatch, each) for each in record.batches],
                txn_staged=[pending_form(share_snapshot_value.TxnStagedRange, each) for each in record.pending],
            )
            return _key(SNAPSHOT, record.key), _value(SNAPSHOT, snapshot)
        case ShareUpdate():
            update = ShareUpdateValue(
                snapshot_epoch=record.snapshot_epoch,
                leader_epoch=record.leader_epoch,
                start_offset=record.start_offset,
                delivery_complete_count=record.delivery_complete_count,
                state_batches=[stored_batch(share_update_value.StateBatch, each) for each in record.batches],
                txn_staged=[pending_form(share_update_value.TxnStagedRange, each) for each in record.pending],
                txn_resolved=[resolved_form(share_update_value.TxnResolvedRange, each) for each in record.resolved],
            )
            return _key(UPDATE, record.key), _value(UPDATE, update)


def decode_record(key: bytes | None, value: bytes | None) -> StateRecord | None:
    """Decodes a record. Returns None for an update's tombstone and for a record of an unknown type, which a later Kafka
    release may have written. Kafka also skips records of unknown types.

    Raises MalformedMessage if the record is invalid.
    """
    if key is None or len(key) < VERSION_BYTES:
        raise MalformedMessage("the key of a record in __share_group_state has no type")
    kind = SHORT.unpack_from(key)[0]
    if kind not in (SNAPSHOT, UPDATE):
        return None
    typed = decode(ShareSnapshotKey, KEY_VERSION, key, VERSION_BYTES)
    share_partition = SharePartitionKey(typed.group_id, typed.topic_id, typed.partition)
    if value is None:
        return StateDeletion(share_partition) if kind == SNAPSHOT else None
    if len(value) < VERSION_BYTES:
        raise MalformedMessage("the value of a record in __share_group_state has no version")
    version = SHORT.unpack_from(value)[0]
    if version != VALUE_VERSION:
        raise MalformedMessage(f"the value of a record in __share_group_state has the unsupported version {version}")
    if kind == SNAPSHOT:
        snapshot = decode(ShareSnapshotValue, version, value, VERSION_BYTES)
        return ShareSnapshot(
            share_partition,
            snapshot.snapshot_epoch,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            snapshot.delivery_complete_count,
            snapshot.create_timestamp,
            snapshot.write_timestamp,
            loaded_batches(snapshot.state_batches),
            pending_of(snapshot.txn_staged),
        )
    update = decode(ShareUpdateValue, version, value, VERSION_BYTES)
    return ShareUpdate(
        share_partition,
        update.snapshot_epoch,
        update.leader_epoch,
        update.start_offset,
        update.delivery_complete_count,
        loaded_batches(update.state_batches),
        pending=pending_of(update.txn_staged),
        resolved=resolved_of(update.txn_resolved),
    )


@lru_cache(REMEMBERED)
def _key(kind: int, key: SharePartitionKey) -> bytes:
    typed = ShareSnapshotKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )  # both key types have the same fields
    return SHORT.pack(kind) + encode(typed, KEY_VERSION)


def _value(kind: int, value: ShareSnapshotValue | ShareUpdateValue) -> bytes:
    chunks: list[bytearray] = []
    _value_writer(kind)(value, bytearray(VALUE_PREFIX), chunks)
    return b"".join(chunks)


@cache
def _value_writer(kind: int) -> Write:
    return writer(ShareSnapshotValue if kind == SNAPSHOT else ShareUpdateValue, VALUE_VERSION)


B = TypeVar(
    "B",
    share_snapshot_value.StateBatch,
    share_update_value.StateBatch,
    write_share_group_state_request.StateBatch,
    read_share_group_state_response.StateBatch,
)


def stored_batch(form: type[B], batch: StateBatch) -> B:
    return form(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.delivery_state,
        delivery_count=batch.delivery_count,
    )


def loaded_batches(batches: Sequence[B]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


S = TypeVar(
    "S",
    share_snapshot_value.TxnStagedRange,
    share_update_value.TxnStagedRange,
    write_share_group_state_request.TxnStagedRange,
    read_share_group_state_response.TxnStagedRange,
)
R = TypeVar("R", share_update_value.TxnResolvedRange, write_share_group_state_request.TxnResolvedRange)


def pending_form(form: type[S], pending: PendingRange) -> S:
    return form(
        first_offset=pending.first_offset,
        last_offset=pending.last_offset,
        producer_id=pending.producer_id,
        producer_epoch=pending.producer_epoch,
        ack_type=pending.ack_type,
        delivery_count=pending.delivery_count,
        owner_member_id=pending.member_id,
        owner_member_epoch=pending.member_epoch,
        lock_deadline_ms=pending.lock_deadline_ms,
        transactional_id=pending.transactional_id,
    )


def pending_of(forms: Iterable[S]) -> tuple[PendingRange, ...]:
    """Converts a message's pending ranges. Raises MalformedMessage if an acknowledgement type cannot be pending."""
    ranges = tuple(
        PendingRange(
            each.first_offset,
            each.last_offset,
            each.producer_id,
            each.producer_epoch,
            each.ack_type,
            each.delivery_count,
            each.owner_member_id,
            each.owner_member_epoch,
            each.lock_deadline_ms,
            each.transactional_id,
        )
        for each in forms
    )
    if any(each.ack_type not in (ACCEPT, REJECT, DEAD_LETTER) for each in ranges):
        raise MalformedMessage("a pending acknowledgement is neither accepted nor rejected")
    return ranges


def resolved_form(form: type[R], resolved: ResolvedRange) -> R:
    return form(
        first_offset=resolved.first_offset,
        last_offset=resolved.last_offset,
        producer_id=resolved.producer_id,
        producer_epoch=resolved.producer_epoch,
        outcome=resolved.resolution.value,
        decided_at_ms=resolved.decided_at_ms,
    )


def resolved_of(forms: Iterable[R]) -> tuple[ResolvedRange, ...]:
    """Converts a message's resolved ranges. Raises MalformedMessage if an outcome is unknown."""
    try:
        return tuple(
            ResolvedRange(
                each.first_offset,
                each.last_offset,
                each.producer_id,
                each.producer_epoch,
                Resolution(each.outcome),
                each.decided_at_ms,
            )
            for each in forms
        )
    except ValueError as error:
        raise MalformedMessage(f"the resolution of a pending acknowledgement is unknown: {error}") from error
