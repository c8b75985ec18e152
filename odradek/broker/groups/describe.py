"""Describes groups for ListGroups and DescribeGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.broker.groups.classic.group import ClassicGroup
from odradek.broker.groups.classic.tables import GroupState
from odradek.broker.groups.common.group import Group
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from odradek.protocol.messages.list_groups_response import ListedGroup
from odradek.protocol.quoting import shortened

FIRST_DESCRIBE_VERSION_WITH_NOT_FOUND: Final = 6
# Kafka's filter for the state NotReady is `not_ready`. This broker also accepts the state's name.
STATES_AS_FILTERED: Final = {"not_ready": "notready"}


def listed_group(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.group_type.value,
    )


def selects(listed: ListedGroup, states_filter: Sequence[str], types_filter: Sequence[str]) -> bool:
    """Returns whether a group matches the filters. An empty filter matches every group; an unknown state or type
    matches none."""
    states = {STATES_AS_FILTERED.get(state.strip().lower(), state.strip().lower()) for state in states_filter}
    types = {group_type.lower() for group_type in types_filter}
    return (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types)


def describe_classic(group: ClassicGroup) -> DescribedGroup:
    """Describes a classic group. The protocol and the members' metadata are included only if the group is STABLE,
    because they may still change in other states."""
    is_stable = group.state is GroupState.STABLE
    protocol_name = group.protocol_name or ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_missing(group_id: str, version: int, reason: str) -> DescribedGroup:
    """Describes a group that does not exist or is not a classic group. Its state is reported as Dead. Response versions
    6 and later also contain GROUP_ID_NOT_FOUND and the reason."""
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= FIRST_DESCRIBE_VERSION_WITH_NOT_FOUND:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND.value
        described.error_message = shortened(reason)
    return described
