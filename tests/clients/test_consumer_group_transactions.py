"""Tests that members of consumer groups (KIP-848) commit offsets in transactions
(docs/spec/consumer-groups.md#s9-3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.clients.admin import create_topic
from tests.clients.speakers import wait_for
from tests.support.broker_process import Broker, new_broker
from tests.support.wire import Wire

E = ErrorCode
# These versions require a previous AddOffsetsToTxn. TxnOffsetCommit v5 and later add the group themselves.
IN_ANOTHER_REQUEST = (3, 4)
VERSIONS = (*IN_ANOTHER_REQUEST, 5)
GROUP_KEY, TRANSACTION_KEY = 0, 1
AWAIT = {E.COORDINATOR_NOT_AVAILABLE.value, E.COORDINATOR_LOAD_IN_PROGRESS.value, E.NOT_COORDINATOR.value}
LOST, KEPT = 2, 0  # the partition that A has given up, and a partition that A still owns


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"offsets.topic.num.partitions": 2, "group.consumer.assignment.interval.ms": 0}
    with new_broker(tmp_path_factory.mktemp("settled") / "data", settings) as own:
        yield own


class Story:
    """A consumer group and a transactional producer.

    At first, member A owns partitions 0 to 2. When C joins, at the next epoch, A keeps partitions 0 and 1. The static
    member S joins one epoch later, at `epoch`.
    """

    def __init__(self, broker: Broker, version: int) -> None:
        self.version = version
        self.wire = Wire(broker.bootstrap)
        self.topic = create_topic(broker.bootstrap, "t", partitions=3)
        self.group = f"{self.topic}-g"
        self.transactional_id = f"{self.topic}-id"
        for key_type, key in ((GROUP_KEY, self.group), (TRANSACTION_KEY, self.transactional_id)):
            self._await_coordinator(key_type, key)
        self._settle()
        init = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answers: list[InitProducerIdResponse] = []

        def is_there() -> bool:
            answers.append(self.wire.ask(init, 4, InitProducerIdResponse))
            return answers[-1].error_code not in AWAIT

        wait_for("the transaction's coordinator", is_there)
        assert answers[-1].error_code == 0
        self.pair = answers[-1].producer_id, answers[-1].producer_epoch

    def _await_coordinator(self, key_type: int, key: str) -> None:
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        wait_for(
            "the coordinator",
            lambda: self.wire.ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code == 0,
        )

    def _settle(self) -> None:
        joined = self._join_a()
        before = joined.member_epoch
        self.join("C")
        assignment = self.beat("A", before).assignment
        assert assignment is not None
        kept = [
            TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in assignment.topic_partitions
        ]
        assert kept[0].partitions == [0, 1]
        assert self.beat("A", before, topic_partitions=kept).member_epoch == before + 1
        self.epoch = self.join("S", topics=["nope"], instance_id="i").member_epoch
        assert self.beat("A", before + 1).member_epoch == self.epoch == before + 2

    def _join_a(self) -> ConsumerGroupHeartbeatResponse:
        """Sends joins for A until A has partitions.

        A single join is not always enough, because Kafka's coordinator learns about a new topic a little later.
        Repeated joins change nothing.
        """
        answers: list[ConsumerGroupHeartbeatResponse] = []

        def has_partitions() -> bool:
            answers.append(self.join("A"))
            assignment = answers[-1].assignment
            return assignment is not None and assignment.topic_partitions != []

        wait_for("A's partitions", has_partitions)
        return answers[-1]

    def beat(self, member: str, epoch: int, **fields: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch)
        for name, value in fields.items():
            setattr(request, name, value)
        return self.wire.ask(request, 1, ConsumerGroupHeartbeatResponse)

    def join(self, member: str, topics: list[str] | None = None, **more: object) -> ConsumerGroupHeartbeatResponse:
        topic_names = topics or [self.topic]
        return self.beat(
            member, 0, subscribed_topic_names=topic_names, rebalance_timeout_ms=60_000, topic_partitions=[], **more
        )

    def commit(self, member: str, epoch: int, *partitions: int, instance: str | None = None) -> list[E]:
        """Commits an offset for each partition, 10 plus the partition's number, and returns the error codes."""
        if self.version in IN_ANOTHER_REQUEST:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.pair[0],
                producer_epoch=self.pair[1],
                group_id=self.group,
            )
            assert self.wire.ask(add, self.version, AddOffsetsToTxnResponse).error_code == 0
        offsets = [
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=10 + index, committed_leader_epoch=-1, committed_metadata=""
            )
            for index in partitions or (KEPT,)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=offsets)],
        )
        (topic,) = self.wire.ask(request, self.version, TxnOffsetCommitResponse).topics
        return [E(each.error_code) for each in topic.partitions]

    def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=committed,
        )
        version = 4 if self.version in IN_ANOTHER_REQUEST else 5
        answer = self.wire.ask(request, version, EndTxnResponse)
        assert answer.error_code == 0
        if version == 5:
            self.pair = answer.producer_id, answer.producer_epoch

    def fetch(self, *, stable: bool = True) -> list[tuple[int, E]]:
        """Fetches offsets as A and returns the committed offset and error code of each of the three partitions."""
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1, 2])]
        group = OffsetFetchRequestGroup(group_id=self.group, member_id="A", member_epoch=self.epoch, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        (group_response,) = self.wire.ask(request, 9, OffsetFetchResponse).groups
        assert group_response.error_code == 0
        return [(each.committed_offset, E(each.error_code)) for each in group_response.topics[0].partitions]

    def becomes(self, *offsets: int) -> None:
        """Waits until these offsets are committed. Kafka answers EndTxn before it writes the markers."""
        wait_for(f"offsets {offsets}", lambda: self.fetch() == [(offset, E.NONE) for offset in offsets])


@pytest.fixture(params=VERSIONS, ids=[f"v{version}" for version in VERSIONS])
def story(settled: Broker, request: pytest.FixtureRequest) -> Iterator[Story]:
    own = Story(settled, request.param)
    with own.wire:
        yield own


def test_offsets_are_pending_until_the_transaction_ends(story: Story) -> None:
    assert story.commit("A", story.epoch, 0, 1) == [E.NONE, E.NONE]
    pending = (-1, E.UNSTABLE_OFFSET_COMMIT)
    assert story.fetch() == [pending, pending, (-1, E.NONE)]
    assert story.fetch(stable=False) == [(-1, E.NONE)] * 3
    story.end(committed=True)
    story.becomes(10, 11, -1)


def test_offsets_of_an_aborted_transaction_are_forgotten(story: Story) -> None:
    assert story.commit("A", story.epoch) == [E.NONE]
    story.end(committed=False)
    story.becomes(-1, -1, -1)


def test_scenario_073_a_member_commits_at_its_epoch(story: Story) -> None:
    assert story.commit("A", story.epoch) == [E.NONE]
    for epoch in (story.epoch + 1, -1, 0):
        assert story.commit("A", epoch) == [E.ILLEGAL_GENERATION]
    for member, epoch in (("ZZ", story.epoch), ("", story.epoch)):
        assert story.commit(member, epoch) == [E.UNKNOWN_MEMBER_ID]
    assert story.commit("", -1, instance="i") == [E.UNKNOWN_MEMBER_ID]
    assert story.commit("", -1) == [E.NONE]
    story.end(committed=True)
    story.becomes(10, -1, -1)


def test_scenario_074_an_older_epoch_can_commit_partitions_still_assigned(story: Story) -> None:
    assert story.commit("A", story.epoch - 1, KEPT) == [E.NONE]
    assert story.commit("A", story.epoch - 2, LOST) == [E.ILLEGAL_GENERATION]
    assert story.commit("A", story.epoch - 2, KEPT, LOST) == [E.ILLEGAL_GENERATION] * 2
    story.end(committed=True)
    story.becomes(10, -1, -1)


def test_an_absent_static_member_commits_at_epoch_minus_two(story: Story) -> None:
    assert story.beat("S", -2, instance_id="i").error_code == 0
    assert story.commit("S", -2, instance="i") == [E.NONE]
    assert story.commit("S", story.epoch, instance="i") == [E.ILLEGAL_GENERATION]
    story.end(committed=True)
    story.becomes(10, -1, -1)


def test_a_refused_commit_leaves_the_transaction_usable(story: Story) -> None:
    assert story.commit("A", story.epoch + 5) == [E.ILLEGAL_GENERATION]
    assert story.commit("A", story.epoch) == [E.NONE]
    story.end(committed=True)
    story.becomes(10, -1, -1)
    assert story.commit("A", story.epoch, 1) == [E.NONE]
    story.end(committed=True)
    story.becomes(10, 11, -1)
