"""Topics, and the partitions of one: how far each log reaches, how far readers of committed data get, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.configuration.config_description import describe_topic
from odradek.broker.control.page.served import SHOWN
from odradek.broker.control.page.transactions import held_back, holders, is_held
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import INTERNAL_TOPICS
from odradek.storage.checkpoints import topic_id_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.broker.control.page.json_value import JsonValue, View
    from odradek.broker.control.page.served import Query, Served
    from odradek.broker.partitions.partition import Partition


async def topics(served: Served, query: Query) -> View:
    """`find`: part of a name. Those of applications first."""
    part = query.get("find", "")
    members: dict[str, list[Partition]] = {}

    def add(partition: Partition) -> None:
        if part in partition.topic:
            members.setdefault(partition.topic, []).append(partition)

    await served.visit(served.broker.partitions, add)
    names = sorted(members, key=lambda name: (name in INTERNAL_TOPICS, name))
    rows: list[JsonValue] = []
    await served.visit(names[:SHOWN], lambda name: rows.append(row(name, members[name])))
    return {"total": len(names), "topics": rows}


def row(name: str, members: list[Partition]) -> JsonValue:
    return {
        "name": name,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": len(members),
        "records": sum(each.log.log_end_offset - each.log.log_start_offset for each in members),
        "size_bytes": sum(each.log.size_bytes for each in members),
        "bytes_in_total": sum(each.bytes_in for each in members),
        "bytes_out_total": sum(each.bytes_out for each in members),
        "held_records": sum(max(0, each.log.high_watermark - each.log.last_stable_offset) for each in members),
    }


async def topic(served: Served, query: Query) -> View:
    """`name`. Raises KafkaError if there is none."""
    broker, name = served.broker, query["name"]
    image = broker.metadata.image.topics.get(name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    members = sorted((each for each in broker.partitions if each.topic == name), key=lambda each: each.index)
    names = holders(broker)
    rows: list[JsonValue] = []
    await served.visit(members, lambda each: rows.append(partition_row(each, names)))
    return {
        "name": name,
        "topic_id": topic_id_text(image.topic_id),
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": rows,
        "settings": [
            {
                "name": each.name,
                "value": None if each.is_sensitive else each.value,
                "source": each.source.name,
            }
            for each in describe_topic(broker.config, broker.metadata.image.topic_configs(name))
        ],
    }


def partition_row(each: Partition, names: Mapping[int, str]) -> JsonValue:
    """names: see `holders`"""
    log = each.log
    return {
        "partition": each.index,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
        "size_bytes": log.size_bytes,
        "segments": len(log.segments),
        "leader_epoch": log.leader_epoch,
        "producers": len(log.producers()),
        "offline": log.offline_reason,
        "held": held_back(each, names) if is_held(each) else None,
    }
