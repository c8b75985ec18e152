"""Tests a share group's dead-letter queue. The queue receives copies of records that members reject and of records
delivered too often (docs/spec/dead-letter-queues.md)."""

import logging
from typing import Any

import pytest

from odradek.broker.configuration.resources import ConfigResourceType
from odradek.broker.shares.core.dead_letters import QueueRules
from odradek.broker.shares.core.in_flight import StateWrite
from odradek.broker.shares.core.state import SharePartitionKey, StateBatch
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.batch_header import batches
from odradek.protocol.compression import Compression
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log_config import LogConfig
from tests.support.dead_letter_scene import LOCK_MS, QUEUE, REJECTED, TOO_MANY, Copy, DeadLetterScene
from tests.support.share_broker import GROUP

GAP, ACCEPT, RELEASE, REJECT = range(4)
NONE = ErrorCode.NONE


@pytest.fixture
def scene() -> DeadLetterScene:
    return DeadLetterScene()


def with_topic(scene: DeadLetterScene, *batches_of: int) -> bytes:
    return scene.shared_topic("T", *batches_of)


def test_scenario_001_rejected_records_are_archiving_then_copied_then_archived(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    assert member.acquire(topic) == [(0, 9, 1)]
    assert member.ack_code(topic, (0, 3, REJECT)) is NONE
    assert scene.copies() == [Copy("T", 0, offset, GROUP, (1, REJECTED), None, None) for offset in range(4)]
    assert scene.states() == [[(0, 3, 3, 1)], [(0, 3, 4, 1)]]


def test_the_member_is_answered_before_anything_is_in_the_queue(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    ends: list[int] = []
    scene.persister.held = []
    reply = member.begin_ack({topic: [(0, 3, REJECT)]})
    assert not reply.is_done
    (write,) = scene.persister.held
    scene.persister.held = None
    reply.when_done(lambda _: ends.append(scene.partition(QUEUE).log.log_end_offset))
    write()
    assert ends == [0]
    scene.settle()
    assert scene.copied() == [0, 1, 2, 3]


def test_scenario_002_the_start_offset_passes_them_once_they_are_archived(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 3, REJECT))
    assert scene.stored(topic).start_offset == 4
    assert scene.stored(topic).delivery_complete_count == 0


def second_delivery(scene: DeadLetterScene, topic: bytes, count: int = 10) -> list[tuple[int, int, int]]:
    """Delivers all records, releases them, and delivers them for the second and last time. Returns the acquired
    ranges."""
    member = scene.member("A")
    assert member.acquire(topic) == [(0, count - 1, 1)]
    assert member.ack_code(topic, (0, count - 1, RELEASE)) is NONE
    return member.acquire()


def test_scenario_003_a_record_released_at_the_delivery_limit_is_a_dead_letter(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 9, RELEASE))
    assert member.acquire() == [(0, 9, 2)]
    assert member.ack_code(topic, (0, 4, RELEASE), (5, 9, ACCEPT)) is NONE
    assert [each.told for each in scene.copies()] == [(2, TOO_MANY)] * 5
    assert scene.states()[1:] == [[(0, 4, 3, 2), (5, 9, 2, 2)], [(0, 4, 4, 2)]]
    assert member.acquire() == []


def test_scenario_004_a_record_whose_last_lock_expires_is_a_dead_letter(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 3)
    assert second_delivery(scene, topic, 3) == [(0, 2, 2)]
    scene.sleep(LOCK_MS)
    assert scene.states()[1:] == [[(0, 2, 3, 2)], [(0, 2, 4, 2)]]
    assert [each.told for each in scene.copies()] == [(2, TOO_MANY)] * 3


def test_scenario_005_a_record_whose_member_loses_its_connection_is_a_dead_letter(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 3)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 2, RELEASE))
    assert member.acquire() == [(0, 2, 2)]
    member.disconnect()
    assert scene.states()[1:] == [[(0, 2, 3, 2)], [(0, 2, 4, 2)]]
    assert scene.copied() == [0, 1, 2]
    assert scene.stored_batches(topic) == [(0, 2, 4, 2)]


def test_scenario_006_key_and_value_are_copied_where_the_group_asks_but_not_headers(scene: DeadLetterScene) -> None:
    scene.copy_whole()
    topic = with_topic(scene)
    scene.produce_records("T", b"one", b"two", b"three", key=b"k")
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 2, REJECT))
    assert [(each.key, each.value) for each in scene.copies()] == [(b"k", b"one"), (b"k", b"two"), (b"k", b"three")]
    assert scene.batch_sizes() == [3]


