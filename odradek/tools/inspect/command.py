"""Implements `odradek inspect FILE…`, which recognises a file's kind, prints its entries, and reports whether the
complete file could be read.

A file is recognised by the name that Kafka gives it. For a file with a different name, `--as` specifies the kind. The
exit status is 0 if everything could be read, 1 if something is damaged or cannot be read, and 2 if the command line is
wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from odradek.files import names
from odradek.protocol.decoded.messages import json_value
from odradek.protocol.recording import MAGIC
from odradek.protocol.topic_partition import CLUSTER_METADATA
from odradek.tools.inspect.entries import Damage, FileEntry, Finding, Note
from odradek.tools.inspect.frames import REQUEST, RESPONSE, FrameKind, read_frames, read_recording
from odradek.tools.inspect.logs import read_log
from odradek.tools.inspect.small_files import (
    read_json,
    read_leader_epoch_checkpoint,
    read_nothing,
    read_offset_checkpoint,
    read_offset_index,
    read_partition_metadata,
    read_properties,
    read_snapshot,
    read_time_index,
    read_txn_index,
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
    **dict.fromkeys(names.OFFSET_CHECKPOINTS, "offset-checkpoint"),
    names.LEADER_EPOCHS: "leader-epoch-checkpoint",
    names.META_PROPERTIES: "properties",
    names.PARTITION_METADATA: "partition-metadata",
    names.QUORUM_STATE: "json",
    names.CLEAN_SHUTDOWN: "json",
    names.LOCK: "lock",
    names.BOOTSTRAP_CHECKPOINT: METADATA_SNAPSHOT,
}
# The name of a segment's file. It ends with one of the suffixes if the file is about to be deleted or to replace
# another file.
BY_OFFSET = re.compile(
    r"(?P<offset>\d{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\.swap)?"
)
SNAPSHOT_OF_METADATA = re.compile(r"\d{20}-\d{10}\.checkpoint(\.deleted)?")
PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-\d+(\.[0-9a-f]{32}-(delete|stray))?")


class UnknownFile(Exception):
    """No known kind of file has a name like this."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A file to read, with the facts that its reader needs."""

    path: Path
    kind: str
    base_offset: int
    topic: str | None

    def findings(self, *, with_records: bool = True) -> Iterator[Finding]:
        """Yields the file's entries. OSError is raised when the first entry is requested."""
        data = self.path.read_bytes()
        if self.kind == LOG:
            return read_log(data, self.base_offset, self.topic, with_records=with_records)
        if self.kind == METADATA_SNAPSHOT:
            return read_log(data, 0, CLUSTER_METADATA, with_records=with_records)
        reader = READERS.get(self.kind)
        return read_frames(data, FrameKind.parse(self.kind)) if reader is None else reader(data, self.base_offset)


def recognised(path: Path, kind: str | None = None, topic: str | None = None) -> Inspected:
    """Recognises a file by its name, unless `kind` is given. Raises UnknownFile if the name is unknown, and ValueError
    if `kind` is unknown."""
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
            raise UnknownFile(
                f"{path.name} is not the name of a Kafka file; give its kind with --as: {', '.join(KINDS)}"
            )
    elif kind not in (LOG, METADATA_SNAPSHOT, *READERS):
        FrameKind.parse(kind)
    return Inspected(
        path,
        kind,
        base_offset=0 if segment is None else int(segment["offset"]),
        topic=topic if topic is not None else directory["topic"] if directory else None,
    )


def is_recording(path: Path) -> bool:
    """Returns whether the file begins like a recording. Its name does not matter, because users choose it freely."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def files_below(directory: Path) -> Iterator[Path]:
    """Yields all recognised files below a directory, in sorted order."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            try:
                recognised(path)
            except UnknownFile:
                continue
            yield path


SHOWN_CHARACTERS = 200
TIMES = frozenset({"timestamp", "maxTimestamp", "deleteHorizonMs"})


def json_line(path: str, finding: Finding) -> str:
    """Formats an entry as JSON. `at` is the position in bytes. Keys and values are strings if they are UTF-8, or
    {"base64": …} otherwise."""
    head: dict[str, Any] = {"file": path, "at": finding.position}
    match finding:
        case FileEntry():
            row = {**head, "kind": finding.kind, **finding.fields}
        case Damage():
            row = {**head, "kind": "damage", "reason": finding.reason}
        case Note():
            row = {**head, "kind": "note", "text": finding.text}
    return json.dumps(row, default=json_value)


def text_line(finding: Finding, *, is_full: bool = False) -> str:
    match finding:
        case Damage():
            return f"{finding.position:>10}  DAMAGED: {finding.reason}"
        case Note():
            return f"{finding.position:>10}  ({finding.text})"
    place = f"{finding.position:>10}" if finding.depth == 0 else " " * 10
    fields = {  # leaves out fields that only indicate "no producer" or "no transaction"
        name: value
        for name, value in finding.fields.items()
        if finding.kind != "batch" or not (value is False or value == -1)
    }
    words = [f"{name}={_shown(name, value, is_full)}" for name, value in fields.items()]
    return f"{place}  {'  ' * finding.depth}{finding.kind}  {' '.join(words)}"


def _shown(name: str, value: Any, is_full: bool) -> str:
    if name in TIMES and isinstance(value, int) and value >= 0:
        return f"{value}({_time(value)})"
    if isinstance(value, bytes):
        value = json_value(value)
        if isinstance(value, dict):
            return _cut(f"base64:{value['base64']}", is_full)
    if isinstance(value, str) and value and name not in ("key", "value") and value.isprintable() and " " not in value:
        return value
    return _cut(json.dumps(value, default=json_value, ensure_ascii=False), is_full)


def _cut(text: str, is_full: bool) -> str:
    if is_full or len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters, --full shows them)"


def _time(ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "no date"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


GOOD, DAMAGED, MISUNDERSTOOD = 0, 1, 2


def inspect(
    paths: Sequence[Path],
    *,
    kind: str | None = None,
    topic: str | None = None,
    as_json: bool = False,
    with_records: bool = True,
    is_full: bool = False,
    out: TextIO | None = None,
) -> int:
    """Prints files and returns the exit status. If a path is a directory, prints all recognised files in it."""
    out = sys.stdout if out is None else out
    status = GOOD
    for path in (found for each in paths for found in (files_below(each) if each.is_dir() else (each,))):
        try:
            findings = recognised(path, kind, topic).findings(with_records=with_records)
        except (UnknownFile, ValueError) as error:
            print(f"odradek inspect: {path}: {error}", file=sys.stderr)
            return MISUNDERSTOOD
        except OSError as error:
            print(f"odradek inspect: {path}: {error.strerror or error}", file=sys.stderr)
            status = DAMAGED
            continue
        if not as_json:
            _write(out, str(path))
        for finding in findings:
            _write(out, json_line(str(path), finding) if as_json else text_line(finding, is_full=is_full))
            if isinstance(finding, Damage):
                status = DAMAGED
                if not as_json:
                    print(f"{path}: damaged at byte {finding.position}: {finding.reason}", file=sys.stderr)
    return status


def _write(out: TextIO, line: str) -> None:
    """Writes a line. Replaces characters that the terminal cannot display."""
    out.write(line.encode(out.encoding or "utf-8", "backslashreplace").decode(out.encoding or "utf-8") + "\n")
