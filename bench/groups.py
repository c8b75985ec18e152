"""Measures groups: how soon a large consumer group (KIP-848) is stable, and what a heartbeat costs."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bench import shares
from bench.clients import CLIENT_TIMEOUT_S
from bench.coordinators import GROUP, await_coordinator
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

HEARTBEAT_VERSION = 1
DESCRIBE_VERSION = 1
REBALANCE_TIMEOUT_MS = 60_000
MEMBERS = 8  # each sends heartbeats
SECONDS = 1.5
ERROR_AT = 9  # in the responses to all heartbeats, after the length: correlation id, tags, throttle time
ROUND_S = 0.005  # pause before the next heartbeats if a round has changed nothing
Frames: TypeAlias = bytes


@dataclass(slots=True)
class Member:
    """A member. `owned` lists its partitions by topic id. `to_be_told` is None if the broker already knows them."""

    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    owned: Sequence[TopicPartitions] = ()
    to_be_told: Sequence[TopicPartitions] | None = ()


class ConsumerGroup:
    """The members' side of KIP-848, one heartbeat at a time."""

    def __init__(self, wire: Wire, group_id: str, name: str, count: int) -> None:
        self.members = [Member() for _ in range(count)]
        self._wire = wire
        self._group_id = group_id
        self._name = name

    def until_stable(self, partitions: int) -> None:
        """Makes all members join, then sends heartbeats in rounds until all partitions are assigned and owned."""
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        while time.monotonic() < deadline:
            has_news = sum(self._heartbeat(member) for member in self.members) > 0
            if not has_news and self._is_stable(partitions):
                return
            if not has_news:
                time.sleep(ROUND_S)
        raise RuntimeError(f"{self._group_id} was not stable in {CLIENT_TIMEOUT_S:g} s")

    def heartbeats(self) -> Frames:
        """Returns a heartbeat of each member, with no changes."""
        return b"".join(request_bytes(self._request(member), HEARTBEAT_VERSION, 1, "bench") for member in self.members)

    def _heartbeat(self, member: Member) -> bool:
        """Sends a heartbeat. Returns whether it changed anything."""
        answer = self._wire.ask(self._request(member), HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            if member.epoch:
                raise RuntimeError(f"a heartbeat was refused: {answer.error_message}")
            time.sleep(ROUND_S)  # the coordinator is still loading
            return True
        has_news = answer.member_epoch != member.epoch or member.to_be_told is not None
        member.epoch = answer.member_epoch
        member.to_be_told = None
        if answer.assignment is not None:
            member.owned = member.to_be_told = [
                TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                for one in answer.assignment.topic_partitions
            ]
            has_news = True
        return has_news

    def _request(self, member: Member) -> ConsumerGroupHeartbeatRequest:
        joins = member.epoch == 0
        told = member.to_be_told
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=[self._name] if joins else None,
            topic_partitions=[] if joins else None if told is None else list(told),
        )

    def _is_stable(self, partitions: int) -> bool:
        owned = sum(len(topic.partitions) for member in self.members for topic in member.owned)
        if owned != partitions or len({member.epoch for member in self.members}) > 1:
            return False
        request = ConsumerGroupDescribeRequest(group_ids=[self._group_id])
        answer = self._wire.ask(request, DESCRIBE_VERSION, ConsumerGroupDescribeResponse)
        return answer.groups[0].group_state == "Stable"


@dataclass(frozen=True, slots=True)
class Stabilisation:
    """Members join one after the other, and then send heartbeats until the group is stable."""

    members: int
    partitions: int

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        """Returns the seconds from the first join until the group is stable, and the milliseconds of the broker's
        CPU."""
        with topic(subject.bootstrap, self.partitions) as name, Wire(subject.bootstrap) as wire:
            group = ConsumerGroup(wire, f"{name}-group", name, max(2, int(self.members * share)))
            await_coordinator(wire, GROUP, f"{name}-group")
            cpu_before, began = subject.cpu_seconds(), time.perf_counter()
            group.until_stable(self.partitions)
            return {
                "seconds": time.perf_counter() - began,
                "cpu_ms": (subject.cpu_seconds() - cpu_before) * 1000,
            }


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
    """Members of a stable group send heartbeats as fast as the broker responds, each on its own connection."""

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