def reject_two(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    assert member.ack_code(topic, (0, 1, REJECT)) is NONE
    assert scene.states() == [[(0, 1, 3, 1)], [(0, 1, 4, 1)]]


def uncopied(scene: DeadLetterScene) -> int:
    return scene.dead_letters.counts[GROUP].uncopied


def test_scenario_007_without_a_topic_and_without_its_creation_they_are_archived_uncopied() -> None:
    scene = DeadLetterScene(has_queue=False)
    reject_two(scene)
    assert QUEUE not in scene.image.topics
    assert uncopied(scene) == 2


def test_scenario_008_records_are_archived_uncopied_if_the_topic_is_not_marked() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(is_marked=False)
    reject_two(scene)
    assert scene.copied() == []
    assert uncopied(scene) == 2


def test_scenario_009_records_are_archived_uncopied_if_the_topic_lacks_the_prefix(scene: DeadLetterScene) -> None:
    scene.queue("other.a")
    scene.set_group(errors_deadletterqueue_topic_name="other.a")
    reject_two(scene)
    assert scene.copied("other.a") == []


def test_scenario_010_an_empty_prefix_is_no_rule(scene: DeadLetterScene) -> None:
    scene.queue("zz")
    scene.queue_rules = QueueRules(creates_topics=False, prefix="")
    scene.set_group(errors_deadletterqueue_topic_name="zz")
    reject_two(scene)
    assert scene.copied("zz") == [0, 1]


def test_scenario_011_a_missing_topic_is_created_where_that_is_allowed() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    scene.queue_partitions = 2
    topic = scene.shared_topic("T", partition_count=3)
    members = []
    for index in range(3):
        scene.produce("T", 2, index=index)
        member = scene.member(f"M{index}")
        member.acquire(topic, index=index)
        members.append(member)
    for index, member in enumerate(members):
        member.ack_code(topic, (0, 1, REJECT), index=index)
    assert [(each.partition, each.offset) for each in scene.copies(index=0)] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert [(each.partition, each.offset) for each in scene.copies(index=1)] == [(1, 0), (1, 1)]
    assert scene.image.topic_configs(QUEUE) == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_scenario_012_and_029_a_topic_that_cannot_be_created_is_not_tried_again(code: ErrorCode) -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    scene.create_refusals.append(KafkaError(code))
    reject_two(scene)
    assert QUEUE not in scene.image.topics


def test_a_creation_that_exceeds_the_quota_is_retried() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    scene.create_refusals += [KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)] * 2
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 1, REJECT))
    assert scene.states() == [[(0, 1, 3, 1)]]
    scene.sleep(1_000)
    scene.sleep(2_000)
    assert scene.copied() == [0, 1]
    assert scene.states()[1:] == [[(0, 1, 4, 1)]]


def test_scenario_013_a_compacted_topic_takes_no_copy_without_a_key() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(cleanup_policy=frozenset({"compact"}))
    reject_two(scene)
    assert scene.copied() == []
    assert scene.dead_letters.counts[GROUP].failed_writes == 1


def test_scenario_014_copies_are_cut_into_batches_that_the_topic_takes() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(max_message_bytes=500)
    scene.copy_whole()
    topic = with_topic(scene)
    scene.produce_records("T", *[b"v" * 100] * 6)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 5, REJECT))
    assert scene.batch_sizes() == [1] * 6
    assert scene.copied() == [0, 1, 2, 3, 4, 5]


def test_scenario_015_a_record_that_is_too_large_goes_without_key_and_value() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(max_message_bytes=500)
    scene.copy_whole()
    topic = with_topic(scene)
    scene.produce_records("T", b"a" * 100, b"b" * 600, b"c" * 100)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 2, REJECT))
    assert [each.value for each in scene.copies()] == [b"a" * 100, None, b"c" * 100]


def test_scenario_016_the_queue_may_be_the_topic_itself_and_its_copies_are_delivered(scene: DeadLetterScene) -> None:
    scene.queue_rules = QueueRules(creates_topics=False, prefix="")
    scene.set_group(errors_deadletterqueue_topic_name="T")
    topic = with_topic(scene, 2)
    scene.mark("T")
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 1, REJECT))
    assert member.acquire() == [(2, 3, 1)]
    assert [Copy.of(each).offset for each in scene.records("T", first_offset=2)[-2:]] == [0, 1]


