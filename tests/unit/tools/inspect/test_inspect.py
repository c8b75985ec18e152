"""Tests that `odradek inspect` shows the contents of valid files and reports damaged ones."""

import io
import json
import struct
from pathlib import Path

import pytest

from odradek.cli import main
from odradek.files.checkpoints import (
    MetaProperties,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
)
from odradek.files.indexes import AbortedTxn, OffsetIndex, TimeIndex, TxnIndex
from odradek.files.producer_snapshot import encode_snapshot
from odradek.protocol.batch_header import HEADER_BYTES
from odradek.protocol.codec import encode
from odradek.protocol.control_records import leader_change_batch, marker_batch
from odradek.protocol.frames import request_bytes, response_chunks
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from odradek.protocol.records import Compression, NewRecord, assign, build_batch
from odradek.storage.producer_state import CachedBatch, ProducerEntry
from odradek.tools.inspect.command import DAMAGED, GOOD, MISUNDERSTOOD, inspect

SEGMENT = f"{0:020d}.log"


def file(folder: Path, name: str, *parts: bytes | bytearray) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(parts))
    return path


def rows(path: Path, **options: str) -> list[dict[str, object]]:
    """Returns the rows that `--json` prints, without the file name field."""
    out = io.StringIO()
    inspect([path], as_json=True, out=out, kind=options.get("kind"), topic=options.get("topic"))
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(row.pop("file") == str(path) for row in found)
    return found


def text(path: Path, *, is_full: bool = False, with_records: bool = True) -> list[str]:
    out = io.StringIO()
    inspect([path], out=out, is_full=is_full, with_records=with_records)
    return out.getvalue().splitlines()


def batch(base_offset: int, *values: bytes, compression: Compression = Compression.NONE) -> bytearray:
    made = build_batch([NewRecord(b"k", value, 1_000) for value in values], compression=compression)
    assign(made, base_offset, 0)
    return made


def test_records_stand_behind_their_batch_opened_when_they_are_compressed(tmp_path: Path) -> None:
    path = file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"one"), batch(1, b"two", b"three", compression=Compression.GZIP))
    found = rows(path)
    assert [row["kind"] for row in found] == ["batch", "record", "batch", "record", "record"]
    assert [(row["offset"], row["value"]) for row in found if row["kind"] == "record"] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
    ]
    assert found[2] | {"compression": "gzip", "baseOffset": 1, "lastOffset": 2} == found[2]


def test_values_that_are_not_text_are_shown_as_base64(tmp_path: Path) -> None:
    path = file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"\xff\x00"))
    assert rows(path)[1]["value"] == {"base64": "/wA="}
    assert "value=base64:/wA=" in text(path)[2]


def test_long_values_are_truncated_in_text_unless_full_output_is_requested(tmp_path: Path) -> None:
    path = file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"x" * 1_000))
    assert "(1002 characters, --full shows them)" in text(path)[2]
    assert "x" * 1_000 in text(path, is_full=True)[2]
    assert rows(path)[1]["value"] == "x" * 1_000


def test_the_text_output_omits_unset_fields_of_a_batch(tmp_path: Path) -> None:
    line = text(file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"one")))[1]
    assert "baseOffset=0 lastOffset=0 count=1" in line
    assert "isValid=true" in line
    assert not any(word in line for word in ("producerId", "baseSequence", "isTransactional", "isControl"))


def test_batches_can_be_shown_without_records(tmp_path: Path) -> None:
    path = file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"one"), batch(1, b"two"))
    assert [line.split()[1] for line in text(path, with_records=False)[1:]] == ["batch", "batch"]


def test_markers_and_leader_changes_are_decoded(tmp_path: Path) -> None:
    marker = marker_batch(producer_id=7, producer_epoch=1, is_commit=True, coordinator_epoch=4, timestamp_ms=5)
    leader = leader_change_batch(leader_id=1, voter_ids=[1], timestamp_ms=5, base_offset=1, leader_epoch=2)
    path = file(tmp_path, f"t-0/{SEGMENT}", marker, leader)
    controls = [row for row in rows(path) if row["kind"] == "control record"]
    assert (controls[0]["control"], controls[0]["coordinatorEpoch"]) == ("COMMIT", 4)
    assert (controls[1]["control"], controls[1]["data"]) == (
        "LEADER_CHANGE",
        {"version": 0, "leaderId": 1, "voters": [{"voterId": 1}], "grantingVoters": [{"voterId": 1}]},
    )


