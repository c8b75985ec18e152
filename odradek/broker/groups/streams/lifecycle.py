"""Operations of streams groups other than heartbeats: replay, loading, timers, the results of creating internal topics,
and StreamsGroupDescribe. Source: docs/spec/streams-groups.md#s1-3, #s4, #s9, #s11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from odradek.broker.groups.common.epochs import replay_into
from odradek.broker.groups.common.group import CoordinatorRecord, Group, TimerKey, TimerKind
from odradek.broker.groups.common.outcome import Outcome
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.streams.configured_topology import described_subtopologies
from odradek.broker.groups.streams.descriptions import DescriptionStatus, described_topology
from odradek.broker.groups.streams.group import FailedCreation, ReportedOffset, StreamsGroup
from odradek.broker.groups.streams.heartbeat import streams_group
from odradek.broker.groups.streams.member import StreamsMember, StreamsMemberState
from odradek.broker.groups.streams.target import ComputedTarget
from odradek.broker.groups.streams.tasks import TaskRoles, Tasks
from odradek.broker.groups.streams.topology import TopicInfo
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.protocol.messages import streams_group_describe_response as answer
from odradek.protocol.messages.streams_group_describe_response import DescribedGroup

GROUP_EPOCH = 17
ASSIGNOR = "sticky"
FAILURE_RETENTION_HEARTBEATS = 2


def replay(registry: GroupRegistry, record: CoordinatorRecord) -> None:
    replay_into(registry, record, StreamsGroup, StreamsGroup, GROUP_EPOCH)


def on_loaded(registry: GroupRegistry, group: Group, now_ms: int) -> Outcome[None]:
    """Starts the timers after loading. Members keep their epochs. Each member has one session timeout to send a
    heartbeat and one rebalance timeout to give up tasks."""
    assert isinstance(group, StreamsGroup)
    turn = StreamsTurn(registry, group, now_ms)
    for member in group.members.values():
        turn.begin_session(member)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            turn.begin_revocation(member)
    return turn.outcome()


def on_timer(registry: GroupRegistry, group: Group, key: TimerKey, now_ms: int) -> Outcome[None]:
    assert isinstance(group, StreamsGroup)
    turn = StreamsTurn(registry, group, now_ms)
    if key.kind is TimerKind.INITIAL_DELAY:
        _end_delay(turn)
        return turn.outcome()
    member = group.members.get(key.member_id)
    if member is not None and (
        key.kind is TimerKind.SESSION
        or (key.kind is TimerKind.REVOCATION and member.state is StreamsMemberState.UNREVOKED_TASKS)
    ):
        turn.remove([member])
    return turn.outcome()


def _end_delay(turn: StreamsTurn) -> None:
    """Computes the first target at the end of the initial delay, without waiting for the next heartbeat."""
    turn.set_memory(replace(turn.group.memory, is_delayed=False))
    configured = turn.group.memory.configured
    if turn.group.members and configured is not None and turn.group.epoch > turn.group.assignment_epoch:
        turn.compute_target(configured)


def target_computed(registry: GroupRegistry, group_id: str, computed: ComputedTarget, now_ms: int) -> Outcome[bool]:
    """Records a target assignment that was not computed immediately. If the group can no longer use the target, the
    computation starts again."""
    group = registry.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return Outcome(True)
    turn = StreamsTurn(registry, group, now_ms)
    if computed.is_usable_for(group):
        turn.put_target(computed)
    elif group.members and group.memory.configured is not None:
        turn.follow_group_epoch(group.memory.configured)
    return turn.outcome(True)


def creation_ended(
    registry: GroupRegistry, group_id: str, topics: Sequence[str], failures: Mapping[str, str], now_ms: int
) -> Outcome[bool]:
    """Handles the result of an attempt to create internal topics. For a while, heartbeat responses report the failures,
    and the broker does not retry creating the failed topics."""
    group = registry.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return Outcome(True)
    turn = StreamsTurn(registry, group, now_ms)
    memory = group.memory
    until_ms = now_ms + FAILURE_RETENTION_HEARTBEATS * turn.setting("heartbeat.interval.ms")
    failed = {name: each for name, each in memory.failed.items() if now_ms < each.until_ms}
    failed.update((name, FailedCreation(reason, until_ms)) for name, reason in failures.items())
    turn.set_memory(replace(memory, being_created=memory.being_created.difference(topics), failed=failed))
    return turn.outcome(True)


def describe_streams_group(
    registry: GroupRegistry, group_id: str, *, includes_description: bool = False
) -> DescribedGroup:
    """Describes a streams group. Raises GROUP_ID_NOT_FOUND if the group does not exist or has another type."""
    group = streams_group(registry, group_id, f"Group {group_id} not found.")
    status, description = described_topology(group) if includes_description else (DescriptionStatus.NOT_REQUESTED, None)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        topology_description=description,
        topology_description_status=status.value,
        assignor_name=ASSIGNOR,
    )


def _topology(group: StreamsGroup) -> answer.Topology | None:
    if group.topology is None:
        return None
    return answer.Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            answer.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                repartition_sink_topics=list(each.repartition_sinks),
                state_changelog_topics=_topics(each.changelog_topics),
                repartition_source_topics=_topics(each.repartition_sources),
            )
            for each in described_subtopologies(group.topology, group.memory.configured)
        ],
    )


def _topics(topics: Sequence[TopicInfo]) -> list[answer.TopicInfo]:
    return [
        answer.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[answer.KeyValue(key=name, value=text) for name, text in topic.configs],
        )
        for topic in topics
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> answer.Member:
    endpoint, memory = member.user_endpoint, group.memory
    return answer.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else answer.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[answer.KeyValue(key=name, value=text) for name, text in member.client_tags.items()],
        task_offsets=_offsets(memory.task_offsets.get(member.member_id, ())),
        task_end_offsets=_offsets(memory.task_end_offsets.get(member.member_id, ())),
        assignment=_assignment(member.assigned.roles),
        target_assignment=_assignment(group.target_of(member.member_id)),
    )


def _offsets(offsets: Sequence[ReportedOffset]) -> list[answer.TaskOffset]:
    return [
        answer.TaskOffset(subtopology_id=each.subtopology_id, partition=each.partition, offset=each.offset)
        for each in offsets
    ]


def _assignment(roles: TaskRoles) -> answer.Assignment:
    return answer.Assignment(
        active_tasks=_tasks(roles.active), standby_tasks=_tasks(roles.standby), warmup_tasks=_tasks(roles.warmup)
    )


def _tasks(tasks: Tasks) -> list[answer.TaskIds]:
    return [answer.TaskIds(subtopology_id=each, partitions=sorted(tasks[each])) for each in sorted(tasks)]
