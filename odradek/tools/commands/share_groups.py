"""`odradek share-groups`: what kafka-share-groups does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from odradek.tools.commands.group_offsets import add_reset, check_reset, plan, show
from odradek.tools.commands.groups import print_listing, print_members, print_states
from odradek.tools.commands.options import add_connection, add_json, add_names, names, with_admin
from odradek.tools.commands.output import print_rows

if TYPE_CHECKING:
    from odradek.client.admin import Admin


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="all share groups, with their state")
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="only this; may be repeated")
    add_json(listing)
    add_connection(listing)
    listing.set_defaults(run=with_admin(list_))

    describing = actions.add_parser("describe", help="start offsets and lag, or the members")
    add_names(describing, "group", "-g", is_needed=True)
    describing.add_argument("--members", action="store_true", help="the members and what they read")
    describing.add_argument("--state", action="store_true", help="state, assignor, coordinator")
    add_json(describing)
    add_connection(describing)
    describing.set_defaults(run=with_admin(describe, names))

    deleting = actions.add_parser("delete", help="delete share groups without members")
    add_names(deleting, "group", "-g", is_needed=True)
    add_connection(deleting)
    deleting.set_defaults(run=with_admin(delete, names))

    resetting = actions.add_parser("reset-offsets", help="move the start offsets of a share group")
    add_reset(resetting, is_share=True)
    resetting.set_defaults(run=with_admin(reset, check_reset))

    forgetting = actions.add_parser("delete-offsets", help="forget what was delivered of a topic")
    forgetting.add_argument("names", nargs=1, metavar="GROUP", help="the share group")
    forgetting.add_argument("-t", "--topic", action="append", required=True, metavar="TOPIC", help="may be repeated")
    add_connection(forgetting)
    forgetting.set_defaults(run=with_admin(delete_offsets))


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    await print_listing(admin, options.state, ["share"], as_json=options.json)


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    found = [await admin.describe_share_group(name) for name in names(options)]
    if options.members:
        print_members(found, as_json=options.json)
    elif options.state:
        print_states(found, as_json=options.json)
    else:
        rows = [
            {
                "group": group.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "start_offset": told.start_offset,
                "lag": told.lag,
            }
            for group in found
            for partition, told in (await admin.list_share_group_offsets(group.group_id)).items()
        ]
        columns = {
            "group": "GROUP",
            "topic": "TOPIC",
            "partition": "PARTITION",
            "start_offset": "START-OFFSET",
            "lag": "LAG",
        }
        print_rows(rows, columns, as_json=options.json, empty="The share group has no offsets.")


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        await admin.describe_share_group(name)  # DeleteGroups takes groups of every type
        await admin.delete_groups([name])
        print(f"Deleted share group {name}.")


async def reset(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    told = await admin.list_share_group_offsets(group)
    before = {each: found.start_offset for each, found in told.items() if found.start_offset is not None}
    after = await plan(admin, options, before)
    if options.execute and not options.dry_run:
        await admin.alter_share_group_offsets(group, after)
    show(options, before, after)


async def delete_offsets(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    await admin.delete_share_group_offsets(group, options.topic)
    print(f"Deleted the offsets of {group} in {', '.join(options.topic)}.")