def transaction_record(status: int) -> NewRecord:
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id="pay"), 0)
    partitions = [PartitionsSchema(topic="ledger", partition_ids=[0, 1])]
    value = TransactionLogValue(producer_id=9, transaction_status=status, transaction_partitions=partitions)
    return NewRecord(key, struct.pack(">h", 1) + encode(value, 1), 1_000)


def test_the_transaction_log_names_the_state(tmp_path: Path) -> None:
    records = [transaction_record(1), transaction_record(9), NewRecord(transaction_record(0).key, None, 1_000)]
    path = file(tmp_path, f"__transaction_state-3/{SEGMENT}", build_batch(records))
    open_, unknown, tombstone = rows(path)[1:]
    assert (open_["key"], open_["state"]) == ({"transactionalId": "pay"}, "Ongoing")
    assert unknown["state"] == "unknown (9)"
    assert tombstone["value"] is None


def test_a_log_that_lies_elsewhere_is_read_as_that_of_the_topic_that_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "saved.bin", build_batch([transaction_record(1)]))
    assert "state" not in rows(path, kind="log")[1]
    assert rows(path, kind="log", topic="__transaction_state")[1]["state"] == "Ongoing"


def test_a_record_of_an_internal_topic_that_cannot_be_decoded_is_shown_as_bytes_with_the_reason(tmp_path: Path) -> None:
    good = transaction_record(1)
    assert good.value is not None
    torn = NewRecord(good.key, good.value[:20], 1_000)
    foreign = NewRecord(good.key, struct.pack(">h", 99) + good.value[2:], 1_000)
    nameless = NewRecord(b"\x00", None, 1_000)
    path = file(tmp_path, f"__transaction_state-3/{SEGMENT}", build_batch([torn, foreign, nameless, good]))
    found = rows(path)
    reasons = [str(row["reason"]) for row in found if row["kind"] == "damage"]
    assert "TransactionLogValue version 1" in reasons[0]
    assert "in field transaction_partitions" in reasons[0]
    assert reasons[1:] == [
        "the record at offset 1: TransactionLogValue has no version 99",
        "the record at offset 2: the key is too short to contain a record type",
    ]
    assert found[-1]["state"] == "Ongoing"


def test_indexes_and_snapshots_are_shown_with_absolute_offsets(tmp_path: Path) -> None:
    offsets, times, aborted = OffsetIndex(100), TimeIndex(100), TxnIndex()
    offsets.append(140, 4_096)
    times.maybe_append(1_000, 140)
    aborted.append(AbortedTxn(7, 110, 120, 121))
    entry = ProducerEntry(7, 1, 1_000, 3, 130, (CachedBatch(4, 131, 1, 1_000),))
    folder = tmp_path / "t-0"
    base = f"{100:020d}"
    assert rows(file(folder, f"{base}.index", offsets.to_bytes())) == [
        {"at": 0, "kind": "offset index entry", "offset": 140, "position": 4_096}
    ]
    assert rows(file(folder, f"{base}.timeindex", times.to_bytes()))[0]["timestamp"] == 1_000
    assert rows(file(folder, f"{base}.txnindex", aborted.to_bytes()))[0]["lastStableOffset"] == 121
    snapshot = rows(file(folder, f"{base}.snapshot", encode_snapshot([entry.to_snapshot()])))
    assert snapshot[0]["isValid"] is True
    assert (snapshot[1]["producerId"], snapshot[1]["currentTxnFirstOffset"]) == (7, 130)


