"""Tests that lowering a feature from a level that Kafka does not support leaves a metadata snapshot that Kafka can
start from.

tests/conformance/test_kafka_after_share_transactions.py opens directories with such a snapshot in Apache Kafka.
"""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from odradek.broker.metadata.files import FORMATTED, is_complete, records_in
from odradek.broker.metadata.lowered_levels import snapshot_for_kafka
from odradek.broker.metadata.records import Decision, encode_record
from odradek.protocol.batch_header import batches
from odradek.protocol.control_records import ControlType, control_type
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.end_transaction_record import EndTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.records import NewRecord, build_batch, records_of
from odradek.protocol.struct import Message
from tests.support.fake_disk import FakeDisk, Fault, ProcessCrashed
from tests.support.metadata import DATA, FEATURES, Running, topic_records

METADATA = f"{DATA}/__cluster_metadata-0"
A_FENCING = bytes((1, 7, 0)) + b"whatever a newer Kafka says of it"
A_NO_OP = bytes((1, 20, 0, 0))


def share_version(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="share.version", feature_level=level)


def set_level(running: Running, level: int, feature: str = "share.version") -> None:
    record = FeatureLevelRecord(name=feature, feature_level=level)
    running.metadata.submit(lambda image: Decision(None, (record,))).outcome()


def snapshots(disk: FakeDisk) -> list[str]:
    """Returns the names of the metadata log's snapshots, except the one created by formatting."""
    names = (name for name in disk.list_directory(METADATA) if name.endswith(".checkpoint"))
    return sorted(name for name in names if name != FORMATTED)


def raised() -> Running:
    """Returns a broker at share.version 2, with one topic created before the upgrade and one created after it."""
    running = Running(FakeDisk())
    running.create("before")
    set_level(running, 2)
    running.create("after")
    return running


def disk_of(running: Running) -> FakeDisk:
    assert isinstance(running.disk, FakeDisk)
    return running.disk


def test_a_raised_level_leaves_no_snapshot() -> None:
    assert snapshots(disk_of(raised())) == []


def test_a_lowered_level_leaves_a_snapshot_that_names_no_other_level() -> None:
    running = raised()
    set_level(running, 1)
    (name,) = snapshots(disk_of(running))
    content = disk_of(running).read_bytes(f"{METADATA}/{name}")
    assert is_complete(content)
    assert name == f"{running.metadata.image.next_offset:020}-{running.metadata.leader_epoch:010}.checkpoint"
    levels = {each.name: each.feature_level for each in records_in(content) if isinstance(each, FeatureLevelRecord)}
    assert levels == FEATURES | {"share.version": 1}
    assert sum(isinstance(each, FeatureLevelRecord) for each in records_in(content)) == len(FEATURES)


def test_a_restart_from_the_snapshot_finds_the_same() -> None:
    running = raised()
    set_level(running, 1)
    running.create("last")
    running.stop()
    again = Running(disk_of(running).after_kill())
    assert again.metadata.image.features == FEATURES | {"share.version": 1}
    assert again.metadata.image.topics == running.metadata.image.topics
    assert len(snapshots(disk_of(again))) == 1


def test_other_features_leave_no_snapshot() -> None:
    running = Running(FakeDisk())
    set_level(running, 1, "transaction.version")
    set_level(running, 0, "group.version")
    assert snapshots(disk_of(running)) == []


def test_each_lowered_feature_leaves_its_own_snapshot() -> None:
    """Checks that each lowered level leaves its own snapshot. Kafka 4.4.0 supports share.version 2, so it can start
    from the first snapshot. Kafka 4.3.1 needs the second one."""
    running = raised()
    set_level(running, 1, "odradek.share.transactions")
    assert snapshots(disk_of(running)) == []
    set_level(running, 0, "odradek.share.transactions")
    (first,) = snapshots(disk_of(running))
    content = disk_of(running).read_bytes(f"{METADATA}/{first}")
    levels = {each.name: each.feature_level for each in records_in(content) if isinstance(each, FeatureLevelRecord)}
    assert levels.pop("odradek.share.transactions", 0) == 0
    assert levels == FEATURES
    running.stop()
    again = Running(disk_of(running).after_kill())
    assert snapshots(disk_of(again)) == [first], "nothing is left to be told at a start"
    set_level(again, 1)
    assert len(snapshots(disk_of(again))) == 2


