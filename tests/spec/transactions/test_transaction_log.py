"""Tests the records of `__transaction_state`. Odradek writes the same bytes as Kafka and loads Kafka's records.

Rules: docs/spec/transactions.md#s1-5; scenario 107: #s8-7.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.transactions.core import TransactionCore
from odradek.broker.transactions.entry import NEVER_MS, TransactionTombstone, Txn, TxnRecord
from odradek.broker.transactions.records import (
    coded_txn,
    decode_record,
    encode_record,
    record_headers,
    restore_headers,
    usual_txn,
)
from odradek.broker.transactions.tables import TxnState
from odradek.broker.transactions.turn import TransactionConfig
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.records import Record, batches, records_of
from tests.support.oracle import needs_oracle, served, unpack
from tests.support.transaction_scene import MAX, NOW_MS, P0, P1, PID, E, S, Scene, refused, txn

KEY = bytes.fromhex("0000 0003 747831")
STARTED_MS, ADDED_MS, DECIDED_MS, ENDED_MS = 0x1A1FE7A4740, 0x1A1FE7A48B5, 0x1A1FE7A48CB, 0x1A1FE7A48CE


def tx1(state: TxnState, epoch: int, *, updated_ms: int, version: int = 2) -> Txn:
    """Returns the transactional id tx1 of producer 1044, with partition t1-1 in its transaction."""
    is_busy = state in (S.ONGOING, S.PREPARE_COMMIT)
    return txn(
        state,
        (1044, epoch),
        [("t1", 1)] if is_busy else [],
        transactional_id="tx1",
        started_ms=None if state is S.EMPTY else ADDED_MS,
        updated_ms=updated_ms,
        version=version,
    )


OBSERVED = {
    "0001 0000000000000414 0000 0000ea60 00 00 000001a1fe7a4740 ffffffffffffffff 01 00 08 0000000000000414": tx1(
        S.EMPTY, 0, updated_ms=STARTED_MS, version=0
    ),
    "0001 0000000000000414 0000 0000ea60 01 02 037431 02 00000001 00 000001a1fe7a48b5 000001a1fe7a48b5"
    " 02 00 08 0000000000000414 02 02 0002": tx1(S.ONGOING, 0, updated_ms=ADDED_MS),
    "0001 0000000000000414 0001 0000ea60 02 02 037431 02 00000001 00 000001a1fe7a48cb 000001a1fe7a48b5"
    " 02 00 08 0000000000000414 02 02 0002": tx1(S.PREPARE_COMMIT, 1, updated_ms=DECIDED_MS),
    "0001 0000000000000414 0001 0000ea60 04 01 000001a1fe7a48ce 000001a1fe7a48b5"
    " 02 00 08 0000000000000414 02 02 0002": tx1(S.COMPLETE_COMMIT, 1, updated_ms=ENDED_MS),
}
RECORDED = ["transactions-tv0", "transactions-tv1", "transactions-tv2", "transactions-tv2-killed"]


@pytest.mark.parametrize(("value", "record"), OBSERVED.items(), ids=[each.state.name for each in OBSERVED.values()])
def test_a_record_has_kafkas_bytes_and_is_read_back(value: str, record: Txn) -> None:
    assert encode_record(record, 2) == (KEY, bytes.fromhex(value))
    assert encode_record(record, 1) == (KEY, bytes.fromhex(value))
    is_decided = record.state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    known = replace(record, last_producer_epoch=0) if is_decided else record
    assert decode_record(KEY, bytes.fromhex(value)) == known


@given(data=st.data())
def test_the_fast_reader_of_values_agrees_with_the_codec(data: st.DataObject) -> None:
    ended = txn(S.COMPLETE_COMMIT, (1044, 1), [], transactional_id="tx1", started_ms=ADDED_MS, updated_ms=ENDED_MS)
    _, encoded = encode_record(ended, 2)
    assert encoded is not None
    value = bytearray(encoded)
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 8, 0x7F, 0xFF]))
    usual = usual_txn("tx1", bytes(value))
    assert usual is None or usual == coded_txn("tx1", bytes(value))


def test_a_value_of_an_ended_transaction_is_read_by_the_fast_reader() -> None:
    value = bytes.fromhex(list(OBSERVED)[-1])
    assert usual_txn("tx1", value) == coded_txn("tx1", value) == decode_record(KEY, value)


def test_partitions_are_encoded_by_topic_in_order() -> None:
    record = txn(S.ONGOING, (PID, 5), [P1, ("\u00fc", 3), P0, ("a", 300)])
    _, value = encode_record(record, 2)
    assert value is not None
    assert value[17:-31] == bytes.fromhex(
        "04 02 61 02 0000012c 00  07 6f7264657273 03 00000000 00000001 00  03 c3bc 02 00000003 00"
    )
    assert decode_record(KEY, value) == replace(record, transactional_id="tx1")


def test_below_version_1_the_value_has_no_tags() -> None:
    _, value = encode_record(txn(S.ONGOING, (1044, 0), [("t1", 1)], transactional_id="tx1", version=0), 0)
    assert value is not None
    assert value == (
        bytes.fromhex("0000 0000000000000414 0000 0000ea60 01 00000001 0002 7431 00000001 00000001")
        + NOW_MS.to_bytes(8, "big") * 2
    )


def test_a_tombstone_is_a_key_without_a_value() -> None:
    assert encode_record(TransactionTombstone("tx1"), 2) == (KEY, None)
    assert decode_record(KEY, None) == TransactionTombstone("tx1")


def test_the_next_producer_id_of_used_up_epochs_is_recorded_with_its_epoch() -> None:
    decided = txn(S.PREPARE_COMMIT, (PID, MAX), following=85, following_epoch=0, last_epoch=MAX - 1)
    key, value = encode_record(decided, 2)
    assert decode_record(key, value) == decided
    assert value is not None
    assert value.endswith(bytes.fromhex("04 00 08 0000000000000007 01 08 0000000000000055 02 02 0002 03 02 0000"))


def test_a_second_pair_is_not_lost_to_a_downgrade() -> None:
    _, value = encode_record(txn(S.ONGOING, (PID, 3), following=PID, following_epoch=4), 0)
    assert value is not None
    assert value[:2] == b"\x00\x01"


KEPT_BYTES = (
    "0001 0000000000000414 0001 7fffffff 01 02 037431 02 00000001 00 000001a1fe7a48cb 000001a1fe7a48b5"
    " 04 00 08 0000000000000414 01 08 0000000000000414 02 02 0002 03 02 0002"
)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_kept_transaction_is_recorded_with_both_epochs_and_an_unlimited_timeout(level: int) -> None:
    kept = replace(
        tx1(S.ONGOING, 1, updated_ms=DECIDED_MS), timeout_ms=NEVER_MS, next_producer_id=1044, next_producer_epoch=2
    )
    assert encode_record(kept, level) == (KEY, bytes.fromhex(KEPT_BYTES))
    assert decode_record(KEY, bytes.fromhex(KEPT_BYTES)) == kept
    assert kept.is_kept


@pytest.mark.parametrize(("following", "epoch"), [(1044, None), (None, 2)])
def test_a_next_producer_id_or_epoch_alone_is_ignored(following: int | None, epoch: int | None) -> None:
    record = txn(S.ONGOING, (PID, 3), following=following, following_epoch=epoch)
    assert decode_record(*encode_record(record, 2)) == txn(S.ONGOING, (PID, 3))


def test_the_last_epoch_of_an_owner_is_in_a_header_if_the_fields_lack_it() -> None:
    decided = txn(S.PREPARE_COMMIT, (PID, 4), previous=PID, following=PID, following_epoch=9, last_epoch=8)
    ended = txn(S.COMPLETE_COMMIT, (PID, 0), previous=73, last_epoch=MAX)
    for record in (decided, ended):
        decoded = decode_record(*encode_record(record, 2))
        assert decoded is not None
        assert restore_headers(decoded, record_headers(record)) == record


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_record_of_an_old_client_is_read_back_with_its_headers(state: TxnState) -> None:
    record = txn(state, (PID, 5), [P0, P1, ("a", 3)], last_epoch=2, version=0)
    decoded = decode_record(*encode_record(record, 2))
    assert decoded is not None
    assert restore_headers(decoded, record_headers(record)) == record


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_record_of_a_new_client_is_read_back_without_headers(state: TxnState) -> None:
    record = txn(state, (PID, 5), [P0, P1, ("a", 3)], last_epoch=4)
    assert record_headers(record) == ()
    assert decode_record(*encode_record(record, 2)) == record


def test_version_0_has_no_room_for_the_previous_producer_id() -> None:
    record = txn(S.COMPLETE_ABORT, (PID, 5), version=0)
    assert decode_record(*encode_record(record, 0)) == replace(record, previous_producer_id=None)


def test_the_epoch_before_the_last_bump_is_in_a_header_if_the_value_lacks_it() -> None:
    assert record_headers(txn(S.EMPTY, (PID, 4), last_epoch=3)) == (("last-producer-epoch", b"\x00\x03"),)
    assert record_headers(txn(S.EMPTY, (PID, 4))) == ()
    assert record_headers(txn(S.COMPLETE_COMMIT, (PID, 4), last_epoch=3)) == ()
    assert record_headers(txn(S.COMPLETE_COMMIT, (PID, 4), last_epoch=3, version=0)) != ()


def test_scenario_107_old_and_new_values_tombstones_unknown_keys_and_unknown_tags_are_all_loaded() -> None:
    scene = Scene()
    old = txn(S.COMPLETE_COMMIT, (1, 0), transactional_id="old", version=0)
    scene.replay_bytes(*encode_record(old, 0))
    scene.replay_bytes(*encode_record(txn(S.ONGOING, (2, 3), [P0], transactional_id="open"), 2))
    scene.replay_bytes(*encode_record(txn(S.EMPTY, (3, 0), transactional_id="gone"), 2))
    scene.replay_bytes(*encode_record(TransactionTombstone("gone"), 2))
    scene.replay_bytes(b"\x00\x05\x00\x03abc", b"what a later Kafka wrote")
    key, value = encode_record(txn(S.EMPTY, (4, 6), transactional_id="tagged", version=0), 2)
    assert value is not None
    with_tag = value[: -len(bytes.fromhex("01 00 08 0000000000000004"))] + bytes.fromhex(
        "02 00 08 0000000000000004 63 02 abcd"
    )
    scene.replay_bytes(key, with_tag)
    scene.loaded()
    assert scene.core.txn("old") == replace(old, previous_producer_id=None)
    assert scene.describe("open").transaction_state == "Ongoing"
    assert scene.core.txn("gone") is None
    found = scene.core.txn("tagged")
    assert found is not None
    assert (found.producer_id, found.producer_epoch) == (4, 6)
    with refused(E.INVALID_PRODUCER_ID_MAPPING):
        scene.add((3, 0), transactional_id="gone")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"\x00", b"x"),
        (b"\x00\x00\x00\x09tx1", None),
        (KEY, b"\x00"),
        (KEY, b"\x00\x02" + bytes(60)),
        (KEY, b"\x00\x00" + bytes(8)),
        (KEY, bytes.fromhex("0001 0000000000000414 0000 0000ea60 06 00") + bytes(17)),
        (KEY, bytes.fromhex("0001 0000000000000414 0000 0000ea60 09 00") + bytes(17)),
    ],
)
def test_a_malformed_record_raises_an_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, value)


def recorded(name: str, into: Path) -> list[list[Record]]:
    """Returns the records of `__transaction_state` in a directory written by Kafka, as one list per partition."""
    directory = unpack(name, into)
    partitions = []
    for folder in sorted(directory.glob("__transaction_state-*")):
        records: list[Record] = []
        for path in sorted(folder.glob("*.log")):
            data = path.read_bytes()
            for position, _ in batches(data):
                records += records_of(data, position)
        partitions.append(records)
    return partitions


@needs_oracle
@pytest.mark.parametrize("name", RECORDED)
def test_records_that_kafka_wrote_are_written_again_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    version = 0 if name.endswith("tv0") else 2
    count = 0
    for record in (record for records in recorded(name, tmp_path) for record in records):
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        key, value = encode_record(decoded, version)
        assert key == record.key
        if _stands_in_order(record.value, decoded):
            assert value == record.value
            count += 1
        assert decode_record(key, value) == decoded
    assert count > 20


def _stands_in_order(value: bytes | None, decoded: TxnRecord) -> bool:
    """Returns whether the record has at most one partition. Kafka writes several partitions in hash order, so the bytes
    may differ."""
    return isinstance(decoded, TransactionTombstone) or len(decoded.partitions) <= 1


@needs_oracle
@pytest.mark.parametrize("name", RECORDED)
def test_records_that_kafka_wrote_are_loaded_to_the_transactions_that_kafka_describes(
    name: str, tmp_path: Path
) -> None:
    facts = served(name)["transactions"]
    shown = {}
    for records in recorded(name, tmp_path):
        core = TransactionCore(TransactionConfig(), coordinator_epoch=9)
        for record in records:
            decoded = decode_record(record.key, record.value)
            assert decoded is not None
            core.replay(decoded)
        for transactional_id in facts:
            found = core.txn(transactional_id)
            if found is None:
                continue
            described = core.describe(transactional_id)
            shown[transactional_id] = {
                "epoch": described.producer_epoch,
                "partitions": sorted(
                    f"{topic.topic}-{partition}" for topic in described.topics for partition in topic.partitions
                ),
                "producerId": described.producer_id,
                "startTime": described.transaction_start_time_ms if found.started_ms is not None else None,
                "state": described.transaction_state,
                "timeoutMs": described.transaction_timeout_ms,
            }
    assert shown == facts


@needs_oracle
@pytest.mark.parametrize("name", RECORDED)
def test_the_transaction_that_kafka_left_open_can_be_finished(name: str, tmp_path: Path) -> None:
    open_id = next(each for each, facts in served(name)["transactions"].items() if facts["state"] == "Ongoing")
    version = 5 if "tv2" in name else 4
    for records in recorded(name, tmp_path):
        if open_id.encode() not in b"".join(record.key or b"" for record in records):
            continue
        scene = Scene(transaction_version=0 if name.endswith("tv0") else 2, coordinator_epoch=9)
        for record in records:
            scene.replay_bytes(record.key or b"", record.value, record.headers)
        scene.loaded()
        found = scene.core.txn(open_id)
        assert found is not None
        assert found.producer_epoch is not None
        reply = scene.end(
            (found.producer_id, found.producer_epoch), committed=True, version=version, transactional_id=open_id
        )
        (owed,) = scene.write_markers()
        assert owed.partitions == found.partitions
        assert reply.pair == ((found.producer_id, found.producer_epoch + 1) if version == 5 else (-1, -1))
        return
    pytest.fail(f"{open_id} is in no partition")
