"""Tests that the offsets in TxnOffsetCommit, versions 0 to 6, take effect only if the transaction commits.

Rules: docs/spec/transactions.md#s2-6, #s2-7; scenarios: #s8-2, #s8-4. Version 6: docs/spec/kafka-4.4.md#s5-2.
"""

from __future__ import annotations

import pytest

from odradek.broker.api.error_translations import translate
from odradek.broker.groups.common.group import CoordinatorRecord
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.batch_header import batches
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from odradek.protocol.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.protocol.struct import ZERO_UUID
from odradek.protocol.topic_partition import GROUP_OFFSETS
from tests.support.broker_scene import answer_of
from tests.support.fake_disk import Fault
from tests.support.group_scene import GROUP as GROUP_OF_CORE
from tests.support.group_scene import Scene as GroupScene
from tests.support.transaction_scene import refused
from tests.support.transactional_clients import GROUP, ID, Answering, Clients, Pair

E = ErrorCode
T0 = ("t", 0)
OFFSETS = (GROUP_OFFSETS, 0)


@pytest.fixture
def scene() -> Clients:
    return Clients()


# --- From the commit to the marker.


@pytest.mark.parametrize("version", range(7))
def test_offsets_count_when_their_transaction_is_committed_at_every_version(scene: Clients, version: int) -> None:
    scene.commit_offset(3)
    pair = scene.init()
    if version < 5:
        assert scene.add_offsets(pair) is E.NONE
    assert scene.commit_offset_in_transaction(pair, 10, version=version) is E.NONE
    assert scene.committed_offset() == 3
    assert scene.committed_offset(require_stable=True) is E.UNSTABLE_OFFSET_COMMIT
    scene.commit(pair, version=5 if version >= 5 else 4)
    assert scene.committed_offset(require_stable=True) == 10


def test_scenario_030_a_new_clients_offsets_open_the_transaction(scene: Clients) -> None:
    pair = scene.init()
    assert scene.commit_offset_in_transaction(pair, 10) is E.NONE
    described = scene.transactions.describe(ID)
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [(GROUP_OFFSETS, [0])]


