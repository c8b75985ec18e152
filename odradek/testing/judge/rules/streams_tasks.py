"""Rules STG.20 to STG.31, about the topologies and tasks of streams groups (KIP-1071), and topology descriptions
(KIP-1331)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import streams_group_heartbeat_request as heartbeat
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from odradek.protocol.messages.streams_group_topology_description_update_response import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.testing.judge.exchanges import Exchange, knows_response
from odradek.testing.judge.rule import Family, M, ProtocolRule, S, undecided
from odradek.testing.judge.rules.groups import is_early
from odradek.testing.judge.rules.streams_members import JOIN_EPOCH, LOST
from odradek.testing.judge.scene import Scene

INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST.value
INTERNAL: Final = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
SOURCE, PROCESSOR, SINK = 1, 2, 3  # node types in a topology description
ACTIVE, STANDBY, WARMUP = "active", "standby", "warm-up"
DRIVER: Final = "a driver with two instances that reports what each of them has processed"
NEEDS_REPORTING_DRIVER: Final = "a driver that reports what the application sees"
Tasks: TypeAlias = frozenset[tuple[str, str, int]]  # role, subtopology id, partition

# fmt: off
RULES = (
    ProtocolRule("STG.20", M,
        "A heartbeat that reports tasks has all three lists of tasks", "a heartbeat with a list of tasks"),
    ProtocolRule("STG.21", M, "Only a heartbeat with epoch 0 has a topology", "a heartbeat that does not join"),
    ProtocolRule("STG.22", M,
        "A topology has no patterns and no internal topics; its ids, indexes and sources are valid",
        "a heartbeat with a topology"),
    ProtocolRule("STG.23", M, "Members that name the same topology epoch send the same topology",
        "an answer to a member that joins a group whose topology is in the recording"),
    ProtocolRule("STG.24", M, "A member reports only tasks from its assignments",
        "a heartbeat that reports tasks, from a member whose join is in the recording"),
    ProtocolRule("STG.25", M, "A member reports revoked tasks as closed within the rebalance timeout",
        "a heartbeat after an answer that revokes tasks"),
    ProtocolRule("STG.26", M, "A member commits nothing for a task after it has reported the task as closed",
        "a commit for a topic of the topology, from a member that has reported tasks"),
    ProtocolRule("STG.27", S, "A member reports its task offsets once in the interval of the response",
        "a second heartbeat that has offsets of tasks but reports no tasks"),
    ProtocolRule("STG.28", M, "A member sends the description of its topology only if a response has requested it",
        "a StreamsGroupTopologyDescriptionUpdate from a member whose join is in the recording"),
    ProtocolRule("STG.29", M, "A description has the epoch of the topology, and nodes of types 1 to 3",
        "a StreamsGroupTopologyDescriptionUpdate"),
    undecided("STG.30", M, "A member closes and commits a task before it reports the task as closed", DRIVER),
    undecided("STG.31", M, "The application learns of the status MISSING_SOURCE_TOPICS", NEEDS_REPORTING_DRIVER),
)
# fmt: on


@dataclass(slots=True)
class JudgedTopologies:
    """The topologies with which members have joined a group. `by_epoch` maps each topology epoch to an exchange in
    which a member joined with the topology, and to the topology's checksum."""

    by_epoch: dict[int, tuple[Exchange, int]] = field(default_factory=dict)


@dataclass(slots=True)
class TaskHolder:
    """A streams group member's tasks.

    response             the last response that contained tasks
    target_tasks         the tasks in `response`
    reported_tasks       the tasks in the member's last report
    allowed_tasks        the tasks that the member may report
    revoked_tasks        the tasks that the member must release, because the response `revocation` does not contain them
    released_tasks       maps the subtopology and partition of each active task that the member no longer reports to the
                         first heartbeat without the task
    sources              maps each topic to the subtopology that reads it, or to None if several subtopologies read it
    offsets_heartbeat    the last heartbeat with task offsets
    description_request  the last response that required a topology description
    """

    has_joined: bool = False
    topology_epoch: int = 0
    rebalance_us: int = 0
    response: Exchange | None = None
    target_tasks: Tasks = frozenset()
    reported_tasks: Tasks = frozenset()
    allowed_tasks: Tasks = frozenset()
    revoked_tasks: Tasks = frozenset()
    revocation: Exchange | None = None
    released_tasks: dict[tuple[str, int], Exchange] = field(default_factory=dict)
    sources: dict[str, str | None] = field(default_factory=dict)
    offsets_heartbeat: Exchange | None = None
    offsets_interval_us: int = 0
    description_request: Exchange | None = None

    def forget_tasks(self) -> None:
        self.response = self.revocation = self.offsets_heartbeat = self.description_request = None
        self.target_tasks = self.reported_tasks = self.allowed_tasks = self.revoked_tasks = frozenset()
        self.released_tasks.clear()


