"""Cases for the STG rules. For each rule, one trace keeps the rule and one breaks it."""

from __future__ import annotations

from odradek.protocol.messages import streams_group_heartbeat_response as answers
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import Status, StreamsGroupHeartbeatResponse
from odradek.protocol.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from odradek.protocol.messages.streams_group_topology_description_update_response import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from odradek.protocol.schema import ZERO_UUID
from tests.support.judged_cases import Case, Story
from tests.support.traces import Trace
from tests.unit.testing.judge.rules.cases_of_groups import commit

SHUTDOWN = [Status(status_code=4, status_detail="Streams group member m encountered a fatal error.")]
DELAYED = [Status(status_code=5, status_detail="Assignment delayed due to the configured initial rebalance delay.")]
INTERVAL_MS = 5000


def topology(epoch: int = 0, *topics: str) -> Topology:
    """Returns a topology with one subtopology "0" that reads these topics, or the topic `t` if none are given."""
    return Topology(epoch=epoch, subtopologies=[Subtopology(subtopology_id="0", source_topics=list(topics or ["t"]))])


def joining(**other: object) -> StreamsGroupHeartbeatRequest:
    """Returns a joining member's heartbeat."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=10_000,
        topology=topology(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    return changed(request, other)


def beat(epoch: int, **other: object) -> StreamsGroupHeartbeatRequest:
    """Returns the heartbeat of a member that has joined."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, endpoint_information_epoch=7
    )
    return changed(request, other)


def changed(request: StreamsGroupHeartbeatRequest, other: dict[str, object]) -> StreamsGroupHeartbeatRequest:
    for name, value in other.items():
        setattr(request, name, value)
    return request


class Member:
    """A member of a streams group. The responses to its heartbeats contain epoch 3, unless a test sets another
    epoch."""

    def __init__(self, trace: Trace) -> None:
        self.peer = trace.connect()

    def send(
        self,
        request: StreamsGroupHeartbeatRequest,
        epoch: int = 3,
        *,
        error: int = 0,
        status: list[Status] | None = None,
        after_ms: float = INTERVAL_MS,
    ) -> None:
        answer = StreamsGroupHeartbeatResponse(
            error_code=error,
            member_id=request.member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            endpoint_information_epoch=7,
            status=status or [],
        )
        self.peer.ask(request, 1, answer, after_ms=after_ms)

    def join(self, epoch: int = 3) -> None:
        self.send(joining(), epoch)


def sends(*requests: StreamsGroupHeartbeatRequest, error: int = 0, after_ms: float = INTERVAL_MS) -> Story:
    """Returns a story of these heartbeats. All responses except the last have `error`. The last heartbeat is sent
    `after_ms` after the previous one."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        for request in requests[:-1]:
            member.send(request, error=error)
        member.send(requests[-1], after_ms=after_ms)

    return story


def joined_and_sends(
    request: StreamsGroupHeartbeatRequest, *, error: int = 0, last: int = 0, after_ms: float = INTERVAL_MS
) -> Story:
    """Returns a story in which a member joins and then sends this heartbeat. If `error` is given, the member first
    sends another heartbeat that receives this error."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        if error:
            member.send(beat(3), error=error)
        member.send(request, error=last, after_ms=after_ms)

    return story


def joined_and_commits(epoch: int, *, is_stale: bool = False, has_left: bool = False) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        if is_stale:
            commit(member.peer, 3, error=113, version=9)
            member.send(beat(3), 4)
        if has_left:
            member.send(beat(-1), -1)
        commit(member.peer, epoch, version=9)

    return story


def joined_and_fetches_offsets(epoch: int) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        group = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=epoch)
        member.peer.ask(OffsetFetchRequest(groups=[group]), 9, OffsetFetchResponse())

    return story


def asks_for_its_epoch(trace: Trace) -> None:
    """Adds a heartbeat that reports no changes, soon after a refused commit."""
    member = Member(trace)
    member.join()
    commit(member.peer, 3, error=113, version=9)
    member.send(beat(3), 4, after_ms=100)


