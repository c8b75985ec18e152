"""Tests the changes to share groups in Kafka 4.4, and the previous behaviour if the broker emulates an earlier release
(docs/spec/kafka-4.4.md#s5-3)."""

from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.handlers.shares.share_group_state import (
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.broker.runtime.slices import run_to_end
from odradek.broker.shares.core.state import SharePartitionKey, StateSummary
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages import initialize_share_group_state_request as to_initialize
from odradek.protocol.messages import read_share_group_state_request as to_read
from odradek.protocol.messages import read_share_group_state_summary_request as to_summarize
from odradek.protocol.messages import write_share_group_state_request as to_write
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.broker_scene import answer_of
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.share_member import Member
from tests.support.share_state_scene import KEY, ShareStateScene

E = ErrorCode
BOTH = pytest.mark.parametrize("rules", list(KafkaRules))


def broker_of(rules: KafkaRules) -> ShareBroker:
    broker = ShareBroker(rules=rules)
    broker.topic(GROUP_OFFSETS)
    return broker


def settled(broker: ShareBroker, member: Member) -> None:
    member.heartbeat(0, ["T"])
    for _ in range(3):
        broker.sleep(1_000)
        member.heartbeat()


def described(member: Member) -> tuple[str, int, int]:
    (group,) = member.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups
    return group.group_state, group.group_epoch, group.assignment_epoch


def test_the_target_of_a_group_that_was_emptied_is_at_its_epoch_and_the_next_member_does_not_wait() -> None:
    """S1: when the last member leaves a share group, the assignment epoch increases together with the group epoch."""
    broker = broker_of(NEWEST)
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a)
    a.heartbeat(-1)
    state, epoch, assignment_epoch = described(a)
    assert (state, assignment_epoch) == ("Empty", epoch)
    joined = broker.member("B").heartbeat(0, ["T"])
    assert [each.partitions for each in joined.assignment.topic_partitions] == [[0]]


def test_in_kafka_4_3_the_target_of_a_group_that_was_emptied_stays_behind() -> None:
    broker = broker_of(KafkaRules.KAFKA_4_3)
    broker.topic("T")
    a = broker.member("A")
    settled(broker, a)
    a.heartbeat(-1)
    state, epoch, assignment_epoch = described(a)
    assert (state, assignment_epoch) == ("Empty", epoch - 1)


@pytest.mark.parametrize(("rules", "start_offset"), [(KafkaRules.KAFKA_4_4, 0), (KafkaRules.KAFKA_4_3, -1)])
def test_a_partition_that_was_added_begins_at_0_whatever_the_reset_says(rules: KafkaRules, start_offset: int) -> None:
    """S2: in both releases, the partitions of a topic that is new to the group have no start offset at first."""
    broker = broker_of(rules)
    topic = broker.topic("T")
    member = broker.member("A")
    settled(broker, member)
    assert summary(broker, topic.topic_id, 0).start_offset == -1
    broker.image.replay(
        PartitionRecord(partition_id=1, topic_id=topic.topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0)
    )
    run_to_end(broker.partitions.opening_topic(broker.image.topics["T"]))
    for _ in range(3):
        broker.sleep(1_000)
        member.heartbeat()
    assert summary(broker, topic.topic_id, 1).start_offset == start_offset


def summary(broker: ShareBroker, topic_id: bytes, partition: int) -> StateSummary:
    key = SharePartitionKey(GROUP, topic_id, partition)
    return broker.share_coordinator.shard_for(key).read_state(lambda core: core.summarize(key))


# --- Negative epochs: S4 to S7.

NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."


def initialize(broker: ShareBroker, topic_id: bytes, **fields: int) -> Any:
    data = to_initialize.PartitionData(**{"partition": 0, "state_epoch": 1, "start_offset": 0, **fields})
    topics = [to_initialize.InitializeStateData(topic_id=topic_id, partitions=[data])]
    request = to_initialize.InitializeShareGroupStateRequest(group_id=GROUP, topics=topics)
    return initialize_share_group_state(request, broker.context(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0), broker.broker)


def read(broker: ShareBroker, topic_id: bytes, **fields: int) -> Any:
    data = to_read.PartitionData(**{"partition": 0, "leader_epoch": 0, **fields})
    topics = [to_read.ReadStateData(topic_id=topic_id, partitions=[data])]
    request = to_read.ReadShareGroupStateRequest(group_id=GROUP, topics=topics)
    return read_share_group_state(request, broker.context(ApiKey.READ_SHARE_GROUP_STATE, 0), broker.broker)


def summarize(broker: ShareBroker, topic_id: bytes, **fields: int) -> Any:
    data = to_summarize.PartitionData(**{"partition": 0, "leader_epoch": 0, **fields})
    topics = [to_summarize.ReadStateSummaryData(topic_id=topic_id, partitions=[data])]
    request = to_summarize.ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=topics)
    return read_share_group_state_summary(
        request, broker.context(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1), broker.broker
    )


