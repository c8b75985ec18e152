"""The kinds of defects that a log can have, with advice on each kind."""

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


# The kinds that are not damage, because they occur in normal operation and disappear without any intervention.
NOTES = frozenset({Flaw.OPEN, Flaw.TAIL})

_REBUILT_BY_BROKER = (
    "Stop the broker and delete the file: the next start rebuilds it from the log. Until then, read_committed"
    " consumers may get wrong records from this segment."
)
_RECORDS_LOST = (
    "Records are missing. Compare the log with another copy of the partition, or with the output of an application"
    " that has read it (`odradek spark exactly-once`). Consumers skip the gap without an error."
)
ADVICE: Mapping[Flaw, str] = {
    Flaw.CRC: "The bytes changed after they were written: check the disk. Consumers stop at this batch. Restore the"
    " segment from a copy, or give the records up: delete them with `odradek records delete` up to the offset"
    " after the batch, or reset the groups to that offset.",
    Flaw.UNREADABLE: "Nothing after this byte of the segment can be read. Restore the segment from a copy. Without"
    " a copy, the records from this offset to the next segment are lost: reset the groups to an offset after"
    " them.",
    Flaw.COUNT: "The header contradicts itself: treat it as a wrong CRC. Restore the segment from a copy.",
    Flaw.OFFSET_GAP: _RECORDS_LOST,
    Flaw.SEQUENCE_GAP: "The producer sent records that are not in the log. " + _RECORDS_LOST,
    Flaw.REPEATED: "Consumers read these records twice. Remove the duplicates where they matter, and report this: a"
    " batch of an idempotent producer must not be written twice.",
    Flaw.PRODUCER_EPOCH: "A fenced producer has written records, which may duplicate those of its successor."
    " Compare them, and report this.",
    Flaw.LEADER_EPOCH: "A former leader has written to the log: compare it with the other replicas. If there is"
    " only one replica, report this.",
    Flaw.COORDINATOR_EPOCH: "The marker comes from a former transaction coordinator: compare the outcome of this"
    " transaction in all its partitions.",
    Flaw.MARKER_MISMATCH: "A transaction was committed in some partitions and aborted in others, so it is not"
    " atomic. Compare its records with those that should be there, write missing ones again, and report this.",
    Flaw.HANGING: "read_committed consumers wait at this offset until you end the transaction: `odradek"
    " transactions find-hanging`, then `odradek transactions abort --topic … --partition … --start-offset …`.",
    Flaw.TXN_INDEX: _REBUILT_BY_BROKER,
    Flaw.OFFSET_INDEX: _REBUILT_BY_BROKER,
    Flaw.SNAPSHOT: "Stop the broker and delete the file: the next start uses an older snapshot, and reads the log"
    " from there.",
    Flaw.OPEN: "If the producer is alive, there is nothing to do: read_committed consumers continue when the"
    " transaction ends. Otherwise see `odradek transactions list --in-doubt`.",
    Flaw.TAIL: "Nothing to do: a broker is writing these bytes, or the next start will cut them off.",
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
