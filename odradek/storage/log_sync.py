"""Makes a log's writes durable in a thread, without blocking the loop.

ticket = log.start_sync()   loop: captures the files to sync
ticket.run()                thread: index files, snapshots, fdatasync; never raises
log.finish_sync(ticket)     loop: moves the recovery point, or takes the log offline
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.files.checkpoints import encode_epochs
from odradek.files.manifest import facts_of
from odradek.files.names import LEADER_EPOCHS
from odradek.files.producer_snapshot import encode_snapshot
from odradek.storage.directory_guard import DirectoryGuard
from odradek.storage.disk import REPLACE_SUFFIX, Disk, DiskFile
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.producer_state import ProducerEntry
from odradek.storage.segment import Segment

_MIN_LOGS_PER_SYNC: Final = 8  # minimum number of logs for which one sync of the file system is cheaper


class SnapshotToWrite(NamedTuple):
    path: str
    entries: dict[int, ProducerEntry]


@dataclass(slots=True)
class SyncTicket:
    """One sync of a log. Once `run` has returned without an error, everything below `end_offset` is durable."""

    disk: Disk
    directory: str
    end_offset: int
    active: DiskFile | None  # None if nothing was written to the active segment
    rolled: list[Segment] = field(default_factory=list)  # inactive segments that are not synced yet
    snapshots: list[SnapshotToWrite] = field(default_factory=list)
    leader_epochs: list[tuple[int, int]] | None = None  # the entries to write; None if the checkpoint is up to date
    sync_parent: bool = False  # whether the partition's directory itself is new
    sync_directory: bool = False  # whether the directory contains new files
    guard: DirectoryGuard = field(default_factory=DirectoryGuard)
    error: OSError | None = None
    manifest_facts: dict[str, str] = field(default_factory=dict)  # facts about the written files, by file name

    def run(self) -> None:
        self.attempt(self._run)

    def _run(self) -> None:
        has_more = self.sync_directory or self.rolled or self.snapshots or self.leader_epochs is not None
        if self.active is not None and not has_more:
            self.active.sync()  # the usual case: only records were written
            return
        for file in self.write():
            file.sync()
        if self.put_in_place() or self.sync_directory:
            self.disk.sync_directory(self.directory)
        if self.sync_parent:
            self.disk.sync_directory(self.directory.rpartition("/")[0] or "/")

    def write(self) -> list[DiskFile]:
        """Writes all files that are not up to date. Returns the files to sync, beginning with those that contain
        records."""
        disk = self.disk
        files = [segment.file for segment in self.rolled]
        if self.active is not None:
            files.append(self.active)
        # These writes need not be atomic: after a crash before the sync, the files are rebuilt, because the recovery
        # point has not moved.
        contents = [index for segment in self.rolled for index in segment.index_files()]
        for snapshot in self.snapshots:
            producers = [entry.to_snapshot() for entry in snapshot.entries.values()]
            contents.append((snapshot.path, encode_snapshot(producers)))
        if self.leader_epochs is not None:
            contents.append((self._epochs_aside, encode_epochs(self.leader_epochs)))
        for path, data in contents:
            with self.guard:
                disk.write_bytes(path, data)
                files.append(disk.open(path))
            name = path.rpartition("/")[2].removesuffix(REPLACE_SUFFIX)
            self.manifest_facts[name] = facts_of(name, data)
        return files

    def put_in_place(self) -> bool:
        """Renames new files to their final names. Returns whether names in the directory have changed."""
        if self.leader_epochs is not None:
            with self.guard:
                self.disk.rename(self._epochs_aside, f"{self.directory}/{LEADER_EPOCHS}")
        return bool(self.rolled or self.snapshots or self.leader_epochs is not None)

    def attempt(self, step: Callable[[], object]) -> None:
        """Runs a step, unless an earlier step has failed."""
        if self.error is None:
            try:
                step()
            except OSError as error:
                self.error = error

    @property
    def _epochs_aside(self) -> str:
        return f"{self.directory}/{LEADER_EPOCHS}{REPLACE_SUFFIX}"


def running_together(disk: Disk, directory: str, tickets: Sequence[SyncTicket]) -> Iterator[None]:
    """Runs the tickets of many logs of one data directory in steps. If there are many tickets, syncs the file system
    twice, because that is faster than syncing each file. Never raises: each affected ticket holds the error."""
    if len(tickets) < _MIN_LOGS_PER_SYNC:
        for ticket in tickets:
            ticket.run()
            yield
        return
    for ticket in tickets:
        ticket.attempt(ticket.write)
        yield
    _sync_all(disk, directory, tickets)
    for ticket in tickets:
        ticket.attempt(ticket.put_in_place)
        yield
    _sync_all(disk, directory, tickets)


def _sync_all(disk: Disk, directory: str, tickets: Sequence[SyncTicket]) -> None:
    try:
        disk.sync_file_system(directory)
    except OSError as error:
        for ticket in tickets:
            ticket.error = ticket.error or error


class UnsyncedFiles:
    """The log's files that are not durable yet, except for the active segment's data."""

    __slots__ = ("directory_is_new", "names_changed", "rolled", "snapshots")

    def __init__(
        self, *, directory_is_new: bool, rolled: Iterable[Segment] = (), snapshots: Iterable[SnapshotToWrite] = ()
    ) -> None:
        self.directory_is_new = directory_is_new
        self.names_changed = directory_is_new  # whether files were created in the directory
        self.rolled = list(rolled)
        self.snapshots = list(snapshots)

    @property
    def is_empty(self) -> bool:
        return not (self.names_changed or self.rolled or self.snapshots)

    def remove_segments(self, removed: Iterable[Segment]) -> None:
        """Removes segments that are no longer part of the log."""
        gone_ids = set(map(id, removed))
        self.rolled = [segment for segment in self.rolled if id(segment) not in gone_ids]

    def make_ticket(
        self,
        disk: Disk,
        directory: str,
        end_offset: int,
        active: Segment,
        leader_epochs: LeaderEpochs,
        guard: DirectoryGuard,
    ) -> SyncTicket:
        """Moves everything that is not synced yet into a ticket and returns that ticket."""
        ticket = SyncTicket(
            disk,
            directory,
            end_offset,
            active.file if active.size_bytes else None,
            rolled=self.rolled,
            snapshots=self.snapshots,
            leader_epochs=leader_epochs.entries() if leader_epochs.is_dirty else None,
            sync_directory=self.names_changed,
            sync_parent=self.directory_is_new,
            guard=guard,
        )
        self.rolled, self.snapshots = [], []
        self.names_changed = self.directory_is_new = leader_epochs.is_dirty = False
        return ticket