def tasks_of(message: StreamsGroupHeartbeatRequest | StreamsGroupHeartbeatResponse) -> Tasks | None:
    """Returns the tasks in a heartbeat or in its response, or None unless the message contains all three lists of
    tasks."""
    active, standby, warmup = message.active_tasks, message.standby_tasks, message.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    found = [(ACTIVE, each.subtopology_id, partition) for each in active for partition in each.partitions]
    found += [(STANDBY, each.subtopology_id, partition) for each in standby for partition in each.partitions]
    found += [(WARMUP, each.subtopology_id, partition) for each in warmup for partition in each.partitions]
    return frozenset(found)


def format_tasks(tasks: Tasks) -> str:
    return ", ".join(f"{role} {subtopology}_{partition}" for role, subtopology, partition in sorted(tasks)[:5])


def on_heartbeat(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, StreamsGroupHeartbeatRequest)
    lists = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    holder = scene.state(TaskHolder, request.group_id, request.member_id)
    topology = request.topology
    if topology is not None:
        scene.decide("STG.22", (why_not := _topology_violation(topology)) is None, exchange, why_not or "")
    if request.member_epoch == JOIN_EPOCH:
        if topology is not None:
            holder.topology_epoch, holder.sources = topology.epoch, _sources(topology)
        holder.rebalance_us = max(request.rebalance_timeout_ms, 0) * 1000
        return
    scene.decide(
        "STG.21", topology is None, exchange, f"a heartbeat with epoch {request.member_epoch} contains a topology"
    )
    if request.member_epoch < 0:
        return
    if any(each is not None for each in lists):
        scene.decide("STG.20", None not in lists, exchange, "the heartbeat has only some of the three lists of tasks")
    if request.rebalance_timeout_ms >= 0:
        holder.rebalance_us = request.rebalance_timeout_ms * 1000
    if not holder.has_joined:
        return
    reported = tasks_of(request)
    if reported is not None:
        _check_reported_tasks(exchange, reported, holder, scene)
    _check_revoked_tasks(exchange, reported, holder, scene)
    if request.task_offsets:
        _check_offsets(exchange, reported is not None, holder, scene)


def _topology_violation(topology: heartbeat.Topology) -> str | None:
    """Returns the reason that a topology is invalid, or None if it is valid."""
    if topology.epoch < 0:
        return f"topology epoch {topology.epoch}"
    ids = [each.subtopology_id for each in topology.subtopologies]
    if len(set(ids)) < len(ids):
        return "two subtopologies have the same id"
    sinks = {name for each in topology.subtopologies for name in each.repartition_sink_topics}
    for each in topology.subtopologies:
        where = f"in subtopology {each.subtopology_id}"
        changelogs, repartitioned = each.state_changelog_topics, each.repartition_source_topics
        named = {*each.source_topics, *each.repartition_sink_topics}
        named |= {info.name for info in (*changelogs, *repartitioned)}
        if each.source_topic_regex:
            return f"there is a topic pattern {where}"
        if named & INTERNAL:
            return f"there is the internal topic {min(named & INTERNAL)} {where}"
        if any(info.partitions for info in changelogs):
            return f"there is a changelog topic with a number of partitions {where}"
        if not each.source_topics and not repartitioned:
            return f"there is no source topic {where}"
        if any(info.name not in sinks and info.name not in each.source_topics for info in repartitioned):
            return f"there is a repartition source topic {where} to which no subtopology writes"
        for group in each.copartition_groups:
            sources, others = len(each.source_topics), len(repartitioned)
            is_in_range = all(0 <= index < sources for index in group.source_topics)
            if not is_in_range or not all(0 <= index < others for index in group.repartition_source_topics):
                return f"a copartition group {where} has an index without a topic"
    return None


