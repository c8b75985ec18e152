"""Implements `odradek groups` and `odradek share-groups`, which work like kafka-groups, kafka-consumer-groups and
kafka-share-groups."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.client.common.values import OffsetAndMetadata, TopicPartition, blocks
from odradek.protocol.lag import GroupLag, group_lag
from odradek.tools.commands.errors import NOT_FOUND, CommandError
from odradek.tools.commands.group_positions import Position, positions
from odradek.tools.commands.options import CommandActions, add_list, add_names, names, time_ms
from odradek.tools.commands.output import Row, headings, print_rows
from odradek.tools.commands.streams_groups import (
    MEMBER_COLUMNS,
    TOPOLOGY_COLUMNS,
    ShownGroup,
    described,
    described_streams,
    internal_topics,
    member_rows,
    topology_rows,
)

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.groups import GroupDescription, GroupListing

GROUPS_AT_A_TIME = 50


def add_reset(parser: argparse.ArgumentParser, *, is_share: bool = False) -> None:
    parser.add_argument("names", nargs=1, metavar="GROUP", help="the group; it must have no members")
    add_list(parser, "-t", "--topic", metavar="TOPIC[:0,1]", help="only this topic, or only these partitions of it")
    parser.add_argument("--all-topics", action="store_true", help="all topics for which the group has offsets")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="move to the first record")
    where.add_argument("--to-latest", action="store_true", help="move to the end")
    where.add_argument(
        "--to-datetime",
        metavar="TIME",
        type=time_ms,
        help="move to the first record since this time, such as 2026-01-31T08:00:00",
    )
    if not is_share:
        where.add_argument("--to-offset", metavar="N", type=int, help="move to this offset")
        where.add_argument(
            "--shift-by", metavar="N", type=int, help="move forward by N records, or back if N is negative"
        )
        where.add_argument(
            "--to-current",
            action="store_true",
            help="keep the committed offsets; for partitions without a committed offset, move to the end",
        )
    parser.add_argument(
        "--execute", action="store_true", help="change the offsets. Without this option, the new offsets are only shown"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")


def check_reset(options: argparse.Namespace) -> None:
    if options.all_topics == bool(options.topic):
        raise ValueError("either --topic or --all-topics is needed")


async def plan(
    admin: Admin, options: argparse.Namespace, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the new offset for each partition, clamped to the bounds of the log."""
    from odradek.client.administration.records import EARLIEST, LATEST

    if options.all_topics and not committed:
        raise CommandError(f"the group {options.names[0]} has no offsets", NOT_FOUND)
    partitions = sorted(committed) if options.all_topics else await selected(admin, options.topic)
    first, end = await _offsets(admin, partitions, EARLIEST), await _offsets(admin, partitions, LATEST)
    targets = first if options.to_earliest else end
    if options.to_datetime is not None:
        since = await admin.list_offsets(dict.fromkeys(partitions, options.to_datetime))
        targets = {each: found.offset if found else end[each] for each, found in since.items()}
    elif getattr(options, "to_offset", None) is not None:
        targets = dict.fromkeys(partitions, options.to_offset)
    elif getattr(options, "to_current", False):
        targets = {each: committed.get(each, end[each]) for each in partitions}
    elif getattr(options, "shift_by", None) is not None:
        if missing := [each for each in partitions if each not in committed]:
            raise CommandError(f"{missing[0].topic}-{missing[0].partition} has no committed offset to shift")
        targets = {each: committed[each] + options.shift_by for each in partitions}
    return {each: min(max(targets[each], first[each]), end[each]) for each in partitions}


async def _offsets(admin: Admin, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(partitions, at))
    return {each: position.offset for each, position in found.items() if position is not None}


