"""Tests which state the share coordinator stores, when it stores the state, and how it fences leaders
(docs/spec/share-groups.md#s4)."""

import pytest

from odradek.broker.shares.core.records import decode_record, encode_record
from odradek.broker.shares.core.state import (
    SharePartitionKey,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    StateDeletion,
    StateSummary,
    StoredState,
    coordinator_key,
)
from odradek.broker.shares.core.state_core import ShareCoordinatorConfig
from odradek.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from tests.support.share_state_scene import KEY, TOPIC_ID, ShareStateScene

INVALID = ErrorCode.INVALID_REQUEST
ELSEWHERE = SharePartitionKey("g", TOPIC_ID, 7)


def initialized(state_epoch: int = 1, start_offset: int = 0, updates_per_snapshot: int = 500) -> ShareStateScene:
    scene = ShareStateScene(ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot))
    assert scene.initialize(state_epoch, start_offset) is True
    return scene


# --- The records that the share coordinator writes.


def test_an_initialisation_is_a_snapshot_without_batches() -> None:
    scene = initialized(3, start_offset=-1)
    assert scene.records == [ShareSnapshot(KEY, 0, 3, 0, -1, -1, created_ms=1_000, written_ms=1_000)]
    scene.initialize(4, start_offset=7)
    assert scene.records[1:] == [ShareSnapshot(KEY, 1, 4, 0, 7, 0, created_ms=1_000, written_ms=1_000)]


def test_an_initialisation_replaces_the_stored_state() -> None:
    scene = initialized()
    scene.write((0, 9, 2, 1), count=10)
    assert scene.initialize(1, 0) is True  # The epoch and the start offset are the same as before.
    assert scene.read() == StoredState(1, 0, ())


def test_an_initialisation_that_changes_nothing_writes_nothing() -> None:
    scene = initialized()
    assert scene.initialize(1, 0) is True
    assert len(scene.records) == 1


def test_scenario_071_every_so_many_updates_a_snapshot() -> None:
    scene = initialized(updates_per_snapshot=3)
    scene.read(leader_epoch=2)
    for offset in range(4):
        scene.write((offset, offset, 2, 1), count=offset + 1, leader_epoch=2)
    kinds = [(type(record), record.snapshot_epoch) for record in scene.records if not isinstance(record, StateDeletion)]
    assert kinds == [
        (ShareSnapshot, 0),
        (ShareUpdate, 0),
        (ShareUpdate, 0),
        (ShareUpdate, 0),
        (ShareSnapshot, 1),
        (ShareUpdate, 1),
    ]
    snapshot = scene.records[4]
    assert isinstance(snapshot, ShareSnapshot)
    assert (snapshot.batches, snapshot.leader_epoch, snapshot.delivery_complete_count) == (
        (StateBatch(0, 2, 2, 1),),
        2,
        3,
    )


def test_scenario_072_a_reload_finds_the_same() -> None:
    scene = initialized(updates_per_snapshot=2)
    scene.write((0, 9, 0, 1))
    scene.write((3, 5, 2, 2), count=3)
    scene.write((0, 0, 4, 3), start_offset=1, count=3)
    before = scene.read()
    summary = scene.core.summarize(KEY)
    scene.restart()
    assert scene.read() == before
    assert scene.core.summarize(KEY) == summary


def test_an_update_without_a_snapshot_before_it_becomes_the_state() -> None:
    scene = initialized()
    scene.write((0, 9, 2, 1), start_offset=3)
    del scene.log[0]
    scene.restart()
    assert scene.read() == StoredState(0, 3, (StateBatch(3, 9, 2, 1),))


def test_a_write_without_a_start_offset_keeps_the_stored_one() -> None:
    scene = initialized(start_offset=4)
    scene.write((4, 5, 2, 1), start_offset=-1)
    assert scene.read() == StoredState(1, 4, (StateBatch(4, 5, 2, 1),))


def test_the_start_offset_does_not_go_back_nor_the_count_at_the_same_offset() -> None:
    scene = initialized(start_offset=10)
    scene.write(start_offset=10, count=3)
    scene.write(start_offset=5, count=4)
    scene.write(start_offset=10, count=1)
    assert scene.core.summarize(KEY) == StateSummary(1, 0, 10, 3)
    scene.write(start_offset=12, count=1)
    assert scene.core.summarize(KEY) == StateSummary(1, 0, 12, 1)


def test_a_deletion_is_a_tombstone() -> None:
    scene = initialized()
    assert scene.delete() is True
    assert scene.records[1:] == [StateDeletion(KEY)]
    scene.restart()
    assert scene.write((0, 9, 2, 1)) is INVALID


# --- The leaders that may write.


@pytest.mark.parametrize(
    ("state_epoch", "answer"), [(2, ErrorCode.FENCED_STATE_EPOCH), (3, True), (4, True), (-1, True)]
)
def test_initialising_with_an_older_state_epoch_is_fenced(state_epoch: int, answer: object) -> None:
    assert initialized(3).initialize(state_epoch, 5) is answer