def _sources(topology: heartbeat.Topology) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for each in topology.subtopologies:
        for name in {*each.source_topics, *(info.name for info in each.repartition_source_topics)}:
            found[name] = None if name in found else each.subtopology_id
    return found


def _content(topology: heartbeat.Topology) -> int:
    """Returns a checksum of a topology's content that does not depend on the order of the subtopologies."""

    def infos(listed: list[heartbeat.TopicInfo]) -> tuple[object, ...]:
        return tuple((info.name, info.partitions, max(info.replication_factor, 0), _configs(info)) for info in listed)

    return hash(
        frozenset(
            (
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                infos(each.state_changelog_topics),
                infos(each.repartition_source_topics),
                tuple(
                    (tuple(group.source_topics), tuple(group.repartition_source_topics))
                    for group in each.copartition_groups
                ),
            )
            for each in topology.subtopologies
        )
    )


def _configs(info: heartbeat.TopicInfo) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, each.value) for each in info.topic_configs)


def _check_reported_tasks(exchange: Exchange, reported: Tasks, holder: TaskHolder, scene: Scene) -> None:
    more = reported - holder.allowed_tasks
    scene.decide(
        "STG.24",
        not more,
        exchange,
        f"the member reports {format_tasks(more)}, but these tasks were not assigned to it",
        holder.response,
    )
    is_known = holder.response is not None and knows_response(exchange, holder.response)
    holder.allowed_tasks = reported | (holder.target_tasks if is_known else holder.allowed_tasks)
    for role, subtopology, partition in holder.reported_tasks - reported:
        if role == ACTIVE:
            holder.released_tasks[subtopology, partition] = exchange
    for role, subtopology, partition in reported:
        if role == ACTIVE:
            holder.released_tasks.pop((subtopology, partition), None)
    holder.reported_tasks = reported


def _check_revoked_tasks(exchange: Exchange, reported: Tasks | None, holder: TaskHolder, scene: Scene) -> None:
    revocation = holder.revocation
    if revocation is None:
        return
    if reported is not None and not reported & holder.revoked_tasks:
        scene.record_kept("STG.25", exchange)
    elif (
        knows_response(exchange, revocation) and 0 < holder.rebalance_us < exchange.earliest_us - revocation.answered_us
    ):
        why = (
            f"{format_tasks(holder.revoked_tasks)}: the member did not report these tasks as closed within the"
            f" rebalance timeout of {holder.rebalance_us // 1000} ms"
        )
        scene.record_broken("STG.25", exchange, why, revocation)
    else:
        return
    holder.revoked_tasks, holder.revocation = frozenset(), None


def _check_offsets(exchange: Exchange, reports_tasks: bool, holder: TaskHolder, scene: Scene) -> None:
    last, response = holder.offsets_heartbeat, holder.response
    holder.offsets_heartbeat = exchange
    if last is None or not holder.offsets_interval_us or not knows_response(exchange, last):
        return
    has_new_tasks = response is not None and response.number >= last.number
    has_warmups = any(role == WARMUP for role, _, _ in holder.reported_tasks)
    if not reports_tasks and not has_new_tasks and not has_warmups:
        passed_us, interval_us = exchange.received_us - last.earliest_us, holder.offsets_interval_us
        why = (
            f"the member sends offsets of tasks after {passed_us // 1000} ms, although the interval is"
            f" {interval_us // 1000} ms"
        )
        scene.decide("STG.27", not is_early(passed_us, interval_us), exchange, why, last)


def on_heartbeat_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, StreamsGroupHeartbeatRequest)
    if not isinstance(answer, StreamsGroupHeartbeatResponse):
        return
    holder = scene.state(TaskHolder, request.group_id, request.member_id)
    if request.member_epoch == JOIN_EPOCH and request.topology is not None:
        _check_topology(exchange, request.group_id, request.topology, answer.error_code, scene)
    if answer.error_code in LOST or request.member_epoch < 0:
        holder.has_joined = False
        holder.forget_tasks()
    if answer.error_code or request.member_epoch < 0:
        return
    if request.member_epoch == JOIN_EPOCH:
        holder.has_joined = True
        holder.forget_tasks()
    holder.offsets_interval_us = answer.task_offset_interval_ms * 1000
    if answer.topology_description_required:
        holder.description_request = exchange
    tasks = tasks_of(answer)
    if tasks is None:
        return
    revoked = (holder.reported_tasks | holder.target_tasks) - tasks
    holder.response, holder.target_tasks, holder.allowed_tasks = exchange, tasks, holder.allowed_tasks | tasks
    holder.revoked_tasks, holder.revocation = revoked, exchange if revoked else None
    for _, subtopology, partition in tasks if holder.released_tasks else ():
        holder.released_tasks.pop((subtopology, partition), None)


