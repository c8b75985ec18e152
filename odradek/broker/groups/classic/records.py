"""The record of a classic group: docs/formats/consumer-offsets.md."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.member import Member
from odradek.broker.groups.common.effects import CoordinatorRecord
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

GROUP_METADATA_VERSION = 3


def empty_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """The first record of a group: it says that there is one, and is not yet of any protocol type."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(protocol_type="", protocol=None, leader=None, current_state_timestamp=now_ms),
        GROUP_METADATA_VERSION,
    )


def group_metadata_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The group as it is, with these assignments by member id; members that are not named are assigned nothing."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=-1 if group.changed_ms is None else group.changed_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name or ""),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ],
        ),
        GROUP_METADATA_VERSION,
    )


def member_of(value: GroupMetadataValue, stored: MemberMetadata) -> Member:
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        # Version 0 did not store it.
        rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=((value.protocol or "", stored.subscription),),
        assignment=stored.assignment,
    )