def test_scenario_031_a_plain_commit_that_came_later_is_not_overwritten(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    scene.commit_offset(12)
    scene.commit(pair)
    assert scene.committed_offset(require_stable=True) == 12


def test_scenario_032_an_abort_leaves_what_was_committed_before(scene: Clients) -> None:
    scene.commit_offset(3)
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    scene.abort(pair)
    assert scene.committed_offset(require_stable=True) == 3


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(("commit", "expected"), [(True, 10), (False, 3)])
def test_scenario_034_pending_offsets_are_pending_again_after_a_restart(
    scene: Clients, killed: bool, commit: bool, expected: int
) -> None:
    scene.commit_offset(3)
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    again = scene.restarted(killed=killed)
    assert again.committed_offset() == 3
    assert again.committed_offset(require_stable=True) is E.UNSTABLE_OFFSET_COMMIT
    again.end(pair, commit=commit)
    assert again.committed_offset(require_stable=True) == expected
    assert again.restarted(killed=killed).committed_offset(require_stable=True) == expected


def test_the_batch_in_the_log_is_the_producers_with_sequence_0(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    scene.commit_offset_in_transaction(pair, 11)
    log = scene.partition(GROUP_OFFSETS).log
    headers = [header for portion in log.reader.scan(0) for _, header in batches(portion)]
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers] == [(*pair, 0)] * 2
    assert all(header.is_transactional and not header.is_control for header in headers)
    producer = scene.producers(topic=GROUP_OFFSETS)[pair[0]]
    assert (producer.last_sequence, producer.current_txn_start_offset) == (0, 0)


def test_in_an_open_transaction_the_coordinator_is_not_asked(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    coordinator = scene.coordinator = Answering(E.UNKNOWN_SERVER_ERROR)
    assert scene.commit_offset_in_transaction(pair, 11, transactional_id="somebody else") is E.NONE
    assert coordinator.requests == []


def test_scenario_068_a_marker_waits_for_a_group_coordinator_that_is_loading(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    (shard,) = scene.groups.shards
    shard.unload(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert scene.write_marker(pair, commit=True, topic=GROUP_OFFSETS) is E.NOT_LEADER_OR_FOLLOWER
    assert scene.markers_in(GROUP_OFFSETS) == []


def test_a_marker_by_request_moves_the_offsets_too(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    assert scene.write_marker((pair[0], pair[1] + 1), commit=True, topic=GROUP_OFFSETS) is E.NONE
    assert scene.committed_offset(require_stable=True) == 10


# --- Members and clients that may commit.


@pytest.mark.parametrize(
    ("operation", "resource", "name", "code"),
    [
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Operation.READ, ResourceType.GROUP, GROUP, E.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_a_commit_requires_write_on_the_id_and_read_on_the_group(
    scene: Clients, operation: Operation, resource: ResourceType, name: str, code: ErrorCode
) -> None:
    pair = scene.init()
    scene.authorizer.denied.add((operation, resource, name))
    with refused(code):
        scene.commit_offset_in_transaction(pair, 10)


def test_each_topic_has_its_own_answer_and_the_others_are_committed(scene: Clients) -> None:
    pair = scene.init()
    scene.topic("secret")
    scene.authorizer.denied.add((Operation.READ, ResourceType.TOPIC, "secret"))
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=10) for index in indexes
                ],
            )
            for name, indexes in [("t", (0, 9, 1)), ("secret", (0,)), ("nowhere", (0,))]
        ],
    )
    answer = scene.answer(request, 5, TxnOffsetCommitResponse)
    codes = {
        topic.name: {each.partition_index: each.error_code for each in topic.partitions} for topic in answer.topics
    }
    assert codes == {
        "t": {9: E.UNKNOWN_TOPIC_OR_PARTITION.value, 0: 0, 1: 0},
        "secret": {0: E.TOPIC_AUTHORIZATION_FAILED.value},
        "nowhere": {0: E.UNKNOWN_TOPIC_OR_PARTITION.value},
    }
    scene.commit(pair)
    assert (scene.committed_offset(), scene.committed_offset(index=1)) == (10, 10)


def by_id(pair: Pair, *topics: tuple[bytes, int]) -> TxnOffsetCommitRequest:
    """Returns a version 6 request, which identifies topics by id. Each topic has one partition."""
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=10)],
            )
            for topic_id, index in topics
        ],
    )


