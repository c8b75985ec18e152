"""A scene for one test: a streams group (KIP-1071), and the requests of its members, sent as raw frames to Kafka and to
Odradek."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe_response import DescribedGroup
from odradek.protocol.messages.streams_group_describe_response import Member as DescribedMember
from odradek.protocol.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.conformance.differential.conversation import Place, Talk
from tests.conformance.differential.groups_script import wait_for_coordinator
from tests.support.broker_process import Broker

GROUP_RESOURCE = 32
TOPIC_RESOURCE = 2
PATIENCE_S = 30
PAUSE_S = 0.02
NEVER_MS = 300_000
I4 = "i4"  # the topic of most scenarios, with four partitions
SHARED_TOPICS = {I4: 4, "i3": 3, "i6": 6, "i7": 7}  # topics that no scenario changes
ALL = {"0": [0, 1, 2, 3]}  # all tasks of i4, in a subtopology named 0
NOTHING: "Tasks" = {}
LATEST = 1  # version of StreamsGroupHeartbeat
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,  # a single coordinator, which knows the same topics for every group
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.min.session.timeout.ms": 100,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 500,
}
STALE, MISSING_SOURCES, WRONGLY_PARTITIONED, MISSING_INTERNAL, SHUTDOWN, DELAYED, MISSING_TAGS = range(7)

Tasks = dict[str, list[int]]


def tasks_of(given: Sequence[Any] | None) -> Tasks | None:
    """Returns a response's tasks by subtopology, or None if the response does not mention tasks."""
    return None if given is None else {each.subtopology_id: list(each.partitions) for each in given}