def test_scenario_069_a_leader_before_the_last_that_read_is_fenced() -> None:
    scene = initialized()
    scene.read(leader_epoch=5)
    assert scene.write((0, 9, 2, 1), leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.read(leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.write((0, 9, 2, 1), leader_epoch=5) is True


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reinitialised_state_still_fences_older_leader_epochs(*, restarts: bool) -> None:
    scene = initialized()
    scene.read(leader_epoch=5)
    scene.initialize(2, 7)
    if restarts:
        scene.restart()
    assert scene.read(leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.write((7, 9, 2, 1), leader_epoch=4, state_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.read(leader_epoch=5) == StoredState(2, 7, ())
    assert scene.core.summarize(KEY).leader_epoch == 0


def test_scenario_070_a_leader_that_missed_a_reset_is_fenced() -> None:
    scene = initialized(3)
    scene.initialize(4, 7)
    assert scene.write((0, 9, 2, 1), state_epoch=3) is ErrorCode.FENCED_STATE_EPOCH
    assert scene.write((7, 9, 2, 1), state_epoch=5, start_offset=7) is True
    assert scene.core.summarize(KEY).state_epoch == 4


def test_a_write_with_a_higher_leader_epoch_does_not_raise_it() -> None:
    scene = initialized()
    scene.write((0, 9, 2, 1), leader_epoch=8)
    assert scene.write((0, 9, 2, 1), leader_epoch=7) is True


def test_negative_epochs_are_not_compared() -> None:
    scene = initialized(3)
    scene.read(leader_epoch=5)
    assert scene.write((0, 9, 2, 1), state_epoch=-1, leader_epoch=-1) is True


def test_a_read_is_written_only_if_it_raises_the_leader_epoch() -> None:
    scene = initialized()
    scene.read(leader_epoch=0)
    assert len(scene.records) == 1
    scene.read(leader_epoch=1)
    scene.read(leader_epoch=1)
    assert scene.records[1:] == [ShareUpdate(KEY, 0, 1, 0, 0)]


def test_scenario_075_nothing_is_read_or_written_before_it_was_initialised() -> None:
    scene = ShareStateScene()
    assert scene.write((0, 9, 2, 1)) is INVALID
    assert scene.read() is INVALID
    assert scene.write((0, 9, 2, 1), key=ELSEWHERE) is INVALID


def test_scenario_076_missing_state_can_be_deleted_and_summarised() -> None:
    scene = ShareStateScene()
    assert scene.delete() is True
    assert scene.records == []
    assert scene.core.summarize(KEY) == StateSummary(0, 0, -1, -1)
    for refused in (scene.delete(ELSEWHERE), scene.initialize(key=ELSEWHERE)):
        assert refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refusal:
        scene.core.summarize(ELSEWHERE)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_states_are_stored_as_they_come() -> None:
    scene = initialized()
    scene.write((0, 9, 77, 1))
    assert scene.read() == StoredState(1, 0, (StateBatch(0, 9, 77, 1),))


# --- Events that no request causes.


def test_the_state_of_a_deleted_topic_is_deleted() -> None:
    scene = initialized()
    assert scene.turn(lambda core: core.forget_missing_topics(lambda topic_id: topic_id != TOPIC_ID)) == 1
    assert scene.records[1:] == [StateDeletion(KEY)]


def test_old_state_is_written_again_as_a_snapshot_so_that_the_log_can_shrink() -> None:
    other = KEY._replace(partition=1)
    scene = ShareStateScene()
    scene.initialize()
    scene.initialize(key=other)
    scene.now_ms += 300_000
    for offset in range(5):
        scene.write((offset, offset, 2, 1), count=offset + 1, key=other)
    assert scene.core.needed_from(len(scene.log)) == 0
    assert scene.turn(lambda core: core.snapshot_cold(len(scene.log), scene.now_ms)) == 1
    snapshot = scene.records[-1]
    assert isinstance(snapshot, ShareSnapshot)
    assert (snapshot.key, snapshot.snapshot_epoch, snapshot.created_ms) == (KEY, 1, 1_000)
    assert scene.core.needed_from(len(scene.log)) == 1


def test_a_log_of_needed_snapshots_is_left_alone() -> None:
    scene = initialized()
    scene.now_ms += 1_000_000
    assert scene.turn(lambda core: core.snapshot_cold(len(scene.log), scene.now_ms)) == 0


def test_without_entries_nothing_of_the_log_is_needed() -> None:
    scene = initialized()
    scene.delete()
    assert scene.core.needed_from(len(scene.log)) == 2


# --- The encoding of the records.


def test_scenario_078_unknown_tags_are_passed_over() -> None:
    key, value = encode_record(ShareUpdate(KEY, 0, 0, 5, -1, (StateBatch(5, 6, 2, 1),)))
    assert value is not None
    assert value[-1] == 0  # The record has no tagged fields.
    tagged = value[:-1] + bytes([1, 0xA0, 0x4E, 2, 0xAB, 0xCD])
    assert decode_record(key, tagged) == ShareUpdate(KEY, 0, 0, 5, -1, (StateBatch(5, 6, 2, 1),))


def test_records_of_later_types_are_passed_over_and_damaged_ones_are_not() -> None:
    assert decode_record(b"\x00\x09abc", b"") is None
    key, value = encode_record(ShareSnapshot(KEY, 0, 1, 0, 0, 0, 1, 1))
    assert value is not None
    for damaged in ((None, value), (b"\x00", value), (key, b"\x00"), (key, b"\x00\x05" + value[2:]), (key, value[:-3])):
        with pytest.raises(MalformedMessage):
            decode_record(*damaged)


def test_scenario_077_group_ids_with_colons_have_keys_of_their_own() -> None:
    assert coordinator_key(SharePartitionKey("a:b", TOPIC_ID, 0)) == "a:b:AAECAwQFBgcICQoLDA0ODw:0"
