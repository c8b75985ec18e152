"""Tests that everything that members of consumer groups (KIP-848) have learned is still true after a crash at any disk
call.

The members play a story. Wherever the broker dies, they repeat unanswered requests to the next broker, as clients do,
and continue. No member is fenced, no partition has two owners, no committed offset is lost, and the story ends as
planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from odradek.broker.metadata.supported_features import GROUP_VERSION
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.simulation.group_crashes import (
    TOPIC,
    Event,
    GroupMember,
    GroupStage,
    GroupWorld,
    beats,
    check_owners,
    commits,
    fail_power_at_every_call,
    kill_at_every_call,
    leaves,
    play_without_a_crash,
    prepared_disk,
    waits,
)
from tests.simulation.stage import GROUP
from tests.simulation.transaction_world import NOW_MS
from tests.support.fake_disk import FakeDisk

PARTITIONS = 6
SETTINGS = {"group_consumer_assignment_interval_ms": "0", "group_initial_rebalance_delay_ms": "0"}


@dataclass(slots=True)
class Member(GroupMember):
    """A member that works on the partitions in `owned`, and on those in `given`, which the last response assigned. It
    stops working on a partition before the next heartbeat reports this."""

    topics: list[str] | None = field(default_factory=lambda: [TOPIC])
    regex: str | None = None
    owned: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)

    def drop_all(self) -> None:
        self.owned, self.given = set(), set()

    def request(self, topic_id: bytes) -> ConsumerGroupHeartbeatRequest:
        self.owned |= self.given
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self.epoch, instance_id=self.instance
        )
        if self.sends_full_heartbeat:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.owned))] if self.owned else []
        request.topic_partitions = owned
        self.sends_full_heartbeat = True  # Reset when a response arrives.
        return request


def steps(name: str) -> Event:
    return beats(Member, name)


def steps_static(name: str) -> Event:
    return beats(partial(Member, instance="i"), name)


def steps_with_pattern(name: str) -> Event:
    return beats(partial(Member, topics=None, regex="ord.*"), name)


def settle(*names: str) -> list[Event]:
    return [steps(name) for _ in range(4) for name in names]


class ConsumerGroupWorld(GroupWorld[Member]):
    story = (
        steps("A"),
        commits("A", 3),
        steps("C"),
        *settle("A", "C"),
        commits("A", 5),
        steps_static("S"),
        *settle("A", "C", "S"),
        leaves("S", -2),
        steps_static("N"),
        steps("A"),
        leaves("C"),
        steps_with_pattern("P"),
        waits,
        *settle("A", "N", "P"),
        commits("A", 8),
        leaves("N"),
        *settle("A", "P"),
    )

    @staticmethod
    def broker_on(disk: FakeDisk | None = None, now_ms: int = NOW_MS) -> GroupStage:
        return GroupStage(disk, now_ms, partitions=PARTITIONS, feature=GROUP_VERSION, settings=SETTINGS)

    def beat(self, member: Member) -> None:
        topic_id = self.stage.broker.metadata.image.topics[TOPIC].topic_id
        answer = self.joined(member, lambda: member.request(topic_id))
        assert answer.error_code == 0, f"{member.name} at {member.epoch}: {answer.error_message}"
        assert answer.member_epoch >= member.epoch, "an epoch went back"
        member.epoch, member.sends_full_heartbeat, member.given = answer.member_epoch, False, set()
        if answer.assignment is not None:
            given = {index for each in answer.assignment.topic_partitions for index in each.partitions}
            member.owned, member.given = member.owned & given, given

    def farewell(self, member: Member, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.name, member_epoch=epoch, instance_id=member.instance
        )

    def recorded(self) -> dict[str, int]:
        (group,) = self.stage.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups
        return {each.member_id: each.member_epoch for each in group.members}

    def check(self) -> None:
        check_owners({each.name: each.owned | each.given for each in self.members.values()})

    def check_end(self) -> None:
        assert sorted(self.members) == ["A", "P"]
        assert sorted(index for each in self.members.values() for index in each.owned) == list(range(PARTITIONS))
        assert self.stage.offset() == 8


@pytest.fixture(scope="module")
def prepared() -> FakeDisk:
    return prepared_disk(ConsumerGroupWorld.broker_on)


def test_the_story_ends_well_without_a_crash(prepared: FakeDisk) -> None:
    play_without_a_crash(ConsumerGroupWorld, prepared)


@pytest.mark.parametrize("half_write", [False, True])
def test_a_killed_broker_keeps_the_state_that_it_reported_to_members(prepared: FakeDisk, half_write: bool) -> None:
    kill_at_every_call(ConsumerGroupWorld, prepared, half_write=half_write)


def test_a_power_failure_loses_no_state_that_was_reported_to_members(prepared: FakeDisk) -> None:
    fail_power_at_every_call(ConsumerGroupWorld, prepared)