def write(
    broker: ShareBroker,
    topic_id: bytes,
    leader_epoch: int = 0,
    state_epoch: int = 9,
    batches: Sequence[to_write.StateBatch] = (),
) -> Any:
    data = to_write.PartitionData(
        partition=0,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=0,
        state_batches=list(batches),
    )
    topics = [to_write.WriteStateData(topic_id=topic_id, partitions=[data])]
    request = to_write.WriteShareGroupStateRequest(group_id=GROUP, topics=topics)
    return write_share_group_state(request, broker.context(ApiKey.WRITE_SHARE_GROUP_STATE, 1), broker.broker)


@BOTH
@pytest.mark.parametrize(
    ("ask", "fields", "message"),
    [
        (read, {"leader_epoch": -1}, NEGATIVE_LEADER_EPOCH),  # row S4
        (write, {"leader_epoch": -1}, NEGATIVE_LEADER_EPOCH),  # row S5
        (write, {"state_epoch": -1}, NEGATIVE_STATE_EPOCH),
        (initialize, {"state_epoch": -1}, NEGATIVE_STATE_EPOCH),  # row S6
    ],
)
def test_negative_epochs_are_refused(rules: KafkaRules, ask: Any, fields: dict[str, int], message: str) -> None:
    """S4 to S6: the error message names the negative epoch."""
    broker = broker_of(rules)
    topic_id = broker.topic("T").topic_id
    settled(broker, broker.member("A"))
    reply = ask(broker, topic_id, **fields)
    broker.settle()
    ((result,),) = [each.partitions for each in answer_of(reply).results]
    refusal = ErrorCode(result.error_code), result.error_message
    assert refusal == ((E.INVALID_REQUEST, message) if rules >= KafkaRules.KAFKA_4_4 else (E.NONE, None))


@BOTH
def test_a_summary_does_not_look_at_the_leader_epoch(rules: KafkaRules) -> None:
    """S7: ReadShareGroupStateSummary ignores the leader epoch."""
    broker = broker_of(rules)
    topic_id = broker.topic("T").topic_id
    settled(broker, broker.member("A"))
    reply = summarize(broker, topic_id, leader_epoch=-1)
    broker.settle()
    assert [each.partitions[0].error_code for each in answer_of(reply).results] == [0]


def test_a_state_may_begin_at_any_negative_start_offset() -> None:
    """S6: a negative start offset such as -2 is accepted."""
    broker = broker_of(NEWEST)
    topic_id = broker.topic("T").topic_id
    settled(broker, broker.member("A"))
    reply = initialize(broker, topic_id, state_epoch=9, start_offset=-2)
    broker.settle()
    assert [each.partitions[0].error_code for each in answer_of(reply).results] == [0]


@BOTH
def test_a_batch_of_state_that_ends_before_it_begins_is_refused(rules: KafkaRules) -> None:
    """S10: only the offsets of a batch are checked, not its delivery state or its delivery count."""
    broker = broker_of(rules)
    topic_id = broker.topic("T").topic_id
    settled(broker, broker.member("A"))
    codes = []
    for first, last in ((5, 5), (5, 4)):
        batch = to_write.StateBatch(first_offset=first, last_offset=last, delivery_state=9, delivery_count=-1)
        reply = write(broker, topic_id, batches=[batch])
        broker.settle()
        codes += [E(each.partitions[0].error_code) for each in answer_of(reply).results]
    assert codes == [E.NONE, E.UNKNOWN_SERVER_ERROR if rules >= KafkaRules.KAFKA_4_4 else E.NONE]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (KafkaRules.KAFKA_4_4, "The coordinator rejected the request because the state epoch did not match."),
        (
            KafkaRules.KAFKA_4_3,
            "The share coordinator rejected the request because the share-group state epoch did not match.",
        ),
    ],
)
def test_a_lower_state_epoch_is_refused_in_the_words_of_the_release(rules: KafkaRules, message: str) -> None:
    """Checks that the error message is the emulated release's. Kafka 4.4 changed the message
    (docs/spec/kafka-4.4.md#s1-3)."""
    broker = broker_of(rules)
    topic_id = broker.topic("T").topic_id
    settled(broker, broker.member("A"))
    initialize(broker, topic_id, state_epoch=9)
    broker.settle()
    reply = write(broker, topic_id, state_epoch=8)
    broker.settle()
    ((result,),) = [each.partitions for each in answer_of(reply).results]
    assert (E(result.error_code), result.error_message) == (E.FENCED_STATE_EPOCH, message)


# --- The part of a write that is stored: S8 and S9.


@pytest.mark.parametrize(
    ("rules", "counts"),
    [(KafkaRules.KAFKA_4_4, [4, 4, 4, 4, 1]), (KafkaRules.KAFKA_4_3, [4, 4, 9, 9, 1])],
)
def test_a_lower_start_offset_does_not_change_the_stored_state(rules: KafkaRules, counts: list[int]) -> None:
    """S8 and S9: a write with a lower start offset does not change the stored state."""
    scene = ShareStateScene(ShareCoordinatorConfig(rules=rules))
    scene.initialize(1, 5)
    seen = []
    for start_offset, count in ((5, 4), (5, 2), (-1, 9), (3, 7), (8, 1)):
        scene.write(start_offset=start_offset, count=count)
        summary = scene.core.summarize(KEY)
        seen.append(summary.delivery_complete_count)
        assert summary.start_offset == max(5, start_offset)
    assert seen == counts
