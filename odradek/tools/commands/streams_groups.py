"""Describes streams groups for `odradek groups`. Adds their tasks and topology to the facts that the command shows
about every group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.tools.commands.output import Row, headings

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.administration.groups import GroupDescription
    from odradek.client.administration.streams_groups import StreamsGroupDescription, StreamsTask

MEMBER_COLUMNS = headings("group member instance client host process epoch active standby warmup")
TOPOLOGY_COLUMNS = headings("group topology_epoch subtopology role topic partitions", topology_epoch="TOPOLOGY-EPOCH")


class ShownGroup(NamedTuple):
    """A group and its description. `streams` is None unless the group is a streams group."""

    group: GroupDescription
    streams: StreamsGroupDescription | None


async def described(admin: Admin, name: str) -> ShownGroup:
    """Describes a classic, consumer or streams group. Raises ClientError (GROUP_ID_NOT_FOUND)."""
    from odradek.client.common.errors import ClientError

    try:
        return ShownGroup(await admin.describe_group(name), None)
    except ClientError as missing:
        if missing.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        try:
            return await described_streams(admin, name)
        except ClientError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
            raise missing from None


async def described_streams(admin: Admin, name: str) -> ShownGroup:
    """Describes a streams group. In the result's `group`, which has the fields common to every type of group, each
    member is assigned the partitions that its active tasks read."""
    from odradek.client.administration.groups import GroupDescription, MemberDescription

    streams = await admin.describe_streams_group(name)
    members = tuple(
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.host,
            tuple(streams.partitions_of(each.assignment.active)),
        )
        for each in streams.members
    )
    group = GroupDescription(
        name, "Streams", streams.state, streams.assignor, streams.coordinator, streams.epoch, members
    )
    return ShownGroup(group, streams)


def member_rows(streams: StreamsGroupDescription) -> list[Row]:
    return [
        {"group": streams.group_id, "member": each.member_id, "instance": each.group_instance_id}
        | {"client": each.client_id, "host": each.host, "process": each.process_id, "epoch": each.member_epoch}
        | {"topology_epoch": each.topology_epoch, "active": _texts(each.assignment.active)}
        | {"standby": _texts(each.assignment.standby), "warmup": _texts(each.assignment.warmup)}
        for each in streams.members
    ]


def topology_rows(streams: StreamsGroupDescription) -> list[Row]:
    """Returns a row for each topic of each subtopology. The number of partitions is None for a topic that the group
    does not create, and for an internal topic whose number has not been decided."""
    rows: list[Row] = []
    for each in streams.subtopologies:
        topics = [
            *(("source", name, None) for name in each.source_topics),
            *(("repartition source", topic.name, topic.partitions) for topic in each.repartition_source_topics),
            *(("repartition sink", name, None) for name in each.repartition_sink_topics),
            *(("changelog", topic.name, topic.partitions) for topic in each.changelog_topics),
        ]
        rows += [
            {"group": streams.group_id, "topology_epoch": streams.topology_epoch, "subtopology": each.subtopology_id}
            | {"role": role, "topic": name, "partitions": partitions or None}
            for role, name, partitions in topics
        ]
    return rows


def internal_topics(streams: StreamsGroupDescription) -> list[str]:
    """Returns the topics that the group has created for its own use."""
    return sorted(
        {
            topic.name
            for each in streams.subtopologies
            for topic in (*each.changelog_topics, *each.repartition_source_topics)
        }
    )


def _texts(tasks: tuple[StreamsTask, ...]) -> list[str]:
    return [str(task) for task in tasks]