def test_scenario_017_each_record_of_an_acknowledgement_has_its_own_fate(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 6)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 5, [GAP, REJECT, ACCEPT, RELEASE, REJECT, GAP]))
    assert scene.copied() == [1, 4]
    first = [(0, 0, 4, 1), (1, 1, 3, 1), (2, 2, 2, 1), (3, 3, 0, 1), (4, 4, 3, 1), (5, 5, 4, 1)]
    assert scene.states() == [first, [(1, 1, 4, 1), (4, 4, 4, 1)]]


def test_scenario_018_one_replica_is_all_that_a_topic_can_ask_for() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue()
    scene.image.configs[ConfigResourceType.TOPIC, QUEUE]["min.insync.replicas"] = "2"
    reject_two(scene)
    assert scene.copied() == [0, 1]


def test_scenario_019_records_below_a_raised_log_start_that_are_still_held_are_dead_letters(
    scene: DeadLetterScene,
) -> None:
    topic = with_topic(scene, 4, 4)
    member = scene.member("A")
    assert member.acquire(topic, max_records=4) == [(0, 3, 1)]
    scene.partition("T").log.delete_records_before(4)
    assert member.ack_code(topic, (0, 3, REJECT)) is NONE
    assert scene.copied() == [0, 1, 2, 3]


def test_scenario_020_no_copy_has_key_or_value_if_the_first_record_is_deleted(scene: DeadLetterScene) -> None:
    scene.copy_whole()
    topic = with_topic(scene, 4, 4)
    member = scene.member("A")
    assert member.acquire(topic, max_records=4) == [(0, 3, 1)]
    scene.partition("T").log.delete_records_before(2)
    member.ack_code(topic, (0, 3, REJECT))
    assert [(each.offset, each.value) for each in scene.copies()] == [(offset, None) for offset in range(4)]


def archiving_when_loaded(scene: DeadLetterScene) -> bytes:
    topic = with_topic(scene, 6)
    stored = [StateBatch(0, 1, 3, 1), StateBatch(2, 3, 3, 2), StateBatch(4, 5, 0, 1)]
    written = scene.persister.write(SharePartitionKey(GROUP, topic, 0), 1, 0, StateWrite(0, 0, stored))
    scene.settle()
    assert written.outcome()
    return topic


def test_scenario_021_records_stored_as_archiving_are_copied_when_the_share_partition_is_loaded(
    scene: DeadLetterScene,
) -> None:
    topic = archiving_when_loaded(scene)
    assert scene.member("A").acquire(topic) == [(4, 5, 2)]
    assert [(each.offset, each.told) for each in scene.copies()] == [
        *((offset, (1, REJECTED)) for offset in (0, 1)),
        *((offset, (2, TOO_MANY)) for offset in (2, 3)),
    ]
    assert scene.states()[1:] == [[(0, 1, 4, 1), (2, 3, 4, 2)]]
    assert scene.stored(topic).start_offset == 4


def test_scenario_022_loaded_records_are_archived_uncopied_if_the_group_names_no_topic_any_more(
    scene: DeadLetterScene,
) -> None:
    topic = archiving_when_loaded(scene)
    scene.set_group(errors_deadletterqueue_topic_name="")
    assert scene.member("A").acquire(topic) == [(4, 5, 2)]
    assert scene.copied() == []
    assert scene.states()[1:] == [[(0, 1, 4, 1), (2, 3, 4, 2)]]


def test_scenario_023_after_a_crash_between_the_writes_the_first_fetch_copies_the_records(
    scene: DeadLetterScene,
) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    scene.dead_letters.stop()  # From here on, nothing is copied, as if the broker had been killed.
    assert member.ack_code(topic, (0, 1, REJECT)) is NONE
    scene.restart_shares()
    scene.settle()
    assert scene.copied() == []
    assert scene.stored_batches(topic) == [(0, 1, 3, 1)]
    assert scene.member("B").acquire(topic) == [(2, 9, 1)]
    assert scene.copied() == [0, 1]
    assert scene.stored(topic).start_offset == 2


def test_scenario_024_the_topic_decides_about_timestamps_and_compression() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(compression_type="zstd", message_timestamp_type="LogAppendTime")
    reject_two(scene)
    data = b"".join(map(bytes, scene.partition(QUEUE).log.reader.read_cold(0, max_bytes=1 << 20).chunks))
    ((_, header),) = list(batches(data))
    assert (header.attributes, header.producer_id) == (12, -1)


