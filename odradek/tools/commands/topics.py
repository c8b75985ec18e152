"""`odradek topics`: lists, describes, creates, alters and deletes topics, like kafka-topics."""

from __future__ import annotations

import argparse
import base64
from typing import TYPE_CHECKING

from odradek.client.common.values import blocks
from odradek.tools.commands.options import CommandActions, add_list, add_names, names, setting
from odradek.tools.commands.output import JsonArray, headings, print_object, print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.topics import TopicDescription

AT_A_TIME = 100  # number of topics whose settings are requested at a time


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "the names of all topics", list_, json=True) as listing:
        listing.add_argument("--internal", action="store_true", help="include internal topics")
    with actions.add("describe", "partitions, leaders, replicas and settings", describe, json=True) as describing:
        add_names(describing, "topic", "-t", is_needed=False)
    with actions.add("create", "create topics", create, names) as creating:
        add_names(creating, "topic", "-t", is_needed=True)
        creating.add_argument("--partitions", type=int, metavar="N", help="default: the broker's num.partitions")
        creating.add_argument("--replication-factor", type=int, metavar="N", help="default: the broker's")
        add_list(creating, "--config", type=setting, metavar="NAME=VALUE", help="a setting")
        creating.add_argument("--if-not-exists", action="store_true", help="succeed if the topic exists")
    with actions.add("alter", "add partitions", alter, names) as altering:
        add_names(altering, "topic", "-t", is_needed=True)
        altering.add_argument("--partitions", type=int, metavar="N", required=True, help="the new number of partitions")
    with actions.add("delete", "delete topics with their records", delete, names) as deleting:
        add_names(deleting, "topic", "-t", is_needed=True)
        deleting.add_argument("--if-exists", action="store_true", help="succeed if the topic does not exist")


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    found = await admin.list_topics(include_internal=options.internal)
    if options.json:
        print_object(found)
        return
    for name in found:
        print(name)


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    """Prints topics in blocks: each block before the next one is requested."""
    wanted = list(dict.fromkeys(names(options) or await admin.list_topics()))
    if options.json:
        with JsonArray() as array:
            for block in blocks(wanted, AT_A_TIME):
                for name, topic, configs in await _described(admin, block):
                    told = {"topic": name, "topic_id": _id(topic), "internal": topic.is_internal, "configs": configs}
                    array.add(told | {"partitions": _partitions(topic)})
        return
    for block in blocks(wanted, AT_A_TIME):
        for name, topic, configs in await _described(admin, block):
            print(
                f"{name}: {len(topic.partitions)} partitions, {len(topic.partitions[0].replicas)} replicas"
                f"{', internal' if topic.is_internal else ''}, id {_id(topic)}"
            )
            for key, value in configs.items():
                print(f"  {key}={value}")
            columns = headings("partition leader leader_epoch replicas isr")
            print_rows(_partitions(topic), columns, as_json=False, empty="")


async def _described(admin: Admin, topics: list[str]) -> list[tuple[str, TopicDescription, dict[str, str | None]]]:
    from odradek.client.administration.configs import describe_topic_configs

    found = await admin.describe_topics(topics)
    entries = await describe_topic_configs(admin.asking, topics)
    return [
        (name, topic, {each.name: each.value for each in entries[name] if each.source == "DYNAMIC_TOPIC_CONFIG"})
        for name, topic in found.items()
    ]


def _id(topic: TopicDescription) -> str:
    """Formats the topic's id as Kafka prints it."""
    return base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def _partitions(topic: TopicDescription) -> list[dict[str, object]]:
    return [
        {"partition": each.partition, "leader": each.leader, "leader_epoch": each.leader_epoch}
        | {"replicas": list(each.replicas), "isr": list(each.in_sync_replicas)}
        for each in topic.partitions
    ]


async def create(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.administration.topics import NewTopic
    from odradek.client.common.errors import ClientError
    from odradek.protocol.errors import ErrorCode

    for name in names(options):
        new = NewTopic(name, options.partitions, options.replication_factor, dict(options.config))
        try:
            await admin.create_topics([new])
        except ClientError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                raise
            print(f"The topic {name} exists already.")
            continue
        print(f"Created topic {name}.")


async def alter(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        await admin.create_partitions({name: options.partitions})
        print(f"The topic {name} has {options.partitions} partitions now.")


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    from odradek.client.common.errors import ClientError
    from odradek.protocol.errors import ErrorCode

    for name in names(options):
        try:
            await admin.delete_topics([name])
        except ClientError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not options.if_exists:
                raise
            print(f"There is no topic {name}.")
            continue
        print(f"Deleted topic {name}.")
