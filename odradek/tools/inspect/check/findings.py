"""The kinds of defects that a log can have, with advice on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Flaw(Enum):
    """The kinds of defects. The values are part of the JSON output."""

    CRC = "crc"
    UNREADABLE = "unreadable"
    COUNT = "record-count"
    OFFSET_GAP = "offset-gap"
    SEQUENCE_GAP = "sequence-gap"
    REPEATED = "repeated-batch"
    PRODUCER_EPOCH = "producer-epoch"
    LEADER_EPOCH = "leader-epoch"
    COORDINATOR_EPOCH = "coordinator-epoch"
    MARKER_MISMATCH = "marker-mismatch"
    HANGING = "hanging-transaction"
    TXN_INDEX = "transaction-index"
    OFFSET_INDEX = "offset-index"
    SNAPSHOT = "producer-snapshot"
    OPEN = "open-transaction"
    TAIL = "torn-tail"


# Kinds that are not damage, because they occur in normal operation and disappear by themselves.
NOTES = frozenset({Flaw.OPEN, Flaw.TAIL})

_REBUILT_BY_BROKER = (
    "Stop the broker and delete the file: the next start makes it anew from the log. Until then committed reads from"
    " this segment may be wrong."
)
_RECORDS_LOST = (
    "Records are missing. Compare with another copy of the partition, or with what was read from it (`odradek spark"
    " exactly-once`); consumers pass over the gap without a word."
)
ADVICE: Mapping[Flaw, str] = {
    Flaw.CRC: "The bytes changed after they were written: check the disk. Consumers stop at this batch. Restore the"
    " segment from a copy, or give the records up: `odradek records delete` up to the offset behind the batch, or reset"
    " the groups to it.",
    Flaw.UNREADABLE: "Nothing behind this byte of the segment can be read. Restore the segment from a copy. If there is"
    " none, the records from this offset to the next segment are lost: reset the groups behind them.",
    Flaw.COUNT: "The header contradicts itself: treat it as a wrong CRC. Restore the segment from a copy.",
    Flaw.OFFSET_GAP: _RECORDS_LOST,
    Flaw.SEQUENCE_GAP: "The producer sent records that are not in the log. " + _RECORDS_LOST,
    Flaw.REPEATED: "Consumers read these records twice. Take them out where duplicates matter, and report it: an"
    " idempotent producer's batch must not be written again.",
    Flaw.PRODUCER_EPOCH: "A producer that was fenced has written: its records may duplicate those of its successor."
    " Compare them, and report it.",
    Flaw.LEADER_EPOCH: "The log was written to by a leader of the past: compare it with the other replicas. With one"
    " replica, report it.",
    Flaw.COORDINATOR_EPOCH: "A marker of a transaction coordinator that was deposed: compare the outcome of this"
    " transaction in its partitions.",
    Flaw.MARKER_MISMATCH: "A transaction was committed in some partitions and aborted in others: it is not atomic."
    " Compare its records with what should be there, write again what is missing, and report it.",
    Flaw.HANGING: "Committed reads wait at this offset until somebody ends the transaction: `odradek transactions"
    " find-hanging`, then `odradek transactions abort --topic … --partition … --start-offset …`.",
    Flaw.TXN_INDEX: _REBUILT_BY_BROKER,
    Flaw.OFFSET_INDEX: _REBUILT_BY_BROKER,
    Flaw.SNAPSHOT: "Stop the broker and delete the file: the next start takes an older one, and reads the log from"
    " there.",
    Flaw.OPEN: "Nothing to do if its producer is alive: committed reads go on when it ends. Else `odradek transactions"
    " list --in-doubt`.",
    Flaw.TAIL: "Nothing to do: a broker is writing, or the next start cuts it off.",
}


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One finding. `position` is the byte position in the file, and `offset` is the first affected offset."""

    kind: Flaw
    partition: str
    path: Path
    position: int
    offset: int
    text: str

    @property
    def is_damage(self) -> bool:
        return self.kind not in NOTES
