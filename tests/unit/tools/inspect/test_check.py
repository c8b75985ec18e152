"""Tests that `odradek inspect check` finds each kind of planted damage where it was planted, and nothing else."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.cli import main
from odradek.files.indexes import AbortedTxn, TxnIndex
from odradek.files.offline import partitions_at
from odradek.files.producer_snapshot import encode_snapshot
from odradek.protocol.codec import encode
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from odradek.protocol.records import NewRecord
from odradek.tools.inspect.check.findings import ADVICE, Flaw, LogFinding
from odradek.tools.inspect.check.run import check
from tests.support.batches import changed, good_batch
from tests.support.oracle import directories, needs_oracle, unpack
from tests.support.written_log import WrittenLog, flip

PRODUCER, OTHER = 7, 8
ONGOING, COMPLETE_COMMIT = 1, 4


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Writes a valid log with offsets 0 to 16 in two segments. It contains two producers' transactions and plain
    records."""
    log = WrittenLog(tmp_path / "data")
    log.transaction(PRODUCER, commit=True, records=2)
    log.transaction(OTHER, commit=False, records=2)
    log.append(3)
    index = TxnIndex()
    index.append(AbortedTxn(OTHER, 3, 5, 6))
    log.active.with_suffix(".txnindex").write_bytes(index.to_bytes())
    log.roll()
    log.transaction(PRODUCER, commit=True, records=2, epoch=1)
    log.append(4, producer_id=9)
    return log


def found(log: WrittenLog) -> list[LogFinding]:
    return list(check(partitions_at(log.data)).findings)


def kinds(log: WrittenLog) -> list[Flaw]:
    return [each.kind for each in found(log)]


def test_nothing_is_found_in_a_sound_log(log: WrittenLog) -> None:
    report = check(partitions_at(log.data))
    assert list(report.findings) == []
    [partition] = report.partitions
    assert (partition.start_offset, partition.last_stable_offset, partition.end_offset) == (0, 16, 16)
    assert (partition.batches, partition.records, partition.segments) == (8, 13, 2)


def test_a_flipped_bit_is_a_wrong_crc_and_the_rest_is_read(log: WrittenLog) -> None:
    position = log.active.stat().st_size
    log.append(5)
    log.append(1)
    flip(log.active, position + 80, 1)
    [finding] = found(log)
    assert (finding.kind, finding.path, finding.position, finding.offset) == (Flaw.CRC, log.active, position, 16)


def test_a_lost_batch_is_a_gap(log: WrittenLog) -> None:
    log.skip(3)
    log.append(1)
    [finding] = found(log)
    assert (finding.kind, finding.offset) == (Flaw.OFFSET_GAP, 16)
    assert "16 to 18 are missing" in finding.text


def test_a_compacted_log_has_gaps_and_no_finding(log: WrittenLog) -> None:
    log.skip(3)
    log.append(2, producer_id=9, sequence=50)
    assert kinds(log) == [Flaw.OFFSET_GAP, Flaw.SEQUENCE_GAP]
    checkpoint = log.data / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 10\n")
    assert kinds(log) == []
    checkpoint.unlink()
    log.write(
        changed(good_batch(3), base_offset=log.next_offset, leader_epoch=0, record_count=2)
    )  # compaction can leave such a batch with two of its three records
    assert kinds(log) == []


def test_a_lost_and_a_repeated_batch_of_a_producer_are_told_apart(log: WrittenLog) -> None:
    log.append(2, producer_id=9, sequence=6)
    log.append(2, producer_id=9, sequence=6)
    assert [(each.kind, each.offset) for each in found(log)] == [
        (Flaw.REPEATED, 18),
        (Flaw.SEQUENCE_GAP, 16),
    ]


def test_sequences_wrap(log: WrittenLog) -> None:
    log.append(4, producer_id=11, sequence=2**31 - 2)
    log.append(1, producer_id=11, sequence=2)
    assert kinds(log) == []


