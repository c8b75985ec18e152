"""Implements `odradek topics`, which lists, describes, creates, alters and deletes topics, like kafka-topics."""

from __future__ import annotations

import argparse
import base64
import re
from typing import TYPE_CHECKING, NamedTuple

from odradek.client.common.values import TopicPartition, blocks
from odradek.protocol.errors import ErrorCode
from odradek.tools.commands.options import CommandActions, add_list, add_names, names, setting
from odradek.tools.commands.output import JsonArray, counted, headings, print_object, print_rows, size

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.topics import TopicDescription

TOPICS_PER_REQUEST = 100  # number of topics whose settings are requested at a time


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "list the names of all topics", list_, json=True) as listing:
        listing.add_argument("--internal", action="store_true", help="include internal topics")
        listing.add_argument(
            "patterns",
            nargs="*",
            type=pattern,
            metavar="PATTERN",
            help="only topics whose complete name matches one of these regular expressions; default: all",
        )
    with actions.add(
        "describe",
        "show partitions with their leaders, replicas, offsets and sizes, and changed settings",
        describe,
        json=True,
        more="Describes the named topics, or all topics. RECORDS is the number of offsets from START to END, so it"
        " includes transaction markers and records that compaction has removed.",
    ) as describing:
        add_names(describing, "topic", "-t", is_needed=False)
    with actions.add("create", "create topics", create, names) as creating:
        add_names(creating, "topic", "-t", is_needed=True)
        creating.add_argument(
            "--partitions",
            type=int,
            metavar="N",
            help="the number of partitions; default: num.partitions of the broker",
        )
        creating.add_argument(
            "--replication-factor",
            type=int,
            metavar="N",
            help="the number of replicas; default: default.replication.factor of the broker",
        )
        add_list(creating, "--config", type=setting, metavar="NAME=VALUE", help="a setting of the topic")
        creating.add_argument("--if-not-exists", action="store_true", help="succeed even if the topic exists")
    with actions.add("alter", "add partitions to topics", alter, names) as altering:
        add_names(altering, "topic", "-t", is_needed=True)
        altering.add_argument("--partitions", type=int, metavar="N", required=True, help="the new number of partitions")
    with actions.add("delete", "delete topics and their records", delete, names) as deleting:
        add_names(deleting, "topic", "-t", is_needed=True)
        deleting.add_argument("--if-exists", action="store_true", help="succeed even if the topic does not exist")


def pattern(text: str) -> re.Pattern[str]:
    """Parses a regular expression. Raises ArgumentTypeError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    found = await admin.list_topics(include_internal=options.internal)
    if options.patterns:
        found = [name for name in found if any(pattern.fullmatch(name) for pattern in options.patterns)]
    if options.json:
        print_object(found)
        return
    for name in found:
        print(name)


class DescribedTopic(NamedTuple):
    topic: TopicDescription
    configs: dict[str, str | None]
    partitions: list[dict[str, object]]


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    """Prints topic descriptions in blocks. Each block is printed before the next one is requested."""
    chosen = list(dict.fromkeys(names(options) or await admin.list_topics()))
    if options.json:
        with JsonArray() as array:
            for block in blocks(chosen, TOPICS_PER_REQUEST):
                for name, (topic, configs, partitions) in (await _described(admin, block)).items():
                    head = {"topic": name, "topic_id": _id(topic), "internal": topic.is_internal, "configs": configs}
                    array.add(head | {"partitions": partitions})
        return
    for block in blocks(chosen, TOPICS_PER_REQUEST):
        for name, found in (await _described(admin, block)).items():
            _print_topic(name, found)


def _print_topic(name: str, found: DescribedTopic) -> None:
    topic, configs, partitions = found
    records, sizes = [row["records"] for row in partitions], [row["size_bytes"] for row in partitions]
    parts = [counted(len(partitions), "partition"), counted(len(topic.partitions[0].replicas), "replica")]
    parts += [counted(sum(each for each in records if isinstance(each, int)), "record")]
    if None not in sizes:
        parts += [size(sum(each for each in sizes if isinstance(each, int)))]
    print(f"{name}: {', '.join(parts)}{', internal' if topic.is_internal else ''}, id {_id(topic)}")
    for key, value in configs.items():
        print(f"  {key}={value}")
    rows = [
        row | {"size_bytes": size(row["size_bytes"]) if isinstance(row["size_bytes"], int) else None}
        for row in partitions
    ]
    columns = headings(
        "partition leader leader_epoch replicas isr log_start_offset high_watermark records size_bytes",
        log_start_offset="START",
        high_watermark="END",
        size_bytes="SIZE",
    )
    print_rows(rows, columns, as_json=False, empty="")


async def _described(admin: Admin, topics: list[str]) -> dict[str, DescribedTopic]:
    from odradek.client.administration.configs import describe_topic_configs
    from odradek.client.administration.records import EARLIEST, LATEST
    from odradek.client.common.errors import ClientError

    found = await admin.describe_topics(topics)
    entries = await describe_topic_configs(admin.requests, topics)
    led = [
        TopicPartition(name, each.partition)
        for name, topic in found.items()
        for each in topic.partitions
        if each.leader is not None
    ]
    starts = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(led, LATEST))
    try:
        sizes = await admin.log_sizes(led)
    except ClientError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        sizes = {}
    described = {}
    for name, topic in found.items():
        configs = {each.name: each.value for each in entries[name] if each.source == "DYNAMIC_TOPIC_CONFIG"}
        partitions: list[dict[str, object]] = []
        for each in topic.partitions:
            at = TopicPartition(name, each.partition)
            start, end = starts.get(at), ends.get(at)
            row: dict[str, object] = {"partition": each.partition, "leader": each.leader}
            row |= {"leader_epoch": each.leader_epoch, "replicas": [*each.replicas], "isr": [*each.in_sync_replicas]}
            row |= {"log_start_offset": start.offset if start else None, "high_watermark": end.offset if end else None}
            row |= {"records": end.offset - start.offset if start and end else None, "size_bytes": sizes.get(at)}
            partitions.append(row)
        described[name] = DescribedTopic(topic, configs, partitions)
    return described


def _id(topic: TopicDescription) -> str:
    """Formats the topic's id as Kafka does."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


async def create(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.topics import NewTopic
    from odradek.client.common.errors import ClientError

    for name in names(options):
        new = NewTopic(name, options.partitions, options.replication_factor, dict(options.config))
        try:
            await admin.create_topics([new])
        except ClientError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                raise
            print(f"Topic {name} already exists.")
            continue
        print(f"Created topic {name}.")


async def alter(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        await admin.create_partitions({name: options.partitions})
        print(f"Topic {name} now has {options.partitions} partitions.")


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.common.errors import ClientError

    for name in names(options):
        try:
            await admin.delete_topics([name])
        except ClientError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not options.if_exists:
                raise
            print(f"There is no topic {name}.")
            continue
        print(f"Deleted topic {name}.")
