"""Groups of every type: members, lag and history."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.broker.http.page.history import group_history
from odradek.broker.http.page.served import SHOWN, Job, JsonValue, Query, View, ViewedBroker
from odradek.files.checkpoints import topic_id_text
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage, UnsupportedVersion
from odradek.protocol.messages.consumer_group_describe_response import Member as ConsumerMember
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.topic_partition import GROUP_OFFSETS

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_response import ListedGroup

VERSION = struct.Struct(">h")
CLASSIC_VERSION = 6  # of DescribeGroups
HISTORY_RECORDS = 100_000  # of the partition of a group, which it shares with others


async def groups(served: ViewedBroker, query: Query) -> View:
    """Lists groups. `find`: part of an id."""
    broker = served.broker
    if not broker.has_started("groups"):
        return {"total": 0, "groups": []}
    part = query.get("find", "")
    found: list[tuple[Shard[GroupCore], ListedGroup]] = []

    def find(shard: Shard[GroupCore]) -> None:
        if not shard.is_away:
            listed = shard.look(lambda core: core.list_groups((), ()))
            found.extend((shard, each) for each in listed if part in each.group_id)

    await served.visit(broker.groups.shards, find)
    rows: list[JsonValue] = []

    def show(each: tuple[Shard[GroupCore], ListedGroup]) -> None:
        shard, listed = each
        if not shard.is_away:
            rows.append(shard.look(partial(group_row, listed, broker)))

    await served.visit(found[:SHOWN], show)
    return {"total": len(found), "groups": rows}


def group_row(listed: ListedGroup, broker: Broker, core: GroupCore) -> JsonValue:
    positions = offsets(core, listed.group_id, broker)
    lags = [each.lag for each in positions if each.lag is not None]
    return {
        "id": listed.group_id,
        "type": listed.group_type,
        "state": listed.group_state,
        "protocol": listed.protocol_type,
        "partitions": len(positions),
        "lag": sum(lags) if lags else None,
    }


def group(served: ViewedBroker, query: Query) -> Job:
    """Shows the group `id`, with what happened to it as `__consumer_offsets` still has it. Raises KafkaError if there
    is none.
    """
    broker, name = served.broker, query["id"]
    if not broker.has_started("groups"):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {name}.")
    shard = broker.groups.shard_for(name)
    found = [each for each in shard.look(lambda core: core.list_groups((), ())) if each.group_id == name]
    if not found:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {name}.")
    kind = found[0].group_type
    head: dict[str, JsonValue] = {"id": name, "type": kind, "state": found[0].group_state}
    now: dict[str, JsonValue] = {
        **head,
        **shard.look(lambda core: described(core, name, kind)),
        "offsets": [each._asdict() for each in shard.look(lambda core: offsets(core, name, broker))],
    }
    log = broker.partitions.get(GROUP_OFFSETS, broker.groups.partition_for(name)).log
    start = max(log.log_start_offset, log.log_end_offset - HISTORY_RECORDS)
    topics = {topic_id_text(topic_id): each.name for topic_id, each in broker.metadata.image.topics_by_id.items()}
    return lambda: {**now, "history": group_history(log.reader.scan(start), name, topics)}


def described(core: GroupCore, name: str, kind: str) -> dict[str, JsonValue]:
    """Returns epoch, assignor and members, as the group's own DescribeGroups tells them."""
    if kind not in ("consumer", "share"):
        classic = core.describe_group(name, version=CLASSIC_VERSION)
        members = [
            member(each, assigned(each.member_assignment), None, each.group_instance_id) for each in classic.members
        ]
        return {"epoch": None, "assignor": classic.protocol_data, "members": members}
    found = core.describe_consumer_group(name) if kind == "consumer" else core.describe_share_group(name)
    members = [
        member(
            each,
            ((topic.topic_name, topic.partitions) for topic in each.assignment.topic_partitions),
            each.member_epoch,
            each.instance_id if isinstance(each, ConsumerMember) else None,
        )
        for each in found.members
    ]
    return {"epoch": found.group_epoch, "assignor": found.assignor_name, "members": members}


class DescribedMember(Protocol):
    """Member in a description of any type of group."""

    member_id: str
    client_id: str
    client_host: str


def member(
    each: DescribedMember, assigned: Iterable[tuple[str, Iterable[int]]], epoch: int | None, instance: str | None
) -> dict[str, JsonValue]:
    return {
        "id": each.member_id,
        "client": each.client_id,
        "host": each.client_host,
        "epoch": epoch,
        "instance": instance,
        "partitions": [f"{topic}-{index}" for topic, indexes in assigned for index in indexes],
    }


def assigned(assignment: bytes) -> list[tuple[str, list[int]]]:
    """Returns what a member of a classic group has, where it is a consumer; other members speak a language of their
    own.
    """
    if len(assignment) < VERSION.size:
        return []
    version = min(VERSION.unpack_from(assignment)[0], ConsumerProtocolAssignment.MAX_VERSION)
    try:
        said = decode(ConsumerProtocolAssignment, version, assignment, VERSION.size)
    except (MalformedMessage, UnsupportedVersion):
        return []
    return [(each.topic, each.partitions) for each in said.assigned_partitions]


class GroupPosition(NamedTuple):
    """Position of a group in one partition. `end`: the high watermark; None where the partition is gone."""

    partition: str
    committed: int
    end: int | None
    lag: int | None
    committed_ms: int


def offsets(core: GroupCore, name: str, broker: Broker) -> list[GroupPosition]:
    """Returns committed offsets; the lag counts up to the high watermark, as `kafka-consumer-groups` does."""
    found = []
    for (topic, index), committed in sorted(core.committed_offsets(name).items()):
        try:
            end = broker.partitions.get(topic, index).log.high_watermark
        except KafkaError:
            end = None
        lag = None if end is None else max(0, end - committed.offset)
        found.append(GroupPosition(f"{topic}-{index}", committed.offset, end, lag, committed.committed_ms))
    return found
