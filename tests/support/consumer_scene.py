"""Consumer groups (KIP-848) for tests: a scene whose members send ConsumerGroupHeartbeat.

Responses are compared as `(code, member epoch, assignment)`. An assignment is a string: "T3 012" means partitions 0 to
2 of T3, and "" an empty assignment. It is None if the response has no assignment.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.broker.groups.common.outcome import ConsumerConfig, GroupConfig
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.heartbeat import ConsumerHeartbeat, check_heartbeat, heartbeat
from odradek.broker.groups.consumer.lifecycle import describe_consumer_group
from odradek.broker.groups.records import decode_record
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.consumer_group_describe_response import DescribedGroup, Member
from odradek.protocol.messages.consumer_group_describe_response import TopicPartitions as DescribedPartitions
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from tests.support.fake_cluster import FakeCluster
from tests.support.group_scene import GROUP, Scene

REBALANCE_TIMEOUT_MS = 300_000
Owned = dict[str, str]
"""Partitions by topic, each partition as one digit."""


class HeartbeatResult(NamedTuple):
    code: int
    epoch: int
    assignment: str | None


def refused(code: ErrorCode) -> HeartbeatResult:
    return HeartbeatResult(code.value, 0, None)


class ConsumerScene(Scene):
    """A scene in which each heartbeat of a member has the epoch of the member's last response. A full heartbeat also
    has the last assignment."""

    def __init__(
        self,
        *,
        interval_ms: int = 0,
        consumer: ConsumerConfig | None = None,
        config: GroupConfig | None = None,
        rules: KafkaRules = NEWEST,
        topics: dict[str, int] | None = None,
    ) -> None:
        self.cluster = FakeCluster(**({"T3": 3, "T6": 6} if topics is None else topics))
        self.cluster.defaults["consumer.assignment.interval.ms"] = interval_ms
        self.epochs: dict[str, int] = {}
        self.last: ConsumerGroupHeartbeatResponse | None = None
        self.last_error: str | None = None
        self.hidden: set[str] = set()  # topics that clients may not DESCRIBE
        super().__init__(
            config
            or GroupConfig(group_initial_rebalance_delay_ms=0, consumer=consumer or ConsumerConfig(), rules=rules),
            cluster=self.cluster,
        )

    def beat(
        self,
        member: str,
        epoch: int | None = None,
        *,
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Owned | None = None,
        instance: str | None = None,
        rack: str | None = None,
        timeout_ms: int = -1,
        assignor: str | None = None,
        group: str = GROUP,
        version: int = 1,
        client: str = "c",
        coordinator_id: str = "made",
    ) -> HeartbeatResult:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=self.epochs[member] if epoch is None else epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=timeout_ms,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else self._owned(owned),
        )
        try:
            check_heartbeat(request, version, self.config.consumer.assignors)
            beat = ConsumerHeartbeat(
                request, member or coordinator_id, client, "/127.0.0.1", lambda name: name not in self.hidden
            )
            answer = self.turn(lambda core: heartbeat(core.registry, beat, self.now_ms))
        except KafkaError as error:
            self.last_error = error.message
            return HeartbeatResult(error.code.value, 0, None)
        assert answer is not None
        assert answer.member_id is not None
        self.last = answer
        if answer.member_epoch >= 0:
            self.epochs[answer.member_id] = answer.member_epoch
        given = None
        if answer.assignment is not None:
            given = self.text((each.topic_id, each.partitions) for each in answer.assignment.topic_partitions)
        return HeartbeatResult(answer.error_code, answer.member_epoch, given)

    def member(
        self,
        name: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        timeout_ms: int = REBALANCE_TIMEOUT_MS,
        assignor: str | None = None,
        rack: str | None = None,
        group: str = GROUP,
        version: int = 1,
        client: str = "c",
    ) -> HeartbeatResult:
        """Makes a member join with a heartbeat at epoch 0. Without `topics` and `regex`, the member subscribes to
        nothing."""
        return self.beat(
            name,
            0,
            topics=list(topics) if topics or regex is None else None,
            regex=regex,
            owned={},
            instance=instance,
            timeout_ms=timeout_ms,
            assignor=assignor,
            rack=rack,
            group=group,
            version=version,
            client=client,
        )

    def _owned(self, owned: Owned) -> list[TopicPartitions]:
        stated = []
        for name, partitions in owned.items():
            topic = self.cluster.topic(name)
            assert topic is not None
            stated.append(TopicPartitions(topic_id=topic.topic_id, partitions=[int(digit) for digit in partitions]))
        return stated

    def text(self, partitions: object) -> str:
        parts = []
        for topic_id, indexes in partitions:  # type: ignore[attr-defined]
            topic = self.cluster.topic_of_id(topic_id)
            name = "?" if topic is None else topic.name
            parts.append(f"{name} {''.join(str(index) for index in sorted(indexes))}")
        return ", ".join(sorted(parts))

    # The state as tests see it.

    def described(self, group: str = GROUP) -> DescribedGroup:
        return describe_consumer_group(self.core.registry, group)

    def member_of(self, name: str, group: str = GROUP) -> Member:
        return next(member for member in self.described(group).members if member.member_id == name)

    @property
    def state(self) -> tuple[str, int, int]:
        """Returns the group's state, group epoch and assignment epoch."""
        group = self.described()
        return group.group_state, group.group_epoch, group.assignment_epoch

    def target(self, name: str) -> str:
        return self._named(self.member_of(name).target_assignment.topic_partitions)

    def held(self, name: str) -> str:
        """Returns the partitions that ConsumerGroupDescribe shows for a member: those assigned, and those that the
        member has not revoked yet."""
        return self._named(self.member_of(name).assignment.topic_partitions)

    def _named(self, partitions: list[DescribedPartitions]) -> str:
        return ", ".join(
            sorted(f"{each.topic_name} {''.join(map(str, sorted(each.partitions)))}" for each in partitions)
        )

    def group_of(self, group: str = GROUP) -> ConsumerGroup:
        found = self.core.registry.groups[group]
        assert isinstance(found, ConsumerGroup)
        return found

    def written(self, since: int = 0) -> list[CoordinatorRecord]:
        records = [decode_record(key, value) for key, value in self.log[since:]]
        return [record for record in records if record is not None]

    def keys_written(self, since: int = 0) -> list[int]:
        """Returns the types of the records written after the first `since` records, as negative numbers for
        tombstones."""
        return [record.key.API_KEY * (1 if record.value is not None else -1) for record in self.written(since)]

    # Several steps in one call.

    def settle(self, *names: str, rounds: int = 12, group: str = GROUP) -> None:  # type: ignore[override]
        """Sends `rounds` rounds of heartbeats in which the members adopt their assignments, so that the group becomes
        stable."""
        for _ in range(rounds):
            for name in names:
                member = self.group_of(group).members[name]
                owned = {
                    topic.name: "".join(map(str, sorted(partitions)))
                    for topic_id, partitions in member.assigned.items()
                    if (topic := self.cluster.topic_of_id(topic_id)) is not None
                }
                self.beat(name, owned=owned, group=group)


def embedded(*topics: str, owned: Owned | None = None, generation: int = -1) -> bytes:
    """Returns the metadata that a consumer of the classic protocol sends in JoinGroup."""
    subscription = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=name, partitions=[int(digit) for digit in partitions])
            for name, partitions in (owned or {}).items()
        ],
        generation_id=generation,
    )
    return (3).to_bytes(2, "big") + encode(subscription, 3)