def codes_by_topic_id(answer: TxnOffsetCommitResponse) -> dict[tuple[bytes, int], ErrorCode]:
    assert all(topic.name == "" for topic in answer.topics)
    return {
        (topic.topic_id, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


def test_version_6_names_topics_by_their_ids_and_is_answered_by_them(scene: Clients) -> None:
    """T1, T2 and T11: the unknown id requires no right, but the known one requires READ on its topic
    (docs/spec/kafka-4.4.md#s5-2)."""
    pair = scene.init()
    scene.topic("secret")
    scene.authorizer.denied.add((Operation.READ, ResourceType.TOPIC, "secret"))
    known, secret = (scene.image.topics[name].topic_id for name in ("t", "secret"))
    unknown = bytes(15) + b"\x07"
    request = by_id(pair, (known, 0), (known, 99), (secret, 99), (unknown, 0), (ZERO_UUID, 3))
    assert codes_by_topic_id(scene.answer(request, 6, TxnOffsetCommitResponse)) == {
        (known, 99): E.UNKNOWN_TOPIC_OR_PARTITION,
        (secret, 99): E.TOPIC_AUTHORIZATION_FAILED,
        (unknown, 0): E.UNKNOWN_TOPIC_ID,
        (ZERO_UUID, 3): E.UNKNOWN_TOPIC_ID,
        (known, 0): E.NONE,
    }
    scene.commit(pair)
    assert scene.committed_offset() == 10


def test_version_6_does_not_commit_for_a_topic_that_was_made_again_while_the_coordinator_was_asked(
    scene: Clients,
) -> None:
    pair = scene.init()
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    old = scene.image.topics["t"].topic_id
    reply = scene.ask(by_id(pair, (old, 0)), 6)
    scene.delete_topic("t")
    scene.topic("t")
    assert scene.image.topics["t"].topic_id != old
    coordinator.held.pop()()
    answer = decode(TxnOffsetCommitResponse, 6, encode(answer_of(reply), 6))
    assert codes_by_topic_id(answer) == {(old, 0): E.UNKNOWN_TOPIC_ID}
    scene.coordinator = scene.transactions
    assert scene.committed_offset(require_stable=True) == -1


def test_without_a_valid_partition_the_coordinator_is_not_asked(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    assert scene.commit_offset_in_transaction((7, 0), 10, topic="nowhere") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinator.requests == []


# --- The answers of the coordinators.


def test_a_group_without_a_name_has_no_offsets(scene: Clients) -> None:
    coordinator = scene.coordinator = Answering(E.NONE)
    assert scene.commit_offset_in_transaction((7, 0), 10, group="") is E.INVALID_GROUP_ID
    assert coordinator.requests == []


@pytest.mark.parametrize(
    ("code", "codes"),
    [
        (E.TRANSACTION_ABORTABLE, (E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE)),
        (E.PRODUCER_FENCED, (E.INVALID_PRODUCER_EPOCH,) * 3),
        (E.NETWORK_EXCEPTION, (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3),
        (E.UNKNOWN_TOPIC_OR_PARTITION, (E.COORDINATOR_NOT_AVAILABLE,) * 3),
        (E.NOT_ENOUGH_REPLICAS, (E.COORDINATOR_NOT_AVAILABLE,) * 3),
        (E.REQUEST_TIMED_OUT, (E.COORDINATOR_NOT_AVAILABLE,) * 3),
        (E.NOT_LEADER_OR_FOLLOWER, (E.NOT_COORDINATOR,) * 3),
        (E.KAFKA_STORAGE_ERROR, (E.NOT_COORDINATOR,) * 3),
        (E.MESSAGE_TOO_LARGE, (E.UNKNOWN_SERVER_ERROR,) * 3),
        (E.RECORD_LIST_TOO_LARGE, (E.UNKNOWN_SERVER_ERROR,) * 3),
        (E.CONCURRENT_TRANSACTIONS, (E.CONCURRENT_TRANSACTIONS,) * 3),
        (E.COORDINATOR_LOAD_IN_PROGRESS, (E.COORDINATOR_LOAD_IN_PROGRESS,) * 3),
        (E.COORDINATOR_NOT_AVAILABLE, (E.COORDINATOR_NOT_AVAILABLE,) * 3),
        (E.NOT_COORDINATOR, (E.NOT_COORDINATOR,) * 3),
        (E.INVALID_PRODUCER_ID_MAPPING, (E.INVALID_PRODUCER_ID_MAPPING,) * 3),
        (E.INVALID_TXN_STATE, (E.INVALID_TXN_STATE,) * 3),
    ],
)
def test_errors_of_the_transaction_coordinator_are_translated_for_the_client(
    scene: Clients, code: ErrorCode, codes: tuple[ErrorCode, ...]
) -> None:
    coordinator = scene.coordinator = Answering(code)
    for version, expected in zip((3, 4, 5), codes, strict=True):
        assert scene.commit_offset_in_transaction((7, 0), 10, version=version) is expected
    assert [request[4] for request in coordinator.requests] == [True, True, False]
    assert scene.partition(GROUP_OFFSETS).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, E.COORDINATOR_NOT_AVAILABLE), (1, E.COORDINATOR_NOT_AVAILABLE), (2, E.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_versions_0_and_1_do_not_know_that_a_coordinator_may_be_loading(
    scene: Clients, version: int, code: ErrorCode
) -> None:
    scene.coordinator = Answering(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert scene.commit_offset_in_transaction((7, 0), 10, version=version) is code


@pytest.mark.parametrize(
    ("enabled", "version", "code"),
    [
        (True, 4, E.COORDINATOR_NOT_AVAILABLE),
        (True, 5, E.COORDINATOR_NOT_AVAILABLE),
        (False, 4, E.NOT_COORDINATOR),
        (False, 5, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_without_the_offsets_topic_offsets_are_refused(
    scene: Clients, enabled: bool, version: int, code: ErrorCode
) -> None:
    scene.broker.config.transaction_partition_verification_enable = enabled
    pair = scene.init()
    scene.delete_topic(GROUP_OFFSETS)
    scene.groups.offsets_topic_deleted()
    assert scene.commit_offset_in_transaction(pair, 10, version=version) is code


def test_a_loading_group_coordinator_answers_load_in_progress(scene: Clients) -> None:
    shard = scene.groups.shards.of_partition(0)
    shard.unload(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert scene.commit_offset_in_transaction(scene.init(), 10) is E.COORDINATOR_LOAD_IN_PROGRESS


def test_without_verification_offsets_of_old_clients_are_accepted_unchecked(scene: Clients) -> None:
    scene.broker.config.transaction_partition_verification_enable = False
    coordinator = scene.coordinator = Answering(E.INVALID_PRODUCER_ID_MAPPING)
    assert scene.commit_offset_in_transaction((7, 0), 10, version=4) is E.NONE
    assert scene.commit_offset_in_transaction((7, 0), 10, version=5) is E.NONE, "its transaction is open now"
    assert coordinator.requests == []


@pytest.mark.parametrize("pair", [(-1, 0), (-1, -1), (7, -1)])
def test_a_commit_without_a_producer_id_is_refused(scene: Clients, pair: Pair) -> None:
    scene.broker.config.transaction_partition_verification_enable = False
    assert scene.commit_offset_in_transaction(pair, 10, version=4) is E.INVALID_PRODUCER_ID_MAPPING
    assert scene.partition(GROUP_OFFSETS).log.log_end_offset == 0


def test_a_zombies_offsets_are_refused(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    following = scene.commit(pair)
    assert scene.commit_offset_in_transaction(pair, 11) is E.INVALID_PRODUCER_EPOCH
    assert scene.commit_offset_in_transaction(following, 12) is E.NONE


def test_offsets_verified_for_a_transaction_that_ended_since_are_refused(scene: Clients) -> None:
    pair = scene.init()
    scene.add_offsets(pair)
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    request = TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=pair[0],
        producer_epoch=pair[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=10)]
            )
        ],
    )
    reply = scene.ask(request, 4)
    scene.abort(pair, version=4)
    coordinator.held.pop()()
    assert reply.outcome().topics[0].partitions[0].error_code == E.INVALID_TXN_STATE.value
    assert scene.committed_offset(require_stable=True) == -1


def test_offsets_of_a_topic_deleted_while_the_coordinator_is_asked_are_unknown(scene: Clients) -> None:
    scene.topic("kept")
    pair = scene.init()
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    offsets = [
        TxnOffsetCommitRequestTopic(
            name=name, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=10)]
        )
        for name in ("t", "kept")
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=ID, group_id=GROUP, producer_id=pair[0], producer_epoch=pair[1], topics=offsets
    )
    reply = scene.ask(request, 5)
    scene.delete_topic("t")
    coordinator.held.pop()()
    answer = answer_of(reply)
    assert {topic.name: ErrorCode(topic.partitions[0].error_code) for topic in answer.topics} == {
        "t": E.UNKNOWN_TOPIC_OR_PARTITION,
        "kept": E.NONE,
    }
    scene.coordinator = scene.transactions
    scene.write_marker(pair, commit=True, topic=GROUP_OFFSETS)
    scene.topic("t")
    assert scene.committed_offset() == -1


def test_offsets_that_cannot_be_written_are_not_pending(scene: Clients) -> None:
    pair = scene.init()
    scene.add_offsets(pair)
    scene.disk.fail(1, Fault.EIO)
    assert scene.commit_offset_in_transaction(pair, 10, version=4) is E.NOT_COORDINATOR
    assert scene.committed_offset(require_stable=True) == -1
    assert scene.commit_offset_in_transaction(pair, 10, version=4) is E.NONE


def test_a_note_that_is_too_long_refuses_its_partition(scene: Clients) -> None:
    assert scene.commit_offset_in_transaction(scene.init(), 10, metadata="x" * 4097) is E.OFFSET_METADATA_TOO_LARGE


# --- The owner of the offsets.


def ask(
    group: GroupScene, *, member: str = "", generation: int = -1, instance: str | None = None, version: int = 5
) -> ErrorCode:
    request = TxnOffsetCommitRequest(
        group_id=GROUP_OF_CORE,
        member_id=member,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=10)]
            )
        ],
    )
    try:
        answer = group.core.commit_transactional_offsets(request, version=version, now_ms=group.now_ms).response
    except KafkaError as refusal:
        return translate(ApiKey.TXN_OFFSET_COMMIT, refusal.code, version)
    assert answer is not None
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_an_unknown_group_is_created_by_a_commit_without_a_generation() -> None:
    group = GroupScene()
    assert ask(group) is E.NONE
    assert ask(group, member="anybody") is E.NONE
    assert ask(group, generation=0) is E.ILLEGAL_GENERATION


