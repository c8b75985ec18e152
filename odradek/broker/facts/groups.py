"""Describes groups of all types with their states, their members and assigned partitions, and their committed
offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.broker.facts.streams_groups import partitions_read
from odradek.protocol.codec import decode
from odradek.protocol.errors import KafkaError, MalformedMessage, UnsupportedVersion
from odradek.protocol.lag import GroupLag, group_lag, partition_lag
from odradek.protocol.messages.consumer_group_describe_response import Member as ConsumerMember
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_response import ListedGroup
    from odradek.protocol.messages.streams_group_describe_response import Member as StreamsMember

VERSION = struct.Struct(">h")
CLASSIC_VERSION = 6  # version of DescribeGroups used to describe classic groups


class MemberFacts(NamedTuple):
    """A group member. `epoch` is None for a member of a classic group. `instance` is None unless the member is static.
    For a streams group member, `partitions` contains its tasks."""

    id: str
    client: str
    host: str
    epoch: int | None
    instance: str | None
    partitions: Sequence[str]


class GroupFacts(NamedTuple):
    """A group, as reported by the describe request for its type. `epoch` is None for a classic group."""

    id: str
    type: str
    state: str
    epoch: int | None
    assignor: str | None
    members: Sequence[MemberFacts]


def groups(broker: Broker) -> Iterator[GroupFacts]:
    """Yields all groups. Raises KafkaError while a coordinator is loading."""
    for shard in broker.groups.shards if broker.has_started("groups") else ():
        for listed in shard.read_state(lambda core: core.list_groups((), ())):
            yield shard.read_state(partial(group_facts, listed))


def group(broker: Broker, name: str) -> GroupFacts | None:
    """Returns the group, or None if it does not exist. Raises KafkaError while its coordinator is loading."""
    if not broker.has_started("groups"):
        return None
    shard = broker.groups.shard_for(name)
    found = next(
        (each for each in shard.read_state(lambda core: core.list_groups((), ())) if each.group_id == name), None
    )
    return None if found is None else shard.read_state(partial(group_facts, found))


def group_facts(listed: ListedGroup, core: GroupCore) -> GroupFacts:
    name, kind = listed.group_id, listed.group_type
    if kind == "streams":
        streams = core.describe_streams_group(name)
        members = [_streams_member(each) for each in streams.members]
        return GroupFacts(name, kind, listed.group_state, streams.group_epoch, streams.assignor_name, members)
    if kind not in ("consumer", "share"):
        classic = core.describe_group(name, version=CLASSIC_VERSION)
        members = [
            _member(each, decode_assignment(each.member_assignment), None, each.group_instance_id)
            for each in classic.members
        ]
        return GroupFacts(name, kind, listed.group_state, None, classic.protocol_data, members)
    found = core.describe_consumer_group(name) if kind == "consumer" else core.describe_share_group(name)
    members = [
        _member(
            each,
            ((topic.topic_name, topic.partitions) for topic in each.assignment.topic_partitions),
            each.member_epoch,
            each.instance_id if isinstance(each, ConsumerMember) else None,
        )
        for each in found.members
    ]
    return GroupFacts(name, kind, listed.group_state, found.group_epoch, found.assignor_name, members)


class DescribedMember(Protocol):
    """A member in the description of a group of any type."""

    member_id: str
    client_id: str
    client_host: str


def _member(
    each: DescribedMember, assigned: Iterable[tuple[str, Iterable[int]]], epoch: int | None, instance: str | None
) -> MemberFacts:
    owned = [f"{topic}-{index}" for topic, indexes in assigned for index in indexes]
    return MemberFacts(each.member_id, each.client_id, each.client_host, epoch, instance, owned)


def _streams_member(each: StreamsMember) -> MemberFacts:
    """Converts a streams group member. A task is written as its subtopology and partition, such as `0_2`."""
    owned = [
        f"{tasks.subtopology_id}_{partition}{role}"
        for listed, role in ((each.assignment.active_tasks, ""), (each.assignment.standby_tasks, " (standby)"))
        for tasks in listed
        for partition in tasks.partitions
    ]
    return MemberFacts(each.member_id, each.client_id, each.client_host, each.member_epoch, each.instance_id, owned)


def decode_assignment(assignment: bytes) -> list[tuple[str, list[int]]]:
    """Decodes a classic group consumer's assignment. Returns an empty list for members that use another protocol."""
    if len(assignment) < VERSION.size:
        return []
    version = min(VERSION.unpack_from(assignment)[0], ConsumerProtocolAssignment.MAX_VERSION)
    try:
        said = decode(ConsumerProtocolAssignment, version, assignment, VERSION.size)
    except (MalformedMessage, UnsupportedVersion):
        return []
    return [(each.topic, each.partitions) for each in said.assigned_partitions]


class GroupPosition(NamedTuple):
    """A group's position in one partition.

    committed  None if the partition is assigned to a member, but the group has not committed an offset for it
    end        the high watermark, or None if the partition no longer exists
    lag        None if there is no committed offset or the partition no longer exists
    """

    partition: str
    committed: int | None
    end: int | None
    lag: int | None
    committed_ms: int | None


def positions(core: GroupCore, facts: GroupFacts, broker: Broker) -> list[GroupPosition]:
    """Returns the group's position in each partition that has a committed offset or is assigned to a member. `odradek
    groups describe` lists the same partitions."""
    commits = core.committed_offsets(facts.id)
    places = {*commits, *_assigned_partitions(core, facts, broker)}
    found = []
    for topic, index in sorted(places):
        try:
            end = broker.partitions.get(topic, index).log.high_watermark
        except KafkaError:
            end = None
        commit = commits.get((topic, index))
        offset, at_ms = (None, None) if commit is None else (commit.offset, commit.committed_ms)
        found.append(GroupPosition(f"{topic}-{index}", offset, end, partition_lag(offset, end), at_ms))
    return found


def _assigned_partitions(core: GroupCore, facts: GroupFacts, broker: Broker) -> set[tuple[str, int]]:
    """Returns the partitions assigned to members. Returns an empty set for a share group, because share groups commit
    no offsets."""
    if facts.type == "share":
        return set()
    if facts.type == "streams":
        return partitions_read(core.describe_streams_group(facts.id), broker.metadata.image)
    split = (name.rpartition("-") for member in facts.members for name in member.partitions)
    return {(topic, int(index)) for topic, _, index in split}


def lag_of(found: Iterable[GroupPosition]) -> GroupLag:
    return group_lag((each.committed, each.end) for each in found)
