"""The members' side of a streams group (KIP-1071), for measurements of its heartbeats."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.clients import CLIENT_TIMEOUT_S
from bench.coordinators import GROUP, await_coordinator
from bench.subjects import Subject
from bench.topics import topic
from odradek.protocol.frames import request_bytes
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
from tests.support.wire import ClosedByBroker, Wire

HEARTBEAT_VERSION = 1
DESCRIBE_VERSION = 1
CONFIGS_VERSION = 1
GROUP_RESOURCE = 32
CLIENT_ID = "wire"  # as of all requests of a Wire: a heartbeat with another one would change the member
REBALANCE_TIMEOUT_MS = 60_000
ROUND_S = 0.005  # pause before the next heartbeats if a round has changed nothing
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


class NotServed(Exception):
    """The broker closes the connection instead of answering StreamsGroupHeartbeat."""


@dataclass(slots=True)
class Member:
    """A member. `owned` are its active tasks. `to_be_told` is None if the broker already knows them."""

    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: Sequence[TaskIds] = ()
    to_be_told: Sequence[TaskIds] | None = None


class StreamsGroup:
    """A group whose topology reads one topic. Members send one heartbeat at a time."""

    def __init__(self, wire: Wire, group_id: str, name: str, count: int) -> None:
        self.members = [Member() for _ in range(count)]
        self._wire = wire
        self._group_id = group_id
        self._topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[name])])
        self._assign_at_once()

    def _assign_at_once(self) -> None:
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in AT_ONCE.items()]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self._group_id, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self._wire.ask(request, CONFIGS_VERSION, IncrementalAlterConfigsResponse)

    def until_stable(self, partitions: int) -> None:
        """Makes all members join, then sends heartbeats in rounds until all tasks are assigned and owned."""
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while time.monotonic() < deadline:
            has_news = sum(self._heartbeat(member) for member in self.members) > 0
            if not has_news and self._is_stable(partitions):
                return
            if not has_news:
                time.sleep(ROUND_S)
        raise RuntimeError(f"{self._group_id} was not stable in {CLIENT_TIMEOUT_S:g} s")

    def heartbeats(self) -> bytes:
        """Returns a heartbeat of each member, with no changes."""
        requests = [self._request(member) for member in self.members]
        return b"".join(request_bytes(request, HEARTBEAT_VERSION, 1, CLIENT_ID) for request in requests)

    def _heartbeat(self, member: Member) -> bool:
        """Sends a heartbeat. Returns whether it changed anything."""
        try:
            answer = self._wire.ask(self._request(member), HEARTBEAT_VERSION, StreamsGroupHeartbeatResponse)
        except ClosedByBroker:
            raise NotServed("StreamsGroupHeartbeat is not served") from None
        if answer.error_code:
            if member.epoch:
                raise RuntimeError(f"a heartbeat was refused: {answer.error_message}")
            time.sleep(ROUND_S)  # the coordinator is still loading
            return True
        has_news = answer.member_epoch != member.epoch or member.to_be_told is not None
        member.epoch = answer.member_epoch
        member.to_be_told = None
        if answer.active_tasks is not None:
            member.owned = member.to_be_told = [
                TaskIds(subtopology_id=one.subtopology_id, partitions=one.partitions) for one in answer.active_tasks
            ]
            has_news = True
        return has_news

    def _request(self, member: Member) -> StreamsGroupHeartbeatRequest:
        joins = member.epoch == 0
        told = [] if joins else member.to_be_told
        return StreamsGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            topology=self._topology if joins else None,
            process_id=member.member_id if joins else None,
            active_tasks=None if told is None else list(told),
            standby_tasks=None if told is None else [],
            warmup_tasks=None if told is None else [],
        )

    def _is_stable(self, partitions: int) -> bool:
        owned = sum(len(tasks.partitions) for member in self.members for tasks in member.owned)
        if owned != partitions or len({member.epoch for member in self.members}) > 1:
            return False
        request = StreamsGroupDescribeRequest(group_ids=[self._group_id])
        answer = self._wire.ask(request, DESCRIBE_VERSION, StreamsGroupDescribeResponse)
        return answer.groups[0].group_state == "Stable"


@dataclass(frozen=True, slots=True)
class StreamsStabilisation:
    """Instances join one after the other, and then send heartbeats until the group is stable."""

    instances: int
    tasks: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the seconds from the first join until the group is stable, and the milliseconds of the broker's
        CPU."""
        with topic(subject.bootstrap, self.tasks) as name, Wire(subject.bootstrap) as wire:
            await_coordinator(wire, GROUP, f"{name}-group")
            group = StreamsGroup(wire, f"{name}-group", name, max(2, int(self.instances * share)))
            cpu_before, began = subject.cpu_seconds(), time.perf_counter()
            group.until_stable(self.tasks)
            return {
                "seconds": time.perf_counter() - began,
                "cpu_ms": (subject.cpu_seconds() - cpu_before) * 1000,
            }