def test_scenario_025_a_topic_that_was_deleted_is_created_again() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 0, REJECT))
    scene.delete_topic(QUEUE)
    member.ack_code(topic, (1, 1, REJECT))
    assert scene.copied() == [1]


def test_scenario_026_at_share_version_1_a_rejected_record_is_archived_at_once(scene: DeadLetterScene) -> None:
    scene.set_level("share.version", 1)
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 1, REJECT))
    assert scene.states() == [[(0, 1, 4, 1)]]
    assert scene.copied() == []
    scene.set_level("share.version", 2)
    member.ack_code(topic, (2, 2, REJECT))
    assert scene.copied() == [2]


def test_scenario_028_copies_of_two_batches_are_in_the_order_of_their_offsets(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 3, 3)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 0, REJECT), (1, 4, [REJECT] * 4), (5, 5, REJECT))
    assert scene.copied() == [0, 1, 2, 3, 4, 5]


def test_records_that_are_rejected_in_another_order_keep_their_values(scene: DeadLetterScene) -> None:
    """Checks that copies keep their values if members reject two other batches while the first records are being
    copied. The two batches are then copied together."""
    scene.copy_whole()
    topic = with_topic(scene)
    values = [b"%d" % number for number in range(6)]
    for at in (0, 2, 4):
        scene.produce_records("T", *values[at : at + 2])
    members = [scene.member(name) for name in "ABC"]
    for number, member in enumerate(members):
        assert member.acquire(topic, max_records=2) == [(2 * number, 2 * number + 1, 1)]
    held: list[Any] = []
    scene.persister.held = held
    for number in (2, 1, 0):
        members[number].begin_ack({topic: [(2 * number, 2 * number + 1, REJECT)]})
    scene.persister.held = None
    for write in held:
        write()
    scene.settle()
    assert [(each.offset, each.value) for each in scene.copies()] == [(at, values[at]) for at in (4, 5, 2, 3, 0, 1)]


def test_scenario_030_a_topic_in_which_not_even_the_headers_fit_gets_no_copy() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.queue(max_message_bytes=100)
    reject_two(scene)
    assert scene.copied() == []
    assert scene.dead_letters.counts[GROUP].failed_writes == 1


