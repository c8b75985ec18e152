"""Members of streams groups (KIP-1071) that send StreamsGroupHeartbeat as raw requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from tests.clients.speakers import wait_for
from tests.support.wire import Wire

VERSION = 1
WORD_COUNT = (
    Subtopology(subtopology_id="0", source_topics=["lines"], repartition_sink_topics=["counter-by-word-repartition"]),
    Subtopology(
        subtopology_id="1",
        state_changelog_topics=[TopicInfo(name="counter-counts-changelog")],
        repartition_source_topics=[TopicInfo(name="counter-by-word-repartition", partitions=2)],
    ),
)
NO_DELAY: Mapping[str, object] = {
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
}


class StreamsMember:
    """A member of a streams group. Its epoch and active tasks come from the last response."""

    def __init__(
        self,
        wire: Wire,
        group: str,
        member_id: str,
        *,
        topology: Sequence[Subtopology] = WORD_COUNT,
        topology_epoch: int = 0,
        process: str = "process-1",
        instance_id: str | None = None,
    ) -> None:
        self.wire = wire
        self.group = group
        self.member_id = member_id
        self.topology = Topology(epoch=topology_epoch, subtopologies=list(topology))
        self.process = process
        self.instance_id = instance_id
        self.epoch = 0
        self.tasks: dict[str, list[int]] = {}
        self.statuses: list[int] = []

    def join(self) -> None:
        """Waits until the group's coordinator is available and then joins the group."""
        finding = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        wait_for(
            "the coordinator",
            lambda: not self.wire.ask(finding, 4, FindCoordinatorResponse).coordinators[0].error_code,
        )
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            endpoint_information_epoch=-1,
            instance_id=self.instance_id,
            rebalance_timeout_ms=300_000,
            topology=self.topology,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=self.process,
            client_tags=[],
        )
        passing = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value, ErrorCode.NOT_COORDINATOR.value)
        wait_for("the member to join", lambda: self._ask(request).error_code not in passing)

    def beat(self) -> dict[str, list[int]]:
        """Sends a heartbeat that reports the tasks of the last response. Returns the tasks that the member owns
        afterwards."""
        owned = [TaskIds(subtopology_id=name, partitions=each) for name, each in self.tasks.items()]
        self._ask(
            StreamsGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                active_tasks=owned,
                standby_tasks=[],
                warmup_tasks=[],
            )
        )
        return self.tasks

    def leave(self) -> None:
        """Leaves the group. A static member leaves temporarily, as it does when a Kafka Streams application closes."""
        self._ask(
            StreamsGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=-1 if self.instance_id is None else -2,
                instance_id=self.instance_id,
            )
        )

    def _ask(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        answer = self.wire.ask(request, VERSION, StreamsGroupHeartbeatResponse)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            self.statuses = [each.status_code for each in answer.status or ()]
            if answer.active_tasks is not None:
                self.tasks = {each.subtopology_id: list(each.partitions) for each in answer.active_tasks}
        return answer
