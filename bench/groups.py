"""Measures the cost of a heartbeat for each kind of group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench import shares
from bench.coordinators import GROUP, await_coordinator
from bench.heartbeat_groups import (
    DESCRIBE_VERSION,
    HEARTBEAT_VERSION,
    REBALANCE_TIMEOUT_MS,
    HeartbeatGroup,
    Member,
)
from bench.native import run_load
from bench.streams_groups import StreamsGroup
from bench.subjects import Subject
from bench.topics import topic
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.struct import Message
from tests.support.wire import Wire

MEMBERS = 8  # number of members that send heartbeats
SECONDS = 1.5
# Position of the error code in a heartbeat response of any group type. It follows the length, correlation id, tags and
# throttle time.
ERROR_AT = 9
Frames: TypeAlias = bytes


class ConsumerGroup(HeartbeatGroup[TopicPartitions]):
    """A consumer group (KIP-848)."""

    def __init__(self, wire: Wire, group_id: str, name: str, count: int) -> None:
        super().__init__(wire, group_id, count)
        self._name = name

    def request(self, member: Member[TopicPartitions]) -> ConsumerGroupHeartbeatRequest:
        joins = member.epoch == 0
        unconfirmed = [] if joins else member.unconfirmed
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self._name] if joins else None,
            topic_partitions=None if unconfirmed is None else list(unconfirmed),
        )

    def ask(self, request: Message) -> ConsumerGroupHeartbeatResponse:
        return self.wire.ask(request, HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse)

    def assigned(self, answer: ConsumerGroupHeartbeatResponse) -> Sequence[TopicPartitions] | None:
        if answer.assignment is None:
            return None
        return [
            TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
            for one in answer.assignment.topic_partitions
        ]

    def state(self) -> str:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        return self.wire.ask(request, DESCRIBE_VERSION, ConsumerGroupDescribeResponse).groups[0].group_state


def consumer_heartbeats(wire: Wire, name: str) -> Frames:
    await_coordinator(wire, GROUP, f"{name}-group")
    group = ConsumerGroup(wire, f"{name}-group", name, MEMBERS)
    group.until_stable(MEMBERS)
    return group.heartbeats()


def streams_heartbeats(wire: Wire, name: str) -> Frames:
    await_coordinator(wire, GROUP, f"{name}-group")
    group = StreamsGroup(wire, f"{name}-group", name, MEMBERS)
    group.until_stable(MEMBERS)
    return group.heartbeats()


def share_heartbeats(wire: Wire, name: str) -> Frames:
    group_id = f"{name}-group"
    members = shares.joined(wire, group_id, name, MEMBERS, MEMBERS)
    requests: list[Message] = [shares.heartbeat_of(group_id, name, member) for member in members]
    return b"".join(request_bytes(one, shares.HEARTBEAT_VERSION, 1, "bench") for one in requests)


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Measures the heartbeats of a stable group whose members send them as fast as the broker responds, each on its own
    connection."""

    frames: Callable[[Wire, str], Frames]

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns heartbeats per second, and the broker's CPU per heartbeat in µs."""
        with topic(subject.bootstrap, MEMBERS) as name:
            with Wire(subject.bootstrap) as wire:
                frames = self.frames(wire, name)
            seconds = SECONDS * share
            found = run_load(
                subject.broker.port,
                frames,
                connections=MEMBERS,
                in_flight=1,
                seconds=seconds,
                warm_up_s=seconds / 3,
                error_at=ERROR_AT,
                pid=subject.pid,
            )
        return {
            "heartbeats_s": found["requests_s"],
            "cpu_us_per_heartbeat": found["cores"] / found["requests_s"] * 1e6,
        }