def test_version_6_gets_group_id_not_found_for_an_unknown_group() -> None:
    """T8 and T9: earlier versions return another error code (docs/spec/kafka-4.4.md#s5-2)."""
    group = GroupScene()
    assert ask(group, member="anybody", generation=0, version=6) is E.GROUP_ID_NOT_FOUND
    assert ask(group, member="anybody", version=6) is E.NONE


@pytest.mark.parametrize("version", [5, 6])
def test_a_classic_group_refuses_another_generation_alike_at_every_version(version: int) -> None:
    """T6, T7 and T10: the new error codes apply only to groups of the newer protocols (docs/spec/kafka-4.4.md#s5-2)."""
    group = GroupScene()
    (member,) = group.come("a")
    assert ask(group, member=member, generation=2, version=version) is E.ILLEGAL_GENERATION
    assert ask(group, member="stranger", generation=1, version=version) is E.UNKNOWN_MEMBER_ID
    assert ask(group, version=version) is E.NONE


def test_scenario_033_a_group_with_members_accepts_no_membership_but_refuses_a_wrong_one() -> None:
    group = GroupScene()
    (member,) = group.come("a")
    assert group.groups() == {GROUP_OF_CORE: "Stable"}
    assert ask(group) is E.NONE
    assert ask(group, member=member, generation=1) is E.NONE
    assert ask(group, member=member, generation=2) is E.ILLEGAL_GENERATION
    assert ask(group, member=member) is E.ILLEGAL_GENERATION
    assert ask(group, member="stranger", generation=1) is E.UNKNOWN_MEMBER_ID
    assert ask(group, instance="stranger") is E.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_prevent_transactional_commits() -> None:
    group = GroupScene()
    (member,) = group.come("a")
    group.join(client="b")
    assert group.groups() == {GROUP_OF_CORE: "PreparingRebalance"}
    assert ask(group) is E.NONE
    assert ask(group, member=member, generation=1) is E.NONE