def acknowledges_late(times: int) -> Story:
    """Returns a story in which a member takes longer than the heartbeat interval to start its tasks. Then it sends
    `times` heartbeats too early."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(joining(), 1, assigned(0, 1))
        peer.ask(beat(3), 1, nothing_new(), after_ms=INTERVAL_MS)
        peer.ask(reports(0, 1), 1, nothing_new(), after_ms=INTERVAL_MS)
        for _ in range(times):
            peer.ask(beat(3), 1, nothing_new())

    return story


def waits_for_the_assignment(times: int) -> Story:
    """Returns a story in which one response reports that the assignment is delayed, and a later response reports that
    the group is ready.

    After each of these responses, the member sends `times` heartbeats too early.
    """

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        for status in (DELAYED, None):
            member.send(beat(3), status=status)
            for _ in range(times):
                member.send(beat(3), status=status, after_ms=100)

    return story


def sends_after_an_acknowledgement(after_ms: float) -> Story:
    """Returns a story in which a member acknowledges its tasks 3 s after its last regular heartbeat, and sends the next
    heartbeat `after_ms` after the acknowledgement."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(joining(), 1, nothing_new())
        peer.ask(beat(3), 1, assigned(0, 1), after_ms=INTERVAL_MS)
        peer.ask(reports(0, 1), 1, nothing_new(), after_ms=3000)
        peer.ask(beat(3), 1, nothing_new(), after_ms=after_ms)

    return story


def left_before_an_answer(then: StreamsGroupHeartbeatRequest) -> Story:
    """Returns a story in which a heartbeat is answered only after the member has sent its leave request. Then the
    member sends another heartbeat."""

    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        late, leaving = beat(3), beat(-1)
        exchange = member.peer.send(late, 1, after_ms=INTERVAL_MS)
        left = member.peer.send(leaving, 1)
        answer = StreamsGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=INTERVAL_MS)
        member.peer.reply(exchange, late, 1, answer)
        member.peer.reply(left, leaving, 1, StreamsGroupHeartbeatResponse(member_id="m", member_epoch=-1))
        member.send(then, 5)

    return story


def is_asked_to_shut_down(then: StreamsGroupHeartbeatRequest, after_ms: float) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        member.send(beat(3), status=SHUTDOWN)
        member.send(then, then.member_epoch, after_ms=after_ms)

    return story


def beats_twice(is_at_once: bool) -> Story:
    def story(trace: Trace) -> None:
        member = Member(trace)
        member.join()
        answer = StreamsGroupHeartbeatResponse(member_id="m", member_epoch=3, endpoint_information_epoch=7)
        if is_at_once:
            member.peer.ask_interleaved((beat(3), 1, answer), (beat(3), 1, answer))
        else:
            member.peer.ask(beat(3), 1, answer)
            member.peer.ask(beat(3), 1, answer)

    return story


def tasks(*partitions: int, subtopology: str = "0") -> list[TaskIds]:
    return [TaskIds(subtopology_id=subtopology, partitions=list(partitions))] if partitions else []


def reports(*partitions: int, **other: object) -> StreamsGroupHeartbeatRequest:
    """Returns a heartbeat that reports these active tasks."""
    return changed(beat(3, active_tasks=tasks(*partitions), standby_tasks=[], warmup_tasks=[]), other)


def assigned(*partitions: int, is_described: bool = False) -> StreamsGroupHeartbeatResponse:
    """Returns a response that assigns these active tasks."""
    return StreamsGroupHeartbeatResponse(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=INTERVAL_MS,
        task_offset_interval_ms=60_000,
        endpoint_information_epoch=7,
        active_tasks=[
            answers.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions)
            for each in tasks(*partitions)
        ],
        standby_tasks=[],
        warmup_tasks=[],
        topology_description_required=is_described,
    )


def nothing_new() -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        member_id="m",
        member_epoch=3,
        heartbeat_interval_ms=INTERVAL_MS,
        task_offset_interval_ms=60_000,
        endpoint_information_epoch=7,
    )


def holds_tasks_and_sends(*requests: StreamsGroupHeartbeatRequest, after_ms: float = INTERVAL_MS) -> Story:
    """Returns a story in which a member receives tasks 0_0 and 0_1, reports them, and then sends these heartbeats."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(joining(), 1, assigned(0, 1))
        peer.ask(reports(0, 1), 1, nothing_new())
        for request in requests:
            peer.ask(request, 1, nothing_new(), after_ms=after_ms)

    return story


def loses_a_task_and_sends(request: StreamsGroupHeartbeatRequest, after_ms: float) -> Story:
    """Returns a story in which a member with tasks 0_0 and 0_1 loses 0_1 and then sends this heartbeat."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(joining(), 1, assigned(0, 1))
        peer.ask(reports(0, 1), 1, nothing_new())
        peer.ask(beat(3), 1, assigned(0))
        peer.ask(request, 1, nothing_new(), after_ms=after_ms)

    return story


