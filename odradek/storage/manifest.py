"""Makes and reads the manifest of a clean stop, so that the next start can tell a file that was damaged since.

Most of Kafka's files carry no checksum: a flipped byte in an index, a checkpoint or a topic id is another index,
checkpoint or topic id. Layout: docs/formats/checkpoints.md; what is done about each file that is not as it was left:
docs/formats/data-directory.md. Kafka passes over the file; after Kafka has used the directory it counts no more, since
the mark of the clean shutdown then names another broker epoch.
"""

from collections.abc import Iterable

from odradek.files.checkpoints import decode_clean_shutdown
from odradek.files.manifest import NOTHING_NOTED, FactsByName, decode_manifest, facts_of, facts_of_log
from odradek.files.names import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCHS,
    LOG,
    MANIFEST,
    OFFSET_INDEX,
    PARTITION_METADATA,
    TIME_INDEX,
    TXN_INDEX,
    offset_file,
)
from odradek.storage.disk import Disk
from odradek.storage.segment import Segment

IF_CHANGED_BY_HAND = f"If somebody changed it on purpose, remove {MANIFEST} in the data directory and start again"
READ_BACK_BYTES = 64 * 1024 * 1024  # what a stop reads at most of files that it did not write itself


def read_manifest(disk: Disk, path: str) -> dict[str, dict[str, str]]:
    """Reads that of the data directory at `path`; empty where there is none that counts."""
    names = (f"{path}/{MANIFEST}", f"{path}/{CLEAN_SHUTDOWN}")
    if not all(map(disk.exists, names)):
        return {}
    data, mark = map(disk.read_bytes, names)
    return decode_manifest(data, decode_clean_shutdown(mark)) or {}


class ManifestMaker:
    """Takes the facts of one closed log after the other. Files that nobody took note of are read, up to a limit; the
    next start cannot check what lies beyond it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._may_read_bytes = READ_BACK_BYTES
        self.directories: dict[str, FactsByName] = {}

    def add_own(self, names: Iterable[str]) -> None:
        """Files of the data directory itself."""
        self.directories["."] = self._facts(((name, f"{self._path}/{name}") for name in names), NOTHING_NOTED)

    def add_log(self, directory: str, segments: Iterable[Segment], noted: FactsByName) -> None:
        """noted  of those files that the log has written, or that were as the stop before had left them"""
        files = [(name, f"{directory}/{name}") for name in (PARTITION_METADATA, LEADER_EPOCHS)]
        logs = {}
        for segment in segments:
            base_offset = segment.base_offset
            logs[offset_file(base_offset, LOG)] = facts_of_log(segment.size_bytes)
            for suffix in (
                (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) if len(segment.txn_index) else (OFFSET_INDEX, TIME_INDEX)
            ):
                # Its path may still end in `.swap`; the next start gives it its name.
                files.append((offset_file(base_offset, suffix), segment.path(suffix)))
        self.directories[directory.rpartition("/")[2]] = logs | self._facts(files, noted)

    def _facts(self, files: Iterable[tuple[str, str]], noted: FactsByName) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, path in files:
            facts = noted.get(name) or self._read_back(name, path)
            if facts is not None:
                found[name] = facts
        return found

    def _read_back(self, name: str, path: str) -> str | None:
        if self._may_read_bytes <= 0 or not self._disk.exists(path):
            return None
        data = self._disk.read_bytes(path)
        self._may_read_bytes -= len(data)
        return facts_of(name, data)