def test_checkpoints_and_properties_are_split_and_named(tmp_path: Path) -> None:
    offsets = file(tmp_path, "recovery-point-offset-checkpoint", encode_offsets({("a-b", 3): 17}))
    epochs = file(tmp_path, "t-0/leader-epoch-checkpoint", encode_epochs([(2, 10)]))
    meta = file(tmp_path, "meta.properties", encode_meta_properties(MetaProperties(1, "c==", "d")))
    ids = file(tmp_path, "t-0/partition.metadata", encode_partition_metadata(bytes(16)))
    clean = file(tmp_path, ".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":12}')
    assert rows(offsets) == [{"at": 4, "kind": "checkpoint", "topic": "a-b", "partition": 3, "offset": 17}]
    assert rows(epochs) == [{"at": 4, "kind": "leader epoch", "epoch": 2, "startOffset": 10}]
    assert {name: value for row in rows(meta) for name, value in row.items() if name not in ("at", "kind")} == {
        "node.id": "1",
        "version": "1",
        "cluster.id": "c==",
        "directory.id": "d",
    }
    assert rows(ids)[1]["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert rows(clean)[0]["brokerEpoch"] == 12


def test_requests_are_decoded_by_their_header_and_responses_by_an_option(tmp_path: Path) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    requests = file(tmp_path, "asked", request_bytes(request, 9, 5, "me"), request_bytes(request, 1, 6, None))
    first, second = rows(requests, kind="request")
    assert (first["api"], first["version"], first["correlationId"], first["clientId"]) == ("Metadata", 9, 5, "me")
    assert (second["version"], second["body"]) == (1, {"topics": [{"name": "t"}]})
    answer = b"".join(response_chunks(3, 9, 5, MetadataResponse(cluster_id="c", controller_id=1)))
    for name, data in (("framed", answer), ("bare", answer[4:])):
        (row,) = rows(file(tmp_path, name, data), kind="response:Metadata:9")
        assert row["correlationId"] == 5
        assert row["body"] == row["body"] | {"clusterId": "c"}  # type: ignore[operator]  # a dictionary


# Damaged files


@pytest.mark.parametrize(
    ("name", "data", "at", "reason"),
    [
        (
            f"t-0/{SEGMENT}",
            batch(0, b"one")[:-1],
            0,
            "a batch is cut short: its header says 72 bytes, but only 71 are left",
        ),
        (f"t-0/{SEGMENT}", batch(0, b"one") + bytes(500), 72, "500 zero bytes follow the last batch"),
        (
            f"t-0/{SEGMENT}",
            batch(0, b"one") + b"\x01" * 20,
            72,
            "20 bytes are too few for a batch, whose header alone has 61",
        ),
        (f"t-0/{SEGMENT}", b"\x07" * 100, 0, "no batch begins here: magic 7"),
        (f"t-0/{SEGMENT}", bytes(16) + b"\x01" + bytes(80), 0, "this is a message of format 1, from before Kafka 0.11"),
        (f"t-0/{SEGMENT}", batch(0, b"one")[:-1] + b"!", 0, "the batch has the CRC "),
        (f"t-0/{SEGMENT}", batch(5, b"a") + batch(3, b"b"), 70, "the base offset is 3, but must be at least 6"),
        ("t-0/" + f"{7:020d}.log", batch(5, b"a"), 0, "the base offset is 5, but must be at least 7"),
        (
            "t-0/" + f"{0:020d}.index",
            b"\0\0\0\5\0\0\0\5" * 2,
            8,
            "the entries are not in ascending order: offset 5 at position 5",
        ),
        ("t-0/" + f"{0:020d}.index", b"\1" * 11, 8, "the last 3 bytes are too few for an entry of 8 bytes"),
        ("t-0/" + f"{0:020d}.timeindex", b"\1" * 13, 12, "the last 1 bytes are too few for an entry of 12 bytes"),
        ("t-0/" + f"{0:020d}.txnindex", b"\0\1" + bytes(32), 0, "the entry has version 1; only version 0 is supported"),
        (
            "t-0/" + f"{0:020d}.snapshot",
            b"\0\2" + bytes(8),
            0,
            "the producer snapshot has version 2; only version 1 is supported",
        ),
        (
            "t-0/" + f"{0:020d}.snapshot",
            b"\0\1",
            0,
            "the header of a producer snapshot has 10 bytes, but the file has only 2",
        ),
        ("t-0/" + f"{0:020d}.snapshot", b"\0\1" + bytes(8), 2, "the CRC is 0, but that of the bytes is"),
        (
            "recovery-point-offset-checkpoint",
            b"0\n1\nt 0\n",
            4,
            "'t 0' does not have the form: topic, partition, offset",
        ),
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 1\n", 2, "the second line says 2 entries, but there are 1"),
        (
            "recovery-point-offset-checkpoint",
            b"9\n0\n",
            0,
            "the checkpoint has version '9'; only version 0 is supported",
        ),
        ("recovery-point-offset-checkpoint", b"0\n", 2, "the number of entries is missing"),
        ("t-0/leader-epoch-checkpoint", b"0\n1\none 1\n", 4, "'one 1' does not have the form: epoch, startOffset"),
        ("t-0/partition.metadata", b"", 0, "the file is empty: the id of the topic is missing"),
        ("meta.properties", b"version=1\nnode id\n", 10, "'node id' is not a name with a value"),
        ("t-0/quorum-state", b"{", 1, "the file is not JSON"),
        ("t-0/quorum-state", b"3", 0, "the file is not a JSON object"),
    ],
)
def test_damage_is_reported_with_its_position(
    name: str, data: bytes, at: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, name, data)
    assert inspect([path]) == DAMAGED
    said = capsys.readouterr()
    assert f"damaged at byte {at}: {reason}" in said.err
    assert f"DAMAGED: {reason}" in said.out
    damages = [row for row in rows(path) if row["kind"] == "damage"]
    assert (damages[0]["at"], str(damages[0]["reason"])[: len(reason)]) == (at, reason)


def test_reading_continues_after_a_batch_with_a_wrong_crc(tmp_path: Path) -> None:
    damaged = batch(0, b"one")
    damaged[HEADER_BYTES - 20] ^= 1  # changes the batch's base sequence
    found = rows(file(tmp_path, f"t-0/{SEGMENT}", damaged, batch(1, b"two")))
    assert [row["kind"] for row in found] == ["batch", "damage", "record", "batch", "record"]
    assert (found[0]["isValid"], found[3]["isValid"]) == (False, True)


def test_preallocated_zeros_of_an_index_are_no_damage(tmp_path: Path) -> None:
    path = file(tmp_path, "t-0/" + f"{0:020d}.index", b"\0\0\0\5\0\0\0\5" + bytes(800))
    assert inspect([path], out=io.StringIO()) == GOOD
    assert rows(path)[1]["kind"] == "note"


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_frame_cut_short_is_damage_wherever_it_is_cut(cut: int, tmp_path: Path) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="topic of the request")])
    frame = request_bytes(request, 9, 5, "me")[4:]
    (row,) = rows(file(tmp_path, "asked", frame[:-cut]), kind="request")
    assert row["kind"] == "damage"


# The command


def test_all_known_files_of_a_directory_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file(tmp_path, f"t-0/{SEGMENT}", batch(0, b"one"))
    file(tmp_path, "t-0/notes.txt", b"mine")
    file(tmp_path, ".lock")
    assert main(["inspect", str(tmp_path)]) == GOOD
    shown = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert shown == [str(tmp_path / ".lock"), str(tmp_path / "t-0" / SEGMENT)]


def test_a_file_of_an_unknown_name_is_refused_with_the_kinds_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(file(tmp_path, "notes.txt", b"mine"))]) == MISUNDERSTOOD
    assert "give its kind with --as: log, metadata-snapshot, index" in capsys.readouterr().err
    assert main(["inspect", "--as", "response:Nothing:1", str(tmp_path / "notes.txt")]) == MISUNDERSTOOD
    assert "response:Fetch:12" in capsys.readouterr().err


def test_a_file_that_is_not_there_does_not_hide_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = file(tmp_path, ".lock")
    assert main(["inspect", str(tmp_path / "meta.properties"), str(there)]) == DAMAGED
    said = capsys.readouterr()
    assert "meta.properties: No such file or directory" in said.err
    assert str(there) in said.out