def gives_a_task_up_and_commits(partition: int, version: int = 9) -> Story:
    """Returns a story in which a member closes a task and then commits the offset of `partition`. If the version is at
    least 10, the commit has topic ids from Metadata."""

    def story(trace: Trace) -> None:
        peer = trace.connect()
        topic = MetadataResponseTopic(name="t", topic_id=b"1" * 16)
        peer.ask(MetadataRequest(topics=[]), 12, MetadataResponse(topics=[topic]))
        peer.ask(joining(), 1, assigned(0, 1))
        peer.ask(reports(0, 1), 1, assigned(0))
        peer.ask(reports(0), 1, nothing_new())
        part = OffsetCommitRequestPartition(partition_index=partition)
        named = OffsetCommitRequestTopic(
            name="t" if version < 10 else "", topic_id=topic.topic_id if version >= 10 else ZERO_UUID, partitions=[part]
        )
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=3, member_id="m", topics=[named])
        peer.ask(request, version, OffsetCommitResponse())

    return story


def joins_another_member(answered: int, *topics: str) -> Story:
    """Returns a story in which member m joins with the topic t, and member n joins with the given topics."""

    def story(trace: Trace) -> None:
        Member(trace).join()
        Member(trace).send(joining(member_id="n", topology=topology(0, *topics)), error=answered)

    return story


def describes(*, epoch: int = 0, node_type: int = 1, is_asked: bool = True, times: int = 1, error: int = 0) -> Story:
    def story(trace: Trace) -> None:
        peer = trace.connect()
        peer.ask(joining(), 1, assigned(0, is_described=is_asked))
        node = TopologyDescriptionNode(name="n", node_type=node_type)
        subtopology = TopologyDescriptionSubtopology(subtopology_id="0", nodes=[node])
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="g",
            member_id="m",
            topology_epoch=epoch,
            topology_description=TopologyDescription(subtopologies=[subtopology]),
        )
        for _ in range(times):
            peer.ask(request, 0, StreamsGroupTopologyDescriptionUpdateResponse(error_code=error))

    return story


def offsets(**other: object) -> StreamsGroupHeartbeatRequest:
    return beat(3, task_offsets=[TaskOffset(subtopology_id="0", partition=0, offset=9)], **other)


def reports_with_offsets(*partitions: int) -> StreamsGroupHeartbeatRequest:
    return changed(reports(*partitions), {"task_offsets": offsets().task_offsets})


def joins_with(*subtopologies: Subtopology, epoch: int = 0) -> Story:
    return sends(joining(topology=Topology(epoch=epoch, subtopologies=list(subtopologies))))


READS = Subtopology(subtopology_id="0", source_topics=["t"], repartition_sink_topics=["r"])
COUNTS = Subtopology(
    subtopology_id="1",
    repartition_source_topics=[TopicInfo(name="r")],
    state_changelog_topics=[TopicInfo(name="c")],
    copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
)
UNSOUND = (
    Subtopology(subtopology_id="0", source_topics=["t"], source_topic_regex=["t.*"]),
    Subtopology(subtopology_id="0", source_topics=["__consumer_offsets"]),
    Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=[TopicInfo(name="c", partitions=3)]),
    Subtopology(subtopology_id="0", repartition_source_topics=[TopicInfo(name="r")]),
    Subtopology(subtopology_id="0", repartition_sink_topics=["r"]),
    Subtopology(subtopology_id="0", source_topics=["t"], copartition_groups=[CopartitionGroup(source_topics=[1])]),
)