def _check_topology(exchange: Exchange, group: str, topology: heartbeat.Topology, code: int, scene: Scene) -> None:
    topologies = scene.state(JudgedTopologies, group).by_epoch
    content, found = _content(topology), topologies.get(topology.epoch)
    if found is not None and (code == 0 or (code == INVALID_REQUEST and found[1] != content)):
        why = f"the topology of epoch {topology.epoch} differs from that of another member"
        scene.decide("STG.23", code == 0, exchange, why, found[0])
    if code == 0:
        topologies[topology.epoch] = exchange, content


def on_delete_groups(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, DeleteGroupsRequest)
    for group in request.groups_names:
        if (topologies := scene.find_state(JudgedTopologies, group)) is not None:
            topologies.by_epoch.clear()


def on_offset_commit(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest)
    holder = scene.find_state(TaskHolder, request.group_id, request.member_id) if request.member_id else None
    if holder is None or not holder.has_joined or not (holder.reported_tasks or holder.released_tasks):
        return
    for topic in request.topics:
        subtopology = holder.sources.get(topic.name or scene.topics.name_of(topic.topic_id))
        if subtopology is None:
            continue
        for each in topic.partitions:
            release = holder.released_tasks.get((subtopology, each.partition_index))
            is_late = release is not None and exchange.earliest_us > release.received_us
            why = f"the member commits for task {subtopology}_{each.partition_index}, which it has reported as closed"
            scene.decide("STG.26", not is_late, exchange, why, release)


def on_topology_description(exchange: Exchange, scene: Scene) -> None:
    request = exchange.request
    assert isinstance(request, StreamsGroupTopologyDescriptionUpdateRequest)
    if request.member_id:
        scene.join(exchange.connection, "member", request.group_id, request.member_id)
    holder = scene.find_state(TaskHolder, request.group_id, request.member_id)
    why_not = _description_violation(request.topology_description)
    if holder is not None and holder.has_joined:
        why = "no answer has requested the description of the topology"
        scene.decide("STG.28", holder.description_request is not None, exchange, why, holder.response)
        if request.topology_epoch != holder.topology_epoch:
            why_not = (
                f"the description has topology epoch {request.topology_epoch}, but the member joined with"
                f" {holder.topology_epoch}"
            )
    scene.decide("STG.29", why_not is None, exchange, why_not or "")


def _description_violation(description: TopologyDescription) -> str | None:
    for each in description.subtopologies:
        for node in each.nodes:
            if node.node_type not in (SOURCE, PROCESSOR, SINK):
                return f"node {node.name} has type {node.node_type}"
    for store in description.global_stores:
        if (store.source.node_type, store.processor.node_type) != (SOURCE, PROCESSOR):
            return f"the global store of {store.source.name} does not consist of a source and a processor"
    return None


def on_topology_description_response(exchange: Exchange, scene: Scene) -> None:
    request, answer = exchange.request, exchange.answer
    assert isinstance(request, StreamsGroupTopologyDescriptionUpdateRequest)
    holder = scene.find_state(TaskHolder, request.group_id, request.member_id)
    is_done = isinstance(answer, StreamsGroupTopologyDescriptionUpdateResponse) and not answer.error_code
    if holder is not None and is_done:
        holder.description_request = None


FAMILY = Family(
    RULES,
    on_request={
        ApiKey.STREAMS_GROUP_HEARTBEAT: (on_heartbeat,),
        ApiKey.DELETE_GROUPS: (on_delete_groups,),
        ApiKey.OFFSET_COMMIT: (on_offset_commit,),
        ApiKey.TXN_OFFSET_COMMIT: (on_offset_commit,),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (on_topology_description,),
    },
    on_response={
        ApiKey.STREAMS_GROUP_HEARTBEAT: (on_heartbeat_response,),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (on_topology_description_response,),
    },
)
