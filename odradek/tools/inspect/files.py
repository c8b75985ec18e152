"""The kind of a file, by its name as in Kafka. `--as` is for files with other names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from odradek.protocol.recording import MAGIC
from odradek.protocol.topic_partition import CLUSTER_METADATA
from odradek.tools.inspect.entries import Finding
from odradek.tools.inspect.fixed_files import read_offset_index, read_snapshot, read_time_index, read_txn_index
from odradek.tools.inspect.frames import REQUEST, RESPONSE, FrameKind, read_frames
from odradek.tools.inspect.logs import read_log
from odradek.tools.inspect.recordings import read_recording
from odradek.tools.inspect.text_files import (
    read_json,
    read_leader_epoch_checkpoint,
    read_nothing,
    read_offset_checkpoint,
    read_partition_metadata,
    read_properties,
)

Reader: TypeAlias = Callable[[bytes, int], Iterator[Finding]]

LOG = "log"
RECORDING = "recording"
METADATA_SNAPSHOT = "metadata-snapshot"
READERS: Mapping[str, Reader] = {
    "index": read_offset_index,
    "timeindex": read_time_index,
    "txnindex": read_txn_index,
    "snapshot": read_snapshot,
    "offset-checkpoint": read_offset_checkpoint,
    "leader-epoch-checkpoint": read_leader_epoch_checkpoint,
    "properties": read_properties,
    "partition-metadata": read_partition_metadata,
    "json": read_json,
    "lock": read_nothing,
    RECORDING: read_recording,
}
KINDS = (LOG, METADATA_SNAPSHOT, *READERS, REQUEST, f"{RESPONSE}:API:VERSION")

WHOLE_NAMES: Mapping[str, str] = {
    "leader-epoch-checkpoint": "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint": "offset-checkpoint",
    "log-start-offset-checkpoint": "offset-checkpoint",
    "replication-offset-checkpoint": "offset-checkpoint",
    "cleaner-offset-checkpoint": "offset-checkpoint",
    "meta.properties": "properties",
    "partition.metadata": "partition-metadata",
    "quorum-state": "json",
    ".kafka_cleanshutdown": "json",
    ".lock": "lock",
    "bootstrap.checkpoint": METADATA_SNAPSHOT,
}
# A segment's file, also while it waits to be unlinked or to take another's place.
BY_OFFSET = re.compile(
    r"(?P<offset>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\.swap)?"
)
SNAPSHOT_OF_METADATA = re.compile(r"\d{20}-\d{10}\.checkpoint(\.deleted)?")
PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-\d+(\.[0-9a-f]{32}-(delete|stray))?")


class UnknownFile(Exception):
    """Nothing is known that bears such a name."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What is to be read, and how."""

    path: Path
    kind: str
    base_offset: int
    topic: str | None

    def findings(self, *, with_records: bool = True) -> Iterator[Finding]:
        """Raises OSError at the first one."""
        data = self.path.read_bytes()
        if self.kind == LOG:
            return read_log(data, self.base_offset, self.topic, with_records=with_records)
        if self.kind == METADATA_SNAPSHOT:
            return read_log(data, 0, CLUSTER_METADATA, with_records=with_records)
        reader = READERS.get(self.kind)
        return read_frames(data, FrameKind.parse(self.kind)) if reader is None else reader(data, self.base_offset)


def recognised(path: Path, kind: str | None = None, topic: str | None = None) -> Inspected:
    """By its name, unless `kind` is given. Raises UnknownFile; ValueError for a kind that does not exist."""
    segment = BY_OFFSET.fullmatch(path.name)
    directory = PARTITION_DIRECTORY.fullmatch(path.absolute().parent.name)
    if kind is None:
        if segment is not None:
            kind = segment["kind"]
        elif SNAPSHOT_OF_METADATA.fullmatch(path.name):
            kind = METADATA_SNAPSHOT
        else:
            kind = WHOLE_NAMES.get(path.name) or (RECORDING if is_recording(path) else None)
        if kind is None:
            raise UnknownFile(f"no file of Kafka's is called {path.name}; --as says what it is: {', '.join(KINDS)}")
    elif kind not in (LOG, METADATA_SNAPSHOT, *READERS):
        FrameKind.parse(kind)
    return Inspected(
        path,
        kind,
        base_offset=0 if segment is None else int(segment["offset"]),
        topic=topic if topic is not None else directory["topic"] if directory else None,
    )


def is_recording(path: Path) -> bool:
    """By its first bytes: its name is the user's choice."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def files_below(directory: Path) -> Iterator[Path]:
    """All that are known, in order."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            try:
                recognised(path)
            except UnknownFile:
                continue
            yield path
