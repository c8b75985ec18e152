"""Writes and reads the manifest of a clean shutdown. The next start uses it to detect files that have been damaged
since the shutdown.

Most of Kafka's files have no checksum: after a flipped bit, an index, checkpoint or topic id is wrong but still looks
valid. Layout: docs/formats/checkpoints.md. How a start treats each kind of changed file:
docs/formats/data-directory.md. Kafka ignores the manifest. Once Kafka has used the directory, the manifest is invalid,
because the mark of the clean shutdown then has a different broker epoch.
"""

from collections.abc import Iterable

from odradek.files.checkpoints import decode_clean_shutdown
from odradek.files.manifest import NO_FACTS, FactsByName, decode_manifest, facts_of, facts_of_log
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

CHANGE_ADVICE = f"If it was changed on purpose, remove {MANIFEST} in the data directory and start again"
READ_BACK_BYTES = 64 * 1024 * 1024  # maximum total size of files with unknown facts that are read at shutdown


def read_manifest(disk: Disk, path: str) -> dict[str, dict[str, str]]:
    """Returns the manifest of the data directory at `path`, or an empty dict if there is no valid manifest."""
    names = (f"{path}/{MANIFEST}", f"{path}/{CLEAN_SHUTDOWN}")
    if not all(map(disk.exists, names)):
        return {}
    data, mark = map(disk.read_bytes, names)
    return decode_manifest(data, decode_clean_shutdown(mark)) or {}


class ManifestMaker:
    """Collects the facts for the manifest, one closed log at a time.

    Reads the files whose facts are unknown, up to a limit. The next start cannot check files beyond that limit.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._may_read_bytes = READ_BACK_BYTES
        self.directories: dict[str, FactsByName] = {}

    def add_own(self, names: Iterable[str]) -> None:
        """Adds files that belong to the data directory itself."""
        self.directories["."] = self._facts(((name, f"{self._path}/{name}") for name in names), NO_FACTS)

    def add_log(self, directory: str, segments: Iterable[Segment], noted: FactsByName) -> None:
        """Adds a closed log's files.

        noted  facts about files that this log has written, or that have not changed since the previous shutdown
        """
        files = [(name, f"{directory}/{name}") for name in (PARTITION_METADATA, LEADER_EPOCHS)]
        logs = {}
        for segment in segments:
            base_offset = segment.base_offset
            logs[offset_file(base_offset, LOG)] = facts_of_log(segment.size_bytes)
            for suffix in (
                (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) if len(segment.txn_index) else (OFFSET_INDEX, TIME_INDEX)
            ):
                # The path may still end in `.swap`. The manifest contains the final name, because the next start
                # renames the file.
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