def test_a_static_member_may_leave_its_instance_out_but_not_name_anothers() -> None:
    group = GroupScene()
    joined = group.join(instance="one")
    group.advance(0)
    member = joined.answer.member_id
    group.settle([joined.answer])
    assert ask(group, member=member, generation=1) is E.NONE
    assert ask(group, member=member, generation=1, instance="one") is E.NONE
    assert ask(group, member="another", generation=1, instance="one") is E.FENCED_INSTANCE_ID


def test_an_empty_group_does_not_check_member_ids() -> None:
    group = GroupScene()
    (member,) = group.come("a")
    group.leave(member)
    assert group.groups() == {GROUP_OF_CORE: "Empty"}
    assert ask(group, member="stranger", instance="stranger") is E.NONE
    assert ask(group, member=member, generation=1) is E.UNKNOWN_MEMBER_ID


def test_in_a_consumer_group_the_generation_is_the_members_epoch() -> None:
    group = GroupScene(
        records=[
            CoordinatorRecord(ConsumerGroupMetadataKey(group_id=GROUP_OF_CORE), ConsumerGroupMetadataValue(epoch=5)),
            CoordinatorRecord(
                ConsumerGroupMemberMetadataKey(group_id=GROUP_OF_CORE, member_id="m"),
                ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"], classic_member_metadata=None),
            ),
            CoordinatorRecord(
                ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP_OF_CORE, member_id="m"),
                ConsumerGroupCurrentMemberAssignmentValue(member_epoch=5),
            ),
        ]
    )
    assert ask(group) is E.NONE
    assert ask(group, member="m", generation=5) is E.NONE
    assert ask(group, member="m", generation=4) is E.ILLEGAL_GENERATION
    assert ask(group, member="m", generation=6) is E.ILLEGAL_GENERATION
    assert ask(group, member="n", generation=5) is E.UNKNOWN_MEMBER_ID
    # Version 6 has its own error code for a wrong member epoch.
    assert ask(group, member="m", generation=5, version=6) is E.NONE
    assert ask(group, member="m", generation=4, version=6) is E.STALE_MEMBER_EPOCH
    assert ask(group, member="m", generation=6, version=6) is E.STALE_MEMBER_EPOCH
    assert ask(group, member="n", generation=5, version=6) is E.UNKNOWN_MEMBER_ID