def task_ids(tasks: Mapping[str, Sequence[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(partitions)) for name, partitions in tasks.items()]


def internal(name: str, partitions: int = 0, replication_factor: int = -1, **configs: str) -> TopicInfo:
    """Returns a changelog or repartition topic as a client requests it. Setting names use `_` in place of `.`."""
    pairs = [KeyValue(key=key.replace("_", "."), value=value) for key, value in sorted(configs.items())]
    return TopicInfo(name=name, partitions=partitions, replication_factor=replication_factor, topic_configs=pairs)


def subtopology(
    name: str = "0",
    sources: Sequence[str] = (I4,),
    *,
    changelogs: Sequence[str | TopicInfo] = (),
    sinks: Sequence[str] = (),
    repartitions: Sequence[str | TopicInfo] = (),
    copartitions: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
    patterns: Sequence[str] = (),
) -> Subtopology:
    """Returns a subtopology. `copartitions` lists, for each copartition group, the indexes of its source topics and of
    its repartition topics."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=list(patterns),
        state_changelog_topics=[internal(each) if isinstance(each, str) else each for each in changelogs],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=[internal(each) if isinstance(each, str) else each for each in repartitions],
        copartition_groups=[
            CopartitionGroup(source_topics=list(external), repartition_source_topics=list(own))
            for external, own in copartitions
        ],
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a heartbeat, in the scenarios' terms."""

    response: StreamsGroupHeartbeatResponse

    @property
    def code(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)

    @property
    def epoch(self) -> int:
        return self.response.member_epoch

    @property
    def active(self) -> Tasks | None:
        return tasks_of(self.response.active_tasks)

    @property
    def standby(self) -> Tasks | None:
        return tasks_of(self.response.standby_tasks)

    @property
    def epoch_and_tasks(self) -> tuple[int, Tasks | None]:
        """Returns the member epoch and the active tasks. Fails if the heartbeat was refused."""
        assert self.code is ErrorCode.NONE, self
        return self.epoch, self.active

    @property
    def roles(self) -> tuple[int, Tasks | None, Tasks | None]:
        """Like `epoch_and_tasks`, but also returns the standby tasks."""
        return (*self.epoch_and_tasks, self.standby)

    @property
    def statuses(self) -> list[int]:
        return [each.status_code for each in self.response.status or ()]

    @property
    def details(self) -> list[str]:
        return [each.status_detail for each in self.response.status or ()]

    @property
    def refused(self) -> tuple[ErrorCode, str | None]:
        return self.code, self.response.error_message

    @property
    def endpoints(self) -> list[tuple[str, Tasks, Tasks]] | None:
        """Returns the address of each endpoint, with its active and standby partitions by topic."""
        listed = self.response.partitions_by_user_endpoint
        if listed is None:
            return None
        return [
            (
                f"{each.user_endpoint.host}:{each.user_endpoint.port}",
                {one.topic: list(one.partitions) for one in each.active_partitions},
                {one.topic: list(one.partitions) for one in each.standby_partitions},
            )
            for each in listed
        ]


class Member:
    """A member of a scene's group. Heartbeats have the epoch from the last response, unless a call overrides it."""

    def __init__(self, scene: "Scene", name: str, **always: Any) -> None:
        """Creates a member. `always` contains fields that the member sends whenever it joins."""
        self.scene, self.name = scene, name
        self.epoch = 0
        self._always = {"process_id": f"process-of-{name}", **always}

    def join(self, wanted: Topology | None = None, *, version: int = LATEST, **fields: Any) -> Reply:
        joining: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": NEVER_MS,
            "topology": wanted or self.scene.topology,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        return self.send(version, **(joining | self._always | fields))

    def beat(
        self, active: Tasks | None = None, standby: Tasks | None = None, *, version: int = LATEST, **fields: Any
    ) -> Reply:
        """Sends a heartbeat. If `active` is given, the heartbeat reports the member's tasks; otherwise it does not
        mention tasks."""
        if active is not None:
            fields["active_tasks"] = task_ids(active)
            fields["standby_tasks"] = task_ids(standby or {})
            fields["warmup_tasks"] = []
        return self.send(version, **fields)

    def beat_until(self, is_met: Callable[[Reply], bool], **fields: Any) -> Reply:
        """Repeats the heartbeat until the response meets the condition, for example until tasks of new topics are
        assigned."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_met(reply := self.beat(**fields)):
            assert time.monotonic() < deadline, reply
            time.sleep(PAUSE_S)
        return reply

    def beat_for_tasks(self, **fields: Any) -> Reply:
        return self.beat_until(lambda reply: reply.active is not None and reply.statuses == [], **fields)

    def leave(self, epoch: int = -1, **fields: Any) -> Reply:
        return self.send(LATEST, member_epoch=epoch, **fields)

    def send(self, version: int, **fields: Any) -> Reply:
        sent: dict[str, Any] = {
            "group_id": self.scene.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
        } | fields
        reply = Reply(self.scene.talk.quietly(StreamsGroupHeartbeatRequest(**sent), version))
        if reply.code is ErrorCode.NONE:
            self.epoch = max(reply.epoch, 0)
        return reply

    def described(self) -> DescribedMember:
        (found,) = (each for each in self.scene.described().members if each.member_id == self.name)
        return found

    @property
    def target(self) -> Tasks | None:
        return tasks_of(self.described().target_assignment.active_tasks)

    @property
    def assigned(self) -> tuple[Tasks | None, Tasks | None]:
        """Returns the active and standby tasks that the member may currently run."""
        assignment = self.described().assignment
        return tasks_of(assignment.active_tasks), tasks_of(assignment.standby_tasks)


@dataclass(slots=True)
class Scene:
    """One connection and a new group. Members join with `topology`."""

    talk: Talk
    group: str
    is_kafka: bool = False
    topology: Topology = field(default_factory=lambda: topology(subtopology()))

    def member(self, name: str, **always: Any) -> Member:
        return Member(self, name, **always)

    def reported_again(self, tasks: Tasks) -> Tasks | None:
        """Returns the tasks that the broker lists in its response when a member has reported wrong tasks. Kafka's
        response does not mention tasks: docs/compatibility.md#groups."""
        return None if self.is_kafka else tasks

    def named(self, ending: str) -> str:
        """Returns the name of a topic that belongs to this scene."""
        return f"{self.group}-{ending}"

    def make_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        self.talk.make_topic(name, partitions, **config)
        return name

    def make_source(self, ending: str, partitions: int) -> str:
        """Creates a source topic that belongs to this scene and waits until the coordinator knows it."""
        name = self.make_topic(self.named(ending), partitions)
        self.wait_until_coordinator_knows(name, partitions)
        return name

    def make_shared_topics(self) -> None:
        for name, partitions in SHARED_TOPICS.items():
            self.make_topic(name, partitions)
            self.wait_until_coordinator_knows(name, partitions)

    def wait_until_coordinator_knows(self, topic: str, partitions: int) -> None:
        """Uses a probe group to wait until the coordinator knows the topic. Kafka's coordinator learns about a topic a
        moment after its creation."""
        self._probe(topic, lambda reply: reply.active == {"0": list(range(partitions))})

    def wait_until_coordinator_misses(self, topic: str) -> None:
        self._probe(topic, lambda reply: reply.statuses == [MISSING_SOURCES])

    def _probe(self, topic: str, is_met: Callable[[Reply], bool]) -> None:
        probe = Scene(self.talk, f"{self.group}-probe-{topic}", topology=topology(subtopology("0", [topic])))
        member = probe.member("probe")
        deadline = time.monotonic() + PATIENCE_S
        while not is_met(reply := member.join()):
            assert time.monotonic() < deadline, reply
            time.sleep(PAUSE_S)
        member.leave()

    def delete_topic(self, name: str) -> None:
        answer = self.talk.quietly(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=20_000), 6)
        assert answer.responses[0].error_code == 0, answer
        self.talk.wait_until_gone(name)

    def enlarge_topic(self, name: str, partitions: int) -> None:
        new_partitions = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        answer = self.talk.quietly(CreatePartitionsRequest(topics=[new_partitions], timeout_ms=20_000), 3)
        assert answer.results[0].error_code == 0, answer

    def partitions_of(self, topic: str) -> int:
        """Returns the number of partitions of a topic, or 0 if the topic does not exist."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return len(self.talk.quietly(request, 12).topics[0].partitions)

    def topic_id(self, topic: str) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        found: bytes = self.talk.quietly(request, 12).topics[0].topic_id
        return found

    def config_of(self, topic: str, name: str) -> str | None:
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])
        (result,) = self.talk.quietly(DescribeConfigsRequest(resources=[resource]), 4).results
        value: str | None = result.configs[0].value
        return value

    def configure(self, **settings: object) -> None:
        """Changes the group's settings. Setting names omit the prefix `streams.` and use `_` in place of `.`."""
        changes = [
            AlterableConfig(name=f"streams.{name.replace('_', '.')}", config_operation=0, value=str(value))
            for name, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=changes)
        answer = self.talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    def described(self, version: int = LATEST) -> DescribedGroup:
        (group,) = self.talk.quietly(StreamsGroupDescribeRequest(group_ids=[self.group]), version).groups
        assert isinstance(group, DescribedGroup)
        return group

    @property
    def state(self) -> tuple[str, int, int]:
        """Returns the group's state, epoch and assignment epoch."""
        described = self.described()
        assert described.error_code == 0, described
        return described.group_state, described.group_epoch, described.assignment_epoch

    def wait_for_state(self, expected: str) -> tuple[str, int, int]:
        deadline = time.monotonic() + PATIENCE_S
        while (state := self.state)[0] != expected:
            assert time.monotonic() < deadline, state
            time.sleep(PAUSE_S)
        return state

    def delete(self) -> ErrorCode:
        answer = self.talk.quietly(DeleteGroupsRequest(groups_names=[self.group]), 3)
        return ErrorCode(answer.results[0].error_code)


def talk_to(broker: Broker) -> Talk:
    """Connects to a broker and waits until it has a group coordinator."""
    talk = Talk(Place(broker.bootstrap, str(broker.data_dir), ""), client_id="streams")
    wait_for_coordinator(talk)
    return talk


def with_two_members(scene: Scene) -> tuple[Member, Member]:
    """Returns the members a and c of a stable group at epoch 3. Member a runs tasks 0 and 1 of i4, and c runs tasks 2
    and 3."""
    a, c = scene.member("a"), scene.member("c")
    a.join()
    revoke_tasks(scene, a, c)
    assert a.beat({"0": [0, 1]}).epoch_and_tasks == (3, None)
    assert c.beat().epoch_and_tasks == (3, {"0": [2, 3]})
    return a, c


def revoke_tasks(scene: Scene, a: Member, c: Member) -> None:
    """Has member c join the group. The response to the next heartbeat of member a then revokes a's tasks 2 and 3."""
    c.join()
    assert a.beat().active == {"0": [0, 1]}