def test_epochs_do_not_go_back(log: WrittenLog) -> None:
    log.append(1, leader_epoch=5)
    log.append(1, leader_epoch=4)
    log.append(1, producer_id=PRODUCER, epoch=0, sequence=0, leader_epoch=5)
    log.append(1, producer_id=10, transactional=True, leader_epoch=5)
    log.write(b"")
    assert kinds(log)[:2] == [Flaw.LEADER_EPOCH, Flaw.PRODUCER_EPOCH]


def test_a_marker_of_a_deposed_coordinator_is_found(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "data")
    for coordinator_epoch in (3, 2):
        log.append(1, producer_id=PRODUCER, transactional=True)
        log.end(PRODUCER, commit=True, coordinator_epoch=coordinator_epoch)
    assert [(each.kind, each.offset) for each in found(log)] == [(Flaw.COORDINATOR_EPOCH, 3)]


def test_a_transaction_with_two_outcomes_is_found(log: WrittenLog, tmp_path: Path) -> None:
    other = WrittenLog(tmp_path / "data", partition=1)
    other.transaction(PRODUCER, commit=True)
    assert kinds(log) == []
    other.transaction(PRODUCER, commit=False, epoch=1)
    [finding] = found(log)
    assert (finding.kind, finding.partition, finding.offset) == (Flaw.MARKER_MISMATCH, "t-1", 3)
    assert "aborted here and committed in t-0" in finding.text


def coordinator(data: Path, *states: tuple[int, int, list[int]]) -> None:
    """Writes `__transaction_state`: consecutive records of the transactional id `tid`, each with a status, an epoch,
    and partitions of t."""
    written = WrittenLog(data, topic="__transaction_state")
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id="tid"), 0)
    for status, epoch, partitions in states:
        value = TransactionLogValue(
            producer_id=PRODUCER,
            producer_epoch=epoch,
            transaction_status=status,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=partitions)] if partitions else None,
        )
        written.append([NewRecord(key, struct.pack(">h", 0) + encode(value, 0), 1)])


@pytest.mark.parametrize(
    ("states", "kind", "text"),
    [
        ([(ONGOING, 2, [0])], Flaw.OPEN, "transactional id tid, Ongoing"),
        ([(ONGOING, 2, [1])], Flaw.HANGING, "transactional id tid, Ongoing"),
        ([(ONGOING, 2, [0]), (COMPLETE_COMMIT, 3, [])], Flaw.HANGING, "tid, CompleteCommit"),
        ([(ONGOING, 5, [0])], Flaw.HANGING, "tid, Ongoing"),
        ([], Flaw.HANGING, "no coordinator knows the producer"),
        (None, Flaw.OPEN, "3 records from here to offset 18"),
    ],
)
def test_an_open_transaction_hangs_if_its_coordinator_does_not_know_it_as_open(
    log: WrittenLog, states: list[tuple[int, int, list[int]]] | None, kind: Flaw, text: str
) -> None:
    log.append(3, producer_id=PRODUCER, epoch=2, transactional=True)
    if states is not None:
        coordinator(log.data, *states)
    [finding] = found(log)
    assert (finding.kind, finding.offset) == (kind, 16)
    assert text in finding.text
    assert finding.is_damage == (kind is Flaw.HANGING)


def test_where_no_batch_begins_the_rest_of_the_segment_cannot_be_read(log: WrittenLog) -> None:
    first = log.directory / f"{0:020d}.log"
    flip(first, 16)
    damages = found(log)
    assert [(each.kind, each.path, each.position, each.offset) for each in damages] == [(Flaw.UNREADABLE, first, 0, 0)]


def test_a_torn_tail_is_a_note_unless_the_broker_stopped_cleanly(log: WrittenLog) -> None:
    os.truncate(log.active, log.active.stat().st_size - 5)
    assert kinds(log) == [Flaw.TAIL]
    (log.data / ".kafka_cleanshutdown").touch()
    [finding] = found(log)
    assert finding.kind is Flaw.UNREADABLE
    assert "cut short" in finding.text


