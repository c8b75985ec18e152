"""Groups of every type: their members, what each has, and how far behind the committed offsets are."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.control.page.group_history import group_history
from odradek.broker.control.page.served import SHOWN
from odradek.broker.groups.consumer.lifecycle import describe_consumer_group
from odradek.broker.groups.share.heartbeat import describe_share_group
from odradek.protocol.codec import decode
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage, UnsupportedVersion
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.topic_partition import GROUP_OFFSETS
from odradek.storage.checkpoints import topic_id_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.broker.broker import Broker
    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Job, Query, Served
    from odradek.broker.coordinators.shard import Shard
    from odradek.broker.groups.core import GroupCore
    from odradek.protocol.messages.list_groups_response import ListedGroup

VERSION = struct.Struct(">h")
CLASSIC_VERSION = 6  # of DescribeGroups
HISTORY_RECORDS = 100_000  # of the partition of a group, which it shares with others


async def groups(served: Served, query: Query) -> View:
    """`find`: part of an id."""
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
            rows.append(shard.look(partial(row, listed, broker)))

    await served.visit(found[:SHOWN], show)
    return {"total": len(found), "groups": rows}


def row(listed: ListedGroup, broker: Broker, core: GroupCore) -> JsonValue:
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


def group(served: Served, query: Query) -> Job:
    """`id`; with what happened to it, as `__consumer_offsets` still has it. Raises KafkaError if there is none."""
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
    """Epochs and members, as the group's own DescribeGroups tells them."""
    match kind:
        case "consumer":
            consumers = describe_consumer_group(core.registry, name)
            return {
                "epoch": consumers.group_epoch,
                "assignor": consumers.assignor_name,
                "members": [
                    member(
                        each.member_id,
                        each.client_id,
                        each.client_host,
                        ((topic.topic_name, topic.partitions) for topic in each.assignment.topic_partitions),
                        epoch=each.member_epoch,
                        instance=each.instance_id,
                    )
                    for each in consumers.members
                ],
            }
        case "share":
            sharers = describe_share_group(core.registry, name)
            return {
                "epoch": sharers.group_epoch,
                "assignor": sharers.assignor_name,
                "members": [
                    member(
                        each.member_id,
                        each.client_id,
                        each.client_host,
                        ((topic.topic_name, topic.partitions) for topic in each.assignment.topic_partitions),
                        epoch=each.member_epoch,
                    )
                    for each in sharers.members
                ],
            }
        case _:
            classic = core.describe_group(name, version=CLASSIC_VERSION)
            return {
                "epoch": None,
                "assignor": classic.protocol_data,
                "members": [
                    member(
                        each.member_id,
                        each.client_id,
                        each.client_host,
                        assigned(each.member_assignment),
                        instance=each.group_instance_id,
                    )
                    for each in classic.members
                ],
            }


def member(
    member_id: str,
    client_id: str,
    client_host: str,
    assigned: Iterable[tuple[str, Iterable[int]]],
    *,
    epoch: int | None = None,
    instance: str | None = None,
) -> dict[str, JsonValue]:
    return {
        "id": member_id,
        "client": client_id,
        "host": client_host,
        "epoch": epoch,
        "instance": instance,
        "partitions": [f"{topic}-{index}" for topic, indexes in assigned for index in indexes],
    }


def assigned(assignment: bytes) -> list[tuple[str, list[int]]]:
    """What a member of a classic group has, where it is a consumer; other members speak a language of their own."""
    if len(assignment) < VERSION.size:
        return []
    version = min(VERSION.unpack_from(assignment)[0], ConsumerProtocolAssignment.MAX_VERSION)
    try:
        said = decode(ConsumerProtocolAssignment, version, assignment, VERSION.size)
    except (MalformedMessage, UnsupportedVersion):
        return []
    return [(each.topic, each.partitions) for each in said.assigned_partitions]


class Position(NamedTuple):
    """Of a group in one partition. `end`: the high watermark; None where the partition is gone."""

    partition: str
    committed: int
    end: int | None
    lag: int | None
    committed_ms: int


def offsets(core: GroupCore, name: str, broker: Broker) -> list[Position]:
    """Committed offsets; the lag counts up to the high watermark, as `kafka-consumer-groups` does."""
    found = []
    for (topic, index), committed in sorted(core.registry.offsets.of(name).items()):
        try:
            end = broker.partitions.get(topic, index).log.high_watermark
        except KafkaError:
            end = None
        lag = None if end is None else max(0, end - committed.offset)
        found.append(Position(f"{topic}-{index}", committed.offset, end, lag, committed.committed_ms))
    return found