# Kafka acknowledged the marker before the group had the new offsets, so the next reader received the previous ones.
@pytest.mark.known_bug(14, "KAFKA-17507")
def test_committed_offsets_can_be_fetched_as_soon_as_the_commit_is_acknowledged(scene: Clients) -> None:
    for offset in (10, 20, 30):
        pair = scene.init()
        scene.commit_offset_in_transaction(pair, offset)
        scene.commit(pair)
        assert scene.committed_offset(require_stable=True) == offset


@pytest.mark.known_bug(14, "KAFKA-17507")
def test_a_loading_group_coordinator_acknowledges_no_marker(scene: Clients) -> None:
    pair = scene.init()
    scene.commit_offset_in_transaction(pair, 10)
    (shard,) = scene.groups.shards
    shard.unload(E.COORDINATOR_LOAD_IN_PROGRESS)
    scene.commit(pair)
    assert scene.transactions.describe(ID).transaction_state == "PrepareCommit"
    again = scene.restarted(killed=True)
    assert again.transactions.describe(ID).transaction_state == "CompleteCommit"
    assert again.committed_offset(require_stable=True) == 10


# In Kafka, the last transaction to end determined the offset, instead of the last one to write it.
@pytest.mark.known_bug(15, "apache/kafka 15183")
@pytest.mark.parametrize("restarts", [True, False])
def test_an_older_pending_offset_does_not_replace_a_newer_one(scene: Clients, restarts: bool) -> None:
    older, newer = scene.init(transactional_id="older"), scene.init(transactional_id="newer")
    scene.commit_offset_in_transaction(older, 10, transactional_id="older")
    scene.commit_offset_in_transaction(newer, 20, transactional_id="newer")
    scene.commit(newer, transactional_id="newer")
    if restarts:
        scene = scene.restarted(killed=True)
    assert scene.committed_offset() == 20
    scene.commit(older, transactional_id="older")
    assert scene.committed_offset(require_stable=True) == 20
    assert scene.restarted(killed=True).committed_offset(require_stable=True) == 20


# In Redpanda, the end of a transaction reached its partitions, but not the group's coordinator.
@pytest.mark.known_bug(36, "redpanda 10669")
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("waits", [None, T0, OFFSETS])
def test_records_and_offsets_of_a_transaction_have_the_same_outcome(
    scene: Clients, commit: bool, waits: tuple[str, int] | None
) -> None:
    """Checks that the records and the offsets have the same outcome, even if the process is killed between the two
    markers."""
    scene.commit_offset(3)
    pair = scene.init()
    scene.produce(pair, 0, b"copied")
    scene.commit_offset_in_transaction(pair, 4)
    if waits is not None:
        scene.markers.refusals[waits] = E.KAFKA_STORAGE_ERROR
    scene.end(pair, commit=commit)
    if waits is not None:
        scene = scene.restarted(killed=True)
    assert scene.read(committed=True) == ([b"copied"] if commit else [])
    assert scene.committed_offset(require_stable=True) == (4 if commit else 3)


@pytest.mark.known_bug(62, "ours")
def test_a_marker_while_offsets_wait_for_the_coordinators_yes_leaves_no_hanging_transaction() -> None:
    scene = Clients(transaction_version=0)
    pair = scene.init()
    coordinator = scene.coordinator = Answering(E.NONE, at_once=False)
    offsets = TxnOffsetCommitRequestTopic(
        name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=10)]
    )
    request = TxnOffsetCommitRequest(
        transactional_id=ID, group_id=GROUP, producer_id=pair[0], producer_epoch=pair[1], topics=[offsets]
    )
    reply = scene.ask(request, 5)
    assert scene.write_marker(pair, commit=False, topic=GROUP_OFFSETS) is E.NONE
    coordinator.held.pop()()
    assert answer_of(reply).topics[0].partitions[0].error_code == E.INVALID_TXN_STATE.value
    log = scene.partition(GROUP_OFFSETS).log
    assert log.last_stable_offset == log.high_watermark
