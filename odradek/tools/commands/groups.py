"""`odradek groups`: what kafka-groups and kafka-consumer-groups do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.client.common.values import TopicPartition
from odradek.tools.commands.group_offsets import add_reset, check_reset, plan, selected, show
from odradek.tools.commands.options import add_connection, add_json, add_names, names, with_admin
from odradek.tools.commands.output import print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.groups import GroupDescription

MEMBERS = {
    "group": "GROUP",
    "member": "MEMBER",
    "instance": "INSTANCE",
    "client": "CLIENT",
    "host": "HOST",
    "partitions": "PARTITIONS",
}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="all groups, with their type and state")
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="only this; may be repeated")
    listing.add_argument("--type", action="append", default=[], metavar="TYPE", help="classic, consumer, share …")
    add_json(listing)
    add_connection(listing)
    listing.set_defaults(run=with_admin(list_))

    describing = actions.add_parser("describe", help="committed offsets and lag, or the members")
    add_names(describing, "group", "-g", is_needed=True)
    describing.add_argument("--members", action="store_true", help="the members and what they read")
    describing.add_argument("--state", action="store_true", help="state, assignor, coordinator")
    add_json(describing)
    add_connection(describing)
    describing.set_defaults(run=with_admin(describe, names))

    deleting = actions.add_parser("delete", help="delete groups without members, with their offsets")
    add_names(deleting, "group", "-g", is_needed=True)
    add_connection(deleting)
    deleting.set_defaults(run=with_admin(delete, names))

    resetting = actions.add_parser("reset-offsets", help="move the committed offsets of a group")
    add_reset(resetting)
    resetting.set_defaults(run=with_admin(reset, check_reset))

    forgetting = actions.add_parser("delete-offsets", help="forget the committed offsets of a topic")
    forgetting.add_argument("names", nargs=1, metavar="GROUP", help="the group")
    forgetting.add_argument("-t", "--topic", action="append", required=True, metavar="TOPIC[:0,1]", help="of these")
    add_connection(forgetting)
    forgetting.set_defaults(run=with_admin(delete_offsets))


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    await print_listing(admin, options.state, options.type, as_json=options.json)


async def print_listing(admin: Admin, states: list[str], types: list[str], *, as_json: bool) -> None:
    rows = [
        {"group": each.group_id, "type": each.type, "protocol": each.protocol_type, "state": each.state}
        | {"coordinator": each.coordinator}
        for each in await admin.list_groups(states=states, types=types)
    ]
    columns = {
        "group": "GROUP",
        "type": "TYPE",
        "protocol": "PROTOCOL",
        "state": "STATE",
        "coordinator": "COORDINATOR",
    }
    print_rows(rows, columns, as_json=as_json, empty="No groups.")


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    found = [await admin.describe_group(name) for name in names(options)]
    if options.members:
        print_members(found, as_json=options.json)
    elif options.state:
        print_states(found, as_json=options.json)
    else:
        rows = [row for group in found for row in await _offsets(admin, group)]
        columns = {
            "group": "GROUP",
            "topic": "TOPIC",
            "partition": "PARTITION",
            "current_offset": "CURRENT-OFFSET",
            "log_end_offset": "LOG-END-OFFSET",
            "lag": "LAG",
            "consumer_id": "CONSUMER-ID",
            "host": "HOST",
            "client_id": "CLIENT-ID",
        }
        print_rows(rows, columns, as_json=options.json, empty="The group has no offsets and no assigned partitions.")


def print_members(found: list[GroupDescription], *, as_json: bool) -> None:
    rows = [
        {
            "group": group.group_id,
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{topic}-{index}" for topic, index in member.assignment],
        }
        for group in found
        for member in group.members
    ]
    print_rows(rows, MEMBERS, as_json=as_json, empty="The group has no members.")


def print_states(found: list[GroupDescription], *, as_json: bool) -> None:
    rows = [
        {
            "group": group.group_id,
            "type": group.type,
            "state": group.state,
            "epoch": group.epoch,
            "assignor": group.assignor or None,
            "coordinator": group.coordinator,
            "members": len(group.members),
        }
        for group in found
    ]
    columns = {key: key.upper() for key in ("group", "type", "state", "epoch", "assignor", "coordinator", "members")}
    print_rows(rows, columns, as_json=as_json, empty="")


async def _offsets(admin: Admin, group: GroupDescription) -> list[dict[str, object]]:
    """Of every partition that has a committed offset or a member."""
    from odradek.client.administration.records import LATEST
    from odradek.client.common.errors import ClientError

    committed = await admin.list_group_offsets(group.group_id)
    members = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *members})
    existing = set(await admin.list_topics(include_internal=True))
    try:
        ends = await admin.list_offsets({each: LATEST for each in partitions if each.topic in existing})
    except ClientError as error:
        if error.is_retriable:  # a leader is away: what is known is shown without ends
            ends = {}
        else:
            raise
    rows: list[dict[str, object]] = []
    for each in partitions:
        current = committed[each].offset if each in committed else None
        found = ends.get(each)
        end = found.offset if found is not None else None
        member = members.get(each)
        rows.append(
            {
                "group": group.group_id,
                "topic": each.topic,
                "partition": each.partition,
                "current_offset": current,
                "log_end_offset": end,
                "lag": end - current if end is not None and current is not None else None,
                "consumer_id": member.member_id if member else None,
                "host": member.host if member else None,
                "client_id": member.client_id if member else None,
            }
        )
    return rows


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        await admin.delete_groups([name])
        print(f"Deleted group {name}.")


async def reset(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    committed = {each: found.offset for each, found in (await admin.list_group_offsets(group)).items()}
    after = await plan(admin, options, committed)
    if options.execute and not options.dry_run:
        await admin.alter_group_offsets(group, after)
    show(options, committed, after)


async def delete_offsets(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    partitions: list[TopicPartition] = await selected(admin, options.topic)
    await admin.delete_group_offsets(group, partitions)
    print(f"Deleted the offsets of {group} in {', '.join(f'{topic}-{index}' for topic, index in partitions)}.")