def test_scenario_031_the_topic_setting_of_the_group_is_read_for_each_event(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    scene.set_group(errors_deadletterqueue_topic_name="")
    member.ack_code(topic, (0, 0, REJECT))
    scene.set_group(errors_deadletterqueue_topic_name=QUEUE)
    member.ack_code(topic, (1, 1, REJECT))
    assert scene.states() == [[(0, 0, 4, 1)], [(1, 1, 3, 1)], [(1, 1, 4, 1)]]
    assert scene.copied() == [1]


def test_scenario_032_records_below_a_raised_log_start_are_no_dead_letters(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 4, 4)
    member = scene.member("A")
    member.acquire(topic, max_records=4)
    member.ack_code(topic, (0, 3, RELEASE))
    scene.partition("T").log.delete_records_before(4)
    member.acquire()
    assert member.acquire() == [(4, 7, 1)]
    assert scene.copied() == []


def test_scenario_027_the_broker_writes_whatever_rights_others_have_on_the_topic(scene: DeadLetterScene) -> None:
    scene.deny(Operation.WRITE, ResourceType.TOPIC, QUEUE)
    reject_two(scene)
    assert scene.copied() == [0, 1]


def test_scenario_033_records_of_an_aborted_transaction_are_no_dead_letters(scene: DeadLetterScene) -> None:
    scene.set_group(share_isolation_level="read_committed")
    topic = with_topic(scene)
    scene.transactional(3, commit=False)
    scene.produce("T", 1)
    assert scene.member("A").acquire(topic) == [(3, 4, 1)]
    assert scene.copied() == []


# These tests go beyond the scenarios.


def test_an_acknowledgement_of_a_record_on_its_way_to_the_queue_is_refused() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    scene.create_refusals += [KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 1, REJECT))
    assert member.ack_code(topic, (0, 1, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert member.acquire() == []
    assert scene.stored(topic).start_offset == 0
    scene.sleep(1_000)
    assert scene.copied() == [0, 1]


def test_a_write_that_is_refused_leaves_the_records_with_their_member_and_copies_nothing(
    scene: DeadLetterScene,
) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    scene.persister.refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert member.ack_code(topic, (0, 1, REJECT)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.copied() == []
    assert member.ack_code(topic, (0, 1, ACCEPT)) is NONE


def test_a_second_write_that_fails_leaves_them_archived_in_memory(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    scene.persister.held = []
    reply = member.begin_ack({topic: [(0, 1, REJECT)]})
    first = scene.persister.held.pop()
    first()
    scene.settle()
    assert reply.is_done
    scene.persister.refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    second, scene.persister.held = scene.persister.held.pop(), None
    second()
    scene.settle()
    member.epoch += 1
    assert member.ack_code(topic, (2, 2, ACCEPT)) is NONE
    assert scene.stored(topic).start_offset == 2
    assert scene.copied() == [0, 1]


def test_a_reloaded_share_partition_copies_nothing_a_second_time() -> None:
    scene = DeadLetterScene(has_queue=False)
    scene.allow_creation()
    scene.create_refusals += [KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 1, REJECT))
    member.disconnect()  # This was the last member, so the group's share partitions are unloaded.
    assert scene.member("B").acquire(topic) == [(2, 9, 2)]
    scene.sleep(1_000)
    assert scene.copied() == [0, 1]
    assert scene.stored(topic).start_offset == 2


def test_the_copy_is_synced_before_archived_is_stored_where_the_state_is(scene: DeadLetterScene) -> None:
    scene.syncs_state = True
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    synced: list[int] = []
    write = scene.persister.write

    def watched(*args: object, **how: object) -> object:
        synced.append(scene.partition(QUEUE).log.synced_offset)
        return write(*args, **how)  # type: ignore[arg-type]

    scene.persister.write = watched  # type: ignore[method-assign,assignment]
    member.ack_code(topic, (0, 1, REJECT))
    assert synced == [0, 2]


def test_a_failure_is_logged_once_a_minute_with_the_number_of_records(
    scene: DeadLetterScene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "odradek.shares")
    scene.set_group(errors_deadletterqueue_topic_name="dlq.missing")
    topic = with_topic(scene, 10)
    member = scene.member("A")
    member.acquire(topic)
    for offset in range(3):
        member.ack_code(topic, (offset, offset, REJECT))
    (message,) = [each.getMessage() for each in caplog.records]
    assert message.startswith("1 records of the share group 'g' were archived without a copy")
    assert "there is no topic 'dlq.missing'" in message
    scene.sleep(60_000)
    member.acquire()
    member.ack_code(topic, (3, 3, REJECT))
    assert [each.getMessage()[:9] for each in caplog.records] == ["1 records", "3 records"]


def test_a_batch_that_cannot_be_read_is_copied_without_key_and_value(scene: DeadLetterScene) -> None:
    scene.copy_whole()
    topic = with_topic(scene)
    scene.produce_records("T", b"one", b"two")
    scene.produce_records("T", b"three")
    member = scene.member("A")
    member.acquire(topic)
    file = scene.disk.open(scene.partition("T").log.segments[0].path(), create=False)
    file.write_at([b"\xff"], 70)
    member.ack_code(topic, (0, 2, REJECT))
    assert [each.value for each in scene.copies()] == [None, None, b"three"]


def test_a_record_too_large_when_decompressed_is_copied_without_key_and_value(scene: DeadLetterScene) -> None:
    """L58: an administrator lowers the limit after the records have been written."""
    scene.copy_whole()
    topic = with_topic(scene)
    scene.produce_records("T", b"one", bytes(2_000), b"three", compression=Compression.GZIP)
    scene.partition("T").configure(LogConfig(max_decompressed_message_bytes=1_000))
    member = scene.member("A")
    member.acquire(topic)
    member.ack_code(topic, (0, 2, REJECT))
    assert [each.value for each in scene.copies()] == [b"one", None, None]


def test_many_rejected_records_are_copied_in_many_turns(scene: DeadLetterScene) -> None:
    topic = with_topic(scene, 1_000)
    member = scene.member("A")
    member.acquire(topic, max_records=1_000)
    reply = member.begin_ack({topic: [(0, 999, REJECT)]})
    assert reply.is_done
    assert scene.copied() == list(range(1_000))
    assert max(scene.batch_sizes()) <= 100
    assert scene.states() == [[(0, 999, 3, 1)], [(0, 999, 4, 1)]]
