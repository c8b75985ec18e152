"""The client side of a streams group (KIP-1071), for measuring its heartbeats."""

from collections.abc import Sequence

from bench.heartbeat_groups import (
    DESCRIBE_VERSION,
    HEARTBEAT_VERSION,
    REBALANCE_TIMEOUT_MS,
    HeartbeatGroup,
    Member,
)
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from odradek.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_describe_response import StreamsGroupDescribeResponse
from odradek.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from odradek.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from odradek.protocol.struct import Message
from tests.support.wire import ClosedByBroker, Wire

CONFIGS_VERSION = 1
GROUP_RESOURCE = 32
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


class NotServed(Exception):
    """The broker does not support StreamsGroupHeartbeat and has closed the connection."""


class StreamsGroup(HeartbeatGroup[TaskIds]):
    """A streams group (KIP-1071) whose topology reads one topic."""

    def __init__(self, wire: Wire, group_id: str, name: str, count: int) -> None:
        super().__init__(wire, group_id, count)
        self._topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[name])])
        self._assign_at_once()

    def _assign_at_once(self) -> None:
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in AT_ONCE.items()]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group_id, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.wire.ask(request, CONFIGS_VERSION, IncrementalAlterConfigsResponse)

    def request(self, member: Member[TaskIds]) -> StreamsGroupHeartbeatRequest:
        joins = member.epoch == 0
        unconfirmed = [] if joins else member.unconfirmed
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            topology=self._topology if joins else None,
            process_id=member.member_id if joins else None,
            active_tasks=None if unconfirmed is None else list(unconfirmed),
            standby_tasks=None if unconfirmed is None else [],
            warmup_tasks=None if unconfirmed is None else [],
        )

    def ask(self, request: Message) -> StreamsGroupHeartbeatResponse:
        try:
            return self.wire.ask(request, HEARTBEAT_VERSION, StreamsGroupHeartbeatResponse)
        except ClosedByBroker:
            raise NotServed("StreamsGroupHeartbeat is not served") from None

    def assigned(self, answer: StreamsGroupHeartbeatResponse) -> Sequence[TaskIds] | None:
        if answer.active_tasks is None:
            return None
        return [TaskIds(subtopology_id=one.subtopology_id, partitions=one.partitions) for one in answer.active_tasks]

    def state(self) -> str:
        request = StreamsGroupDescribeRequest(group_ids=[self.group_id])
        return self.wire.ask(request, DESCRIBE_VERSION, StreamsGroupDescribeResponse).groups[0].group_state