def test_a_snapshot_that_cannot_be_written_is_written_at_the_next_start() -> None:
    running = raised()
    disk_of(running).fail(3, Fault.ENOSPC)  # The third call writes the snapshot, after an append and its sync.
    set_level(running, 1)
    assert snapshots(disk_of(running)) == []
    running.stop()
    again = Running(disk_of(running).after_kill())
    assert len(snapshots(disk_of(again))) == 1
    assert again.metadata.image.features == FEATURES | {"share.version": 1}


@pytest.mark.parametrize("call", range(1, 8))
def test_a_crash_at_any_call_to_the_disk_leaves_level_2_or_a_snapshot_at_the_next_start(call: int) -> None:
    running = raised()
    disk_of(running).crash_before(call)
    with suppress(ProcessCrashed):
        set_level(running, 1)
    for state in disk_of(running).after_power_failure(seed=call):
        again = Running(state.disk)
        level = again.metadata.image.features["share.version"]
        assert (level, len(snapshots(state.disk))) in ((2, 0), (1, 1))
        assert set(again.metadata.image.topics) == {"before", "after"}


@pytest.mark.parametrize("call", range(1, 8))
def test_a_crash_while_our_own_feature_is_lowered_leaves_level_1_or_a_snapshot_at_the_next_start(call: int) -> None:
    own = "odradek.share.transactions"
    running = raised()
    set_level(running, 1, own)
    disk_of(running).crash_before(call)
    with suppress(ProcessCrashed):
        set_level(running, 0, own)
    for state in disk_of(running).after_power_failure(seed=call):
        again = Running(state.disk)
        features = again.metadata.image.features
        assert (features.get(own, 0), len(snapshots(state.disk))) in ((1, 0), (0, 1))
        assert features["share.version"] == 2


# The contents of the snapshot.


def a_log(*batches_of_values: Sequence[Message | bytes]) -> bytes:
    data, offset = bytearray(), 0
    for values in batches_of_values:
        encoded = [each if isinstance(each, bytes) else encode_record(each, 30) for each in values]
        data += build_batch([NewRecord(None, value, 7) for value in encoded], base_offset=offset, leader_epoch=3)
        offset += len(encoded)
    return bytes(data)


def repeated(content: bytes) -> list[bytes]:
    return [
        bytes(record.value or b"")
        for position, header in batches(content)
        if not header.is_control
        for record in records_of(content, position)
    ]


def encoded(*records: Message) -> list[bytes]:
    return [encode_record(record, 30) for record in records]


def test_records_without_meaning_here_are_repeated_byte_for_byte() -> None:
    topic = topic_records("t")
    written = snapshot_for_kafka([a_log([share_version(2)], [A_FENCING, *topic, A_NO_OP])])
    assert repeated(written.content) == [*encoded(share_version(2)), A_FENCING, *encoded(*topic)]
    assert written.name == "00000000000000000005-0000000003.checkpoint"


def test_snapshots_drop_transaction_markers_and_records_of_aborted_transactions() -> None:
    kept, lost = topic_records("kept"), topic_records("lost")
    log = a_log(
        [share_version(1), BeginTransactionRecord(), *kept, EndTransactionRecord()],
        [BeginTransactionRecord(), *lost, share_version(2), AbortTransactionRecord()],
    )
    assert repeated(snapshot_for_kafka([log]).content) == encoded(share_version(1), *kept)


def test_the_snapshot_keeps_the_last_control_records_of_the_quorum() -> None:
    def control_batch(kind: ControlType, value: bytes, at: int) -> bytes:
        key = b"\0\0" + kind.value.to_bytes(2, "big")
        return bytes(build_batch([NewRecord(key, value, 7)], base_offset=at, is_control=True, leader_epoch=3))

    versions = [control_batch(ControlType.KRAFT_VERSION, value, at) for at, value in enumerate((b"v0", b"v1"))]
    content = snapshot_for_kafka([*versions, control_batch(ControlType.KRAFT_VOTERS, b"voters", 2)]).content
    control = [
        (control_type(record.key), bytes(record.value or b""))
        for position, header in batches(content)
        if header.is_control
        for record in records_of(content, position)
    ]
    assert [kind for kind, _ in control] == [
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
        ControlType.SNAPSHOT_FOOTER,
    ]
    assert [value for _, value in control[1:3]] == [b"v1", b"voters"]