CASES = (
    Case("STG.1", sends(joining()), sends(joining(topology=None))),
    Case("STG.1", sends(joining()), sends(joining(rebalance_timeout_ms=-1))),
    Case("STG.1", sends(joining()), sends(joining(standby_tasks=None))),
    Case("STG.2", sends(joining()), sends(joining(member_id=""))),
    Case("STG.2", sends(joining(instance_id="i", rack_id="r")), sends(joining(instance_id="i", rack_id=" "))),
    Case("STG.3", joined_and_sends(beat(-1)), joined_and_sends(beat(-7))),
    Case("STG.3", joined_and_sends(beat(-2, instance_id="i")), joined_and_sends(beat(-2))),
    Case("STG.4", joined_and_sends(beat(3)), joined_and_sends(beat(2))),
    Case("STG.5", joined_and_commits(3), joined_and_commits(2)),
    Case("STG.6", joined_and_commits(3), joined_and_commits(-1)),
    Case("STG.7", joined_and_fetches_offsets(3), joined_and_fetches_offsets(2)),
    Case("STG.8", joined_and_commits(4, is_stale=True), joined_and_commits(3, is_stale=True)),
    Case("STG.9", joined_and_sends(joining(), error=110), joined_and_sends(beat(3), error=110)),
    Case("STG.9", joined_and_sends(joining(), error=25), joined_and_sends(beat(3), error=25)),
    Case("STG.10", sends(joining(), beat(-1), joining()), sends(joining(), beat(-1), beat(3))),
    Case("STG.10", joined_and_commits(-1, has_left=True), joined_and_commits(3, has_left=True)),
    Case("STG.11", left_before_an_answer(joining()), left_before_an_answer(beat(4))),
    Case("STG.12", joined_and_sends(joining(), last=130), sends(joining(), joining(), error=130)),
    Case("STG.12", joined_and_sends(beat(3), last=82), joined_and_sends(beat(3), error=82)),
    Case("STG.13", joined_and_sends(beat(3)), joined_and_sends(beat(3), last=25, after_ms=46_000)),
    Case("STG.14", joined_and_sends(beat(3)), joined_and_sends(beat(3), after_ms=500)),
    Case("STG.14", acknowledges_late(1), acknowledges_late(2)),
    Case("STG.14", sends_after_an_acknowledgement(INTERVAL_MS - 3000), sends_after_an_acknowledgement(500)),
    Case("STG.14", waits_for_the_assignment(1), waits_for_the_assignment(2)),
    Case("STG.15", beats_twice(False), beats_twice(True)),
    Case("STG.16", joined_and_sends(beat(3)), joined_and_sends(beat(3, endpoint_information_epoch=6))),
    Case("STG.17", joined_and_sends(beat(3, process_id="q")), joined_and_sends(beat(3, process_id="p"))),
    Case("STG.17", joined_and_sends(beat(3)), joined_and_sends(beat(3, rebalance_timeout_ms=10_000))),
    Case("STG.18", is_asked_to_shut_down(beat(-1), 500), is_asked_to_shut_down(beat(3), 11_000)),
    Case("STG.20", holds_tasks_and_sends(reports(0)), holds_tasks_and_sends(reports(0, warmup_tasks=None))),
    Case("STG.21", holds_tasks_and_sends(beat(3)), holds_tasks_and_sends(beat(3, topology=topology()))),
    *(Case("STG.22", joins_with(READS, COUNTS), joins_with(each)) for each in UNSOUND),
    Case("STG.22", joins_with(READS, COUNTS), joins_with(READS, READS)),
    Case("STG.22", joins_with(READS, COUNTS), joins_with(READS, epoch=-1)),
    Case("STG.23", joins_another_member(0, "t"), joins_another_member(42, "t", "u")),
    Case("STG.24", holds_tasks_and_sends(reports(0)), holds_tasks_and_sends(reports(0, 2))),
    Case("STG.25", loses_a_task_and_sends(reports(0), 500), loses_a_task_and_sends(reports(0, 1), 11_000)),
    Case("STG.25", loses_a_task_and_sends(reports(0), 11_000), loses_a_task_and_sends(beat(3), 11_000)),
    Case("STG.26", gives_a_task_up_and_commits(0), gives_a_task_up_and_commits(1)),
    Case("STG.26", gives_a_task_up_and_commits(0, 10), gives_a_task_up_and_commits(1, 10)),
    Case(
        "STG.27",
        holds_tasks_and_sends(offsets(), offsets(), after_ms=60_000),
        holds_tasks_and_sends(offsets(), offsets()),
    ),
    Case("STG.28", describes(), describes(is_asked=False)),
    Case("STG.28", describes(times=2, error=15), describes(times=2)),
    Case("STG.29", describes(), describes(epoch=5)),
    Case("STG.29", describes(), describes(node_type=9)),
)
