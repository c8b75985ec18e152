"""Staged and resolved ranges in messages and records: each schema has structs of its own for them, alike in all.

Source: docs/spec/share-groups.md#s5-12.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from odradek.broker.shares.core.staging import ACCEPT, REJECT, Resolution, ResolvedRange, StagedRange
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages import (
    read_share_group_state_response,
    share_snapshot_value,
    share_update_value,
    write_share_group_state_request,
)

S = TypeVar(
    "S",
    share_snapshot_value.TxnStagedRange,
    share_update_value.TxnStagedRange,
    write_share_group_state_request.TxnStagedRange,
    read_share_group_state_response.TxnStagedRange,
)
R = TypeVar("R", share_update_value.TxnResolvedRange, write_share_group_state_request.TxnResolvedRange)


class StagedForm(Protocol):
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    ack_type: int
    delivery_count: int
    owner_member_id: str
    owner_member_epoch: int
    lock_deadline_ms: int
    transactional_id: str | None


class ResolvedForm(Protocol):
    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    outcome: int
    decided_at_ms: int


def staged_form(form: type[S], staged: StagedRange) -> S:
    return form(
        first_offset=staged.first_offset,
        last_offset=staged.last_offset,
        producer_id=staged.producer_id,
        producer_epoch=staged.producer_epoch,
        ack_type=staged.ack_type,
        delivery_count=staged.delivery_count,
        owner_member_id=staged.member_id,
        owner_member_epoch=staged.member_epoch,
        lock_deadline_ms=staged.lock_deadline_ms,
        transactional_id=staged.transactional_id,
    )


def staged_of(forms: Iterable[StagedForm]) -> tuple[StagedRange, ...]:
    """Raises MalformedMessage for an acknowledgement type that cannot be staged."""
    ranges = tuple(
        StagedRange(
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
    if any(each.ack_type not in (ACCEPT, REJECT) for each in ranges):
        raise MalformedMessage("a staged acknowledgement that is neither accepted nor rejected")
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


def resolved_of(forms: Iterable[ResolvedForm]) -> tuple[ResolvedRange, ...]:
    """Raises MalformedMessage for an outcome that there is not."""
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
        raise MalformedMessage(f"a resolution of a staged acknowledgement that is not known: {error}") from error
