"""Streams groups (KIP-1071) for tests: a `StreamsScene` whose members send StreamsGroupHeartbeat.

Responses are compared as `(code, member epoch, tasks, statuses)`. Tasks are a string: "0:012 1:0" means the active
tasks 0 to 2 of subtopology 0 and task 0 of subtopology 1, "| 0:3" a standby task, and "" no tasks. Tasks are None if
the response has no task lists.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.common.outcome import GroupConfig, StreamsConfig
from odradek.broker.groups.records import decode_record
from odradek.broker.groups.streams.form import check_heartbeat
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.heartbeat import StreamsHeartbeat
from odradek.broker.groups.streams.target import ComputedTarget
from odradek.broker.groups.streams.topology import TopicInfo
from odradek.broker.runtime.slices import run_to_end
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages import streams_group_heartbeat_request as wire
from odradek.protocol.messages.streams_group_describe_response import Assignment, DescribedGroup, Member
from odradek.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.support.fake_cluster import FakeCluster
from tests.support.group_scene import GROUP, Scene

REBALANCE_TIMEOUT_MS = 300_000


class StreamsHeartbeatResult(NamedTuple):
    code: int
    epoch: int
    tasks: str | None
    statuses: tuple[int, ...] = ()


def refused(code: ErrorCode) -> StreamsHeartbeatResult:
    return StreamsHeartbeatResult(code.value, 0, None)


class TaskIdsLike(Protocol):
    subtopology_id: str
    partitions: list[int]


def text_of(active: Sequence[TaskIdsLike], standby: Sequence[TaskIdsLike]) -> str:
    def part(tasks: Sequence[TaskIdsLike]) -> str:
        named = sorted((each.subtopology_id, "".join(map(str, sorted(each.partitions)))) for each in tasks)
        return " ".join(f"{name}:{partitions}" for name, partitions in named)

    return f"{part(active)} | {part(standby)}".strip() if standby else part(active)


def tasks(text: str) -> list[wire.TaskIds]:
    """Parses tasks such as "0:012 1:0"."""
    found = []
    for part in text.split():
        name, _, partitions = part.partition(":")
        found.append(wire.TaskIds(subtopology_id=name, partitions=[int(digit) for digit in partitions]))
    return found


def subtopology(
    name: str = "0",
    sources: Sequence[str] = (),
    changelogs: Sequence[str] = (),
    sinks: Sequence[str] = (),
    repartitions: Sequence[str] = (),
) -> wire.Subtopology:
    return wire.Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=[wire.TopicInfo(name=each) for each in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[wire.TopicInfo(name=each) for each in repartitions],
    )


def topology(*subtopologies: wire.Subtopology, epoch: int = 0) -> wire.Topology:
    return wire.Topology(epoch=epoch, subtopologies=list(subtopologies))


def _ended(result: ComputedTarget) -> Generator[None, None, ComputedTarget]:
    """Returns a finished computation with the given result."""
    return result
    yield


READS_I4 = subtopology("0", ["i4"])


class StreamsScene(Scene):
    """A scene in which each `beat` of a member has the epoch of the member's last response. By default each member has
    its own process, whose id is the member's name in upper case. The topic i4 has four partitions."""

    def __init__(
        self,
        *,
        interval_ms: int = 0,
        delay_ms: int = 0,
        standby: int = 0,
        max_size: int = 2_147_483_647,
        rules: KafkaRules = NEWEST,
        topics: Mapping[str, int] | None = None,
        reads: wire.Topology | None = None,
    ) -> None:
        self.cluster = FakeCluster(**({"i4": 4} if topics is None else topics))
        self.cluster.defaults["streams.assignment.interval.ms"] = interval_ms
        self.cluster.defaults["streams.initial.rebalance.delay.ms"] = delay_ms
        self.cluster.defaults["streams.num.standby.replicas"] = standby
        self.reads = topology(READS_I4) if reads is None else reads
        self.epochs: dict[str, int] = {}
        self.last: StreamsGroupHeartbeatResponse | None = None
        self.last_error: str | None = None
        self.forbidden: set[str] = set()  # topics that clients may not CREATE
        self.to_create: list[TopicInfo] = []
        super().__init__(
            GroupConfig(group_initial_rebalance_delay_ms=0, streams=StreamsConfig(max_size=max_size), rules=rules),
            cluster=self.cluster,
        )

    # Actions of members.

    def ask(
        self, request: StreamsGroupHeartbeatRequest, *, version: int = 1, client: str = "c"
    ) -> StreamsHeartbeatResult:
        self.last_error = None
        try:
            owned = check_heartbeat(request, self.config.rules)
            beat = StreamsHeartbeat(
                request, version, owned, client, "/127.0.0.1", lambda name: name not in self.forbidden
            )
            heard = self.turn(lambda core: core.streams_heartbeat(beat, self.now_ms))
        except KafkaError as error:
            self.last_error = error.message
            return StreamsHeartbeatResult(error.code.value, 0, None)
        assert heard is not None
        answer = self.last = heard.response
        self.to_create = list(heard.topics)
        if answer.member_epoch >= 0:
            self.epochs[answer.member_id] = answer.member_epoch
        given = None
        if answer.active_tasks is not None:
            assert answer.standby_tasks is not None
            given = text_of(answer.active_tasks, answer.standby_tasks)
        return StreamsHeartbeatResult(
            answer.error_code,
            answer.member_epoch,
            given,
            tuple(each.status_code for each in answer.status or ()),
        )

    def member(
        self,
        member: str,
        *,
        reads: wire.Topology | None = None,
        instance: str | None = None,
        rack: str | None = None,
        process: str | None = None,
        timeout_ms: int = REBALANCE_TIMEOUT_MS,
        endpoint: tuple[str, int] | None = None,
        tags: Mapping[str, str] | None = None,
        shutdown: bool = False,
        group: str = GROUP,
        version: int = 1,
        client: str = "c",
    ) -> StreamsHeartbeatResult:
        return self.ask(
            StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                endpoint_information_epoch=-1,
                instance_id=instance,
                rack_id=rack,
                rebalance_timeout_ms=timeout_ms,
                topology=self.reads if reads is None else reads,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id=member.upper() if process is None else process,
                user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint[0], port=endpoint[1]),
                client_tags=[wire.KeyValue(key=key, value=value) for key, value in (tags or {}).items()],
                shutdown_application=shutdown,
            ),
            version=version,
            client=client,
        )

    def beat(
        self,
        member: str,
        epoch: int | None = None,
        *,
        owned: str | None = None,
        standby: str = "",
        instance: str | None = None,
        rack: str | None = None,
        process: str | None = None,
        timeout_ms: int = -1,
        endpoint: tuple[str, int] | None = None,
        endpoint_epoch: int = 0,
        tags: Mapping[str, str] | None = None,
        offsets: Sequence[wire.TaskOffset] | None = None,
        shutdown: bool = False,
        group: str = GROUP,
        version: int = 1,
    ) -> StreamsHeartbeatResult:
        return self.ask(
            StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
                endpoint_information_epoch=endpoint_epoch,
                instance_id=instance,
                rack_id=rack,
                rebalance_timeout_ms=timeout_ms,
                active_tasks=None if owned is None else tasks(owned),
                standby_tasks=None if owned is None else tasks(standby),
                warmup_tasks=None if owned is None else [],
                process_id=process,
                user_endpoint=None if endpoint is None else wire.Endpoint(host=endpoint[0], port=endpoint[1]),
                client_tags=(
                    None if tags is None else [wire.KeyValue(key=key, value=value) for key, value in tags.items()]
                ),
                task_offsets=None if offsets is None else list(offsets),
                shutdown_application=shutdown,
            ),
            version=version,
        )

    def end_computation(self, group: str = GROUP) -> None:
        """Completes the target computation that `cluster.computes_later` has left to the test."""
        computed = run_to_end(self.cluster.computing.pop(group))
        self.turn(lambda core: core.target_computed(group, computed, self.now_ms))

    def compute(self, steps: int, group: str = GROUP) -> bool:
        """Runs some steps of a computation left to the test, without recording the result. Returns whether any steps
        remain."""
        computation = self.cluster.computing[group]
        for _ in range(steps):
            try:
                next(computation)
            except StopIteration as done:
                self.cluster.computing[group] = _ended(done.value)
                return False
        return True

    # The state as tests see it.

    def described(self, group: str = GROUP) -> DescribedGroup:
        return self.core.describe_streams_group(group)

    def member_of(self, name: str) -> Member:
        return next(member for member in self.described().members if member.member_id == name)

    @property
    def state(self) -> tuple[str, int, int]:
        """Returns the group's state, group epoch and assignment epoch."""
        group = self.described()
        return group.group_state, group.group_epoch, group.assignment_epoch

    def target(self, name: str) -> str:
        return self._text(self.member_of(name).target_assignment)

    def held(self, name: str) -> str:
        return self._text(self.member_of(name).assignment)

    def _text(self, assignment: Assignment) -> str:
        return text_of(assignment.active_tasks, assignment.standby_tasks)

    def status(self, code: int) -> str:
        """Returns the detail of a status in the last response."""
        assert self.last is not None
        return next(each.status_detail for each in self.last.status or () if each.status_code == code)

    def group_of(self, group: str = GROUP) -> StreamsGroup:
        found = self.core.registry.groups[group]
        assert isinstance(found, StreamsGroup)
        return found

    def written(self, since: int = 0) -> list[CoordinatorRecord]:
        records = [decode_record(key, value) for key, value in self.log[since:]]
        return [record for record in records if record is not None]

    def keys_written(self, since: int = 0) -> list[int]:
        """Returns the types of the records written after the first `since` records, as negative numbers for
        tombstones."""
        return [record.key.API_KEY * (1 if record.value is not None else -1) for record in self.written(since)]