def test_preallocated_zeros_are_a_note(log: WrittenLog) -> None:
    log.write(bytes(5_000))
    (log.data / ".kafka_cleanshutdown").touch()
    assert kinds(log) == [Flaw.TAIL]


def test_a_header_that_contradicts_itself_is_found(log: WrittenLog) -> None:
    log.write(changed(good_batch(2), base_offset=16, leader_epoch=0, record_count=5))
    assert kinds(log) == [Flaw.COUNT]


def spoil_transaction_index(log: WrittenLog) -> Path:
    path = log.directory / f"{0:020d}.txnindex"
    path.unlink()
    return path


def invent_an_aborted_transaction(log: WrittenLog) -> Path:
    path, index = log.directory / f"{0:020d}.txnindex", TxnIndex()
    index.append(AbortedTxn(PRODUCER, 0, 2, 3))
    path.write_bytes(index.to_bytes() + path.read_bytes())
    return path


def lead_astray(log: WrittenLog) -> Path:
    path = log.directory / f"{0:020d}.index"
    path.write_bytes(struct.pack(">ii", 5, 100))
    return path


def spoil_snapshot(log: WrittenLog) -> Path:
    path = log.active.with_suffix(".snapshot")
    path.write_bytes(encode_snapshot([])[:-1] + b"\1")
    return path


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (spoil_transaction_index, Flaw.TXN_INDEX),
        (invent_an_aborted_transaction, Flaw.TXN_INDEX),
        (lead_astray, Flaw.OFFSET_INDEX),
        (spoil_snapshot, Flaw.SNAPSHOT),
    ],
)
def test_damage_in_files_beside_the_log_is_found(
    log: WrittenLog, spoil: Callable[[WrittenLog], Path], kind: Flaw
) -> None:
    path = spoil(log)
    assert [(each.kind, each.path) for each in found(log)] == [(kind, path)]


def test_every_kind_says_what_to_do() -> None:
    assert set(ADVICE) == set(Flaw)


def test_many_findings_of_a_kind_are_counted(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "data")
    for _ in range(150):
        log.append(1)
        log.skip(1)
    report = check(partitions_at(log.data))
    assert len(list(report.findings)) == 100
    assert report.partitions[0].counts == {Flaw.OFFSET_GAP: 149}


@needs_oracle
@pytest.mark.parametrize("name", directories())
def test_directories_that_kafka_wrote_have_no_findings(name: str, tmp_path: Path) -> None:
    report = check(partitions_at(unpack(name, tmp_path)))
    kinds = {each.kind for each in report.findings}
    assert kinds == (
        {Flaw.TAIL} if name == "unclean-torn" else {Flaw.OPEN} if name.startswith("transactions") else set()
    )


def test_the_command_prints_findings_and_advice_and_ends_with_1(
    log: WrittenLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "check", str(log.data)]) == 0
    assert capsys.readouterr().out.startswith("nothing is damaged: 1 partitions, 8 batches")
    log.skip(1)
    log.append(1)
    assert main(["inspect", "check", str(log.data)]) == 1
    out = capsys.readouterr().out
    assert "DAMAGED  t-0: the offsets 16 to 16 are missing" in out
    assert ADVICE[Flaw.OFFSET_GAP] in out
    assert main(["inspect", "check", str(log.data), "--json"]) == 1
    read = json.loads(capsys.readouterr().out)
    assert read["isDamaged"]
    assert read["findings"][0]["kind"] == "offset-gap"
    assert read["partitions"][0]["lastStableOffset"] == 18


def test_a_directory_without_logs_and_an_unknown_topic_are_reported(
    log: WrittenLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nothing").mkdir()
    assert main(["inspect", "check", str(tmp_path / "nothing")]) == 2
    assert main(["inspect", "check", str(log.data), "--topic", "u"]) == 2
    assert "the directories contain no topic u" in capsys.readouterr().err