async def selected(admin: Admin, topics: list[str]) -> list[TopicPartition]:
    """Returns the partitions that the user selected. Each topic is written as TOPIC or TOPIC:0,1."""
    targets: list[tuple[str, str | None]] = []
    for text in topics:
        parts = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", text)
        if parts is None:
            raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,1")
        targets.append((parts[1], parts[2]))
    described = await admin.describe_topics(dict.fromkeys(topic for topic, _ in targets)) if targets else {}
    found: list[TopicPartition] = []
    for topic, indexes in targets:
        there = {each.partition for each in described[topic].partitions}
        chosen = there if indexes is None else {int(index) for index in indexes.split(",")}
        if missing := chosen - there:
            raise CommandError(f"there is no partition {topic}-{min(missing)}", NOT_FOUND)
        found += [TopicPartition(topic, index) for index in sorted(chosen)]
    return found


def show(
    options: argparse.Namespace, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> None:
    rows = [
        {"topic": each.topic, "partition": each.partition, "from": before.get(each), "to": offset}
        for each, offset in after.items()
    ]
    print_rows(rows, headings("topic partition from to"), as_json=options.json, empty="There are no offsets to move.")
    if not options.execute and not options.json:
        print("Nothing was changed. Add --execute to move the offsets.")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add("list", "list all groups with their type, state, members and lag", list_, json=True) as listing:
        _add_state(listing)
        add_list(
            listing, "--type", metavar="TYPE", help="only groups of this type: classic, consumer, share or streams"
        )
    with actions.add(
        "describe", "show committed offsets and lag, or the members", describe, names, json=True
    ) as describing:
        _add_views(describing)
        describing.add_argument(
            "--topology", action="store_true", help="show the subtopologies of a streams group and their topics"
        )
    with actions.add("delete", "delete groups that have no members, and their offsets", delete, names) as deleting:
        add_names(deleting, "group", "-g", is_needed=True)
        deleting.add_argument(
            "--delete-all-internal-topics",
            action="store_true",
            help="also delete the repartition and changelog topics; the groups must be streams groups",
        )
    with actions.add(
        "reset-offsets", "move the committed offsets of a group", reset, check_reset, json=True
    ) as resetting:
        add_reset(resetting)
    with actions.add("delete-offsets", "delete the committed offsets of a topic", delete_offsets) as forgetting:
        forgetting.add_argument("names", nargs=1, metavar="GROUP", help="the group")
        forgetting.add_argument(
            "-t",
            "--topic",
            action="append",
            required=True,
            metavar="TOPIC[:0,1]",
            help="the topic, or only these partitions of it; may be repeated",
        )


def configure_share(parser: argparse.ArgumentParser) -> None:
    actions = CommandActions(parser)
    with actions.add(
        "list", "list all share groups with their state, members and lag", list_share, json=True
    ) as listing:
        _add_state(listing)
    with actions.add(
        "describe", "show start offsets and lag, or the members", describe_share, names, json=True
    ) as showing:
        _add_views(showing)
    with actions.add("delete", "delete share groups that have no members", delete_share, names) as deleting:
        add_names(deleting, "group", "-g", is_needed=True)
    with actions.add(
        "reset-offsets", "move the start offsets of a share group", reset_share, check_reset, json=True
    ) as resetting:
        add_reset(resetting, is_share=True)
    with actions.add(
        "delete-offsets", "delete the share group's state for a topic", delete_share_offsets
    ) as forgetting:
        forgetting.add_argument("names", nargs=1, metavar="GROUP", help="the share group")
        forgetting.add_argument(
            "-t", "--topic", action="append", required=True, metavar="TOPIC", help="the topic; may be repeated"
        )


def _add_state(parser: argparse.ArgumentParser) -> None:
    add_list(parser, "--state", metavar="STATE", help="only groups in this state")


def _add_views(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "group", "-g", is_needed=True)
    parser.add_argument("--members", action="store_true", help="show the members and the partitions assigned to them")
    parser.add_argument("--state", action="store_true", help="show the state, the assignor and the coordinator")


async def list_(admin: Admin, options: argparse.Namespace) -> None:
    await _print_listing(admin, options.state, options.type, as_json=options.json)


async def list_share(admin: Admin, options: argparse.Namespace) -> None:
    await _print_listing(admin, options.state, ["share"], as_json=options.json)


async def _print_listing(admin: Admin, states: list[str], types: list[str], *, as_json: bool) -> None:
    listings = await admin.list_groups(states=states, types=types)
    members: dict[str, int | None] = {}
    lags: dict[str, GroupLag] = {}
    for some in blocks(listings, GROUPS_AT_A_TIME):
        found = await asyncio.gather(*(_members_and_offsets(admin, each) for each in some))
        groups = {each.group_id: held for each, held in zip(some, found, strict=True) if held is not None}
        members |= {name: len(description.members) for name, (description, _) in groups.items()}
        of_consumers = {
            name: (offsets, [partition for member in description.members for partition in member.assignment])
            for name, (description, offsets) in groups.items()
            if isinstance(offsets, dict)
        }
        for name, held in (await positions(admin, of_consumers)).items():
            lags[name] = group_lag((each.committed, each.end) for each in held)
        lags |= {name: offsets for name, (_, offsets) in groups.items() if isinstance(offsets, GroupLag)}
    rows: list[Row] = []
    for each in listings:
        lag = lags.get(each.group_id)
        rows.append(
            {"group": each.group_id, "type": each.type, "protocol": each.protocol_type, "state": each.state}
            | {"members": members.get(each.group_id), "lag": None if lag is None else lag.records}
            | {"uncommitted_partitions": None if lag is None else lag.uncommitted, "coordinator": each.coordinator}
        )
    columns = headings(
        "group type protocol state members lag uncommitted_partitions coordinator", uncommitted_partitions="UNCOMMITTED"
    )
    print_rows(rows, columns, as_json=as_json, empty="No groups.")


async def _members_and_offsets(
    admin: Admin, listing: GroupListing
) -> tuple[GroupDescription, dict[TopicPartition, OffsetAndMetadata] | GroupLag] | None:
    """Returns a group's description and committed offsets, or its lag instead of offsets for a share group. Returns
    None if the group has been deleted in the meantime, the user is not permitted to describe it, or this client does
    not support its type."""
    from odradek.client.common.errors import ClientError

    name = listing.group_id
    try:
        if listing.type.lower() == "streams":
            return (await described_streams(admin, name)).group, await admin.list_group_offsets(name)
        if listing.type.lower() != "share":
            return await admin.describe_group(name), await admin.list_group_offsets(name)
        description, started = await admin.describe_share_group(name), await admin.list_share_group_offsets(name)
    except ClientError as error:
        if error.is_retriable:
            raise
        return None
    lags = [each.lag for each in started.values() if each.lag is not None]
    return description, GroupLag(sum(lags) if lags else None, len(started) - len(lags))


async def describe(admin: Admin, options: argparse.Namespace) -> None:
    descriptions = [await described(admin, name) for name in names(options)]
    if options.topology:
        _print_topologies(descriptions, as_json=options.json)
        return
    found = [each.group for each in descriptions]
    if not _print_view(descriptions, options):
        held = {
            group.group_id: (
                await admin.list_group_offsets(group.group_id),
                [partition for member in group.members for partition in member.assignment],
            )
            for group in found
        }
        placed = await positions(admin, held)
        rows = [_offset_row(each, group) for group in found for each in placed[group.group_id]]
        columns = headings(
            "group topic partition current_offset log_end_offset lag consumer_id host client_id",
            current_offset="CURRENT-OFFSET",
            log_end_offset="LOG-END-OFFSET",
            consumer_id="CONSUMER-ID",
            client_id="CLIENT-ID",
        )
        print_rows(rows, columns, as_json=options.json, empty="The group has no offsets and no assigned partitions.")


async def describe_share(admin: Admin, options: argparse.Namespace) -> None:
    found = [await admin.describe_share_group(name) for name in names(options)]
    if not _print_view([ShownGroup(each, None) for each in found], options):
        rows = [
            {"group": group.group_id, "topic": each.topic, "partition": each.partition}
            | {"start_offset": position.start_offset, "lag": position.lag}
            for group in found
            for each, position in (await admin.list_share_group_offsets(group.group_id)).items()
        ]
        columns = headings("group topic partition start_offset lag", start_offset="START-OFFSET")
        print_rows(rows, columns, as_json=options.json, empty="The share group has no offsets.")


def _print_topologies(descriptions: list[ShownGroup], *, as_json: bool) -> None:
    if others := [each.group.group_id for each in descriptions if each.streams is None]:
        raise CommandError(f"{others[0]} is not a streams group: only streams groups have a topology")
    rows = [row for each in descriptions if each.streams is not None for row in topology_rows(each.streams)]
    print_rows(rows, TOPOLOGY_COLUMNS, as_json=as_json, empty="The group has no topology.")


def _print_view(descriptions: list[ShownGroup], options: argparse.Namespace) -> bool:
    """If the options request the groups' members or states, prints them and returns True. Otherwise returns False."""
    rows: list[Row]
    if options.members:
        in_tasks = [row for each in descriptions if each.streams is not None for row in member_rows(each.streams)]
        rows = [
            {"group": group.group_id, "member": member.member_id, "instance": member.group_instance_id}
            | {"client": member.client_id, "host": member.host}
            | {"partitions": [f"{topic}-{index}" for topic, index in member.assignment]}
            for group, streams in descriptions
            if streams is None
            for member in group.members
        ]
        columns = headings("group member instance client host partitions")
        if options.json:
            print_rows([*rows, *in_tasks], columns, as_json=True, empty="")
            return True
        if rows or not in_tasks:
            print_rows(rows, columns, as_json=False, empty="The group has no members.")
        if in_tasks:
            print_rows(in_tasks, MEMBER_COLUMNS, as_json=False, empty="")
    elif options.state:
        rows = [
            {"group": group.group_id, "type": group.type, "state": group.state, "epoch": group.epoch}
            | {"assignor": group.assignor or None, "coordinator": group.coordinator, "members": len(group.members)}
            for group, _ in descriptions
        ]
        columns = headings("group type state epoch assignor coordinator members")
        print_rows(rows, columns, as_json=options.json, empty="")
    return bool(options.members or options.state)


def _offset_row(position: Position, group: GroupDescription) -> dict[str, object]:
    member = next((each for each in group.members if position.partition in each.assignment), None)
    topic, partition = position.partition
    return (
        {"group": group.group_id, "topic": topic, "partition": partition, "current_offset": position.committed}
        | {"log_end_offset": position.end, "lag": position.lag}
        | {"consumer_id": member.member_id if member else None, "host": member.host if member else None}
        | {"client_id": member.client_id if member else None}
    )


async def delete(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        topics: list[str] = []
        if options.delete_all_internal_topics:
            streams = await admin.describe_streams_group(name)
            existing = {*await admin.list_topics()}
            topics = [each for each in internal_topics(streams) if each in existing]
        await admin.delete_groups([name])
        print(f"Deleted group {name}.")
        if topics:
            await admin.delete_topics(topics)
            print(f"Deleted its internal topics {', '.join(topics)}.")


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


async def delete_share(admin: Admin, options: argparse.Namespace) -> None:
    for name in names(options):
        # Describes the group first, which raises an error for groups of other types. DeleteGroups alone would delete
        # them.
        await admin.describe_share_group(name)
        await admin.delete_groups([name])
        print(f"Deleted share group {name}.")


async def reset_share(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    descriptions = await admin.list_share_group_offsets(group)
    before = {each: found.start_offset for each, found in descriptions.items() if found.start_offset is not None}
    after = await plan(admin, options, before)
    if options.execute and not options.dry_run:
        await admin.alter_share_group_offsets(group, after)
    show(options, before, after)


async def delete_share_offsets(admin: Admin, options: argparse.Namespace) -> None:
    (group,) = options.names
    await admin.delete_share_group_offsets(group, options.topic)
    print(f"Deleted the offsets of {group} in {', '.join(options.topic)}.")
