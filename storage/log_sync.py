"""Making a log's writes durable, away from the loop.

ticket = log.start_sync()   loop: what is to be synced, as it is now
ticket.run()                thread: index files, snapshots, fdatasync; never raises
log.finish_sync(ticket)     loop: the recovery point moves, or the log goes offline
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.checkpoints import encode_epochs
from storage.disk import Disk, DiskFile
from storage.file_names import LEADER_EPOCHS
from storage.leader_epochs import LeaderEpochs
from storage.producer_snapshot import encode_snapshot
from storage.producer_state import ProducerEntry
from storage.segment import Segment


@dataclass(slots=True)
class SnapshotToWrite:
    path: str
    entries: dict[int, ProducerEntry]

    def write(self, disk: Disk) -> None:
        write_durably(disk, self.path, encode_snapshot(self.entries.values()))


@dataclass(slots=True)
class SyncTicket:
    """Everything below `end_offset`, once `run` has come back without an error."""

    disk: Disk
    directory: str
    end_offset: int
    active: DiskFile | None  # None when nothing was written to it
    rolled: list[Segment] = field(default_factory=list)  # inactive, and not synced yet
    snapshots: list[SnapshotToWrite] = field(default_factory=list)
    leader_epochs: list[tuple[int, int]] | None = None  # where the checkpoint lags behind
    sync_parent: bool = False  # the partition's directory itself is new
    sync_directory: bool = False  # files in it are new
    error: OSError | None = None

    def run(self) -> None:
        try:
            self._run()
        except OSError as error:
            self.error = error

    def _run(self) -> None:
        disk = self.disk
        for segment in self.rolled:
            segment.file.sync()
            write_index_files(disk, segment)
        for snapshot in self.snapshots:
            snapshot.write(disk)
        if self.active is not None:
            self.active.sync()
        if self.leader_epochs is not None:
            disk.replace(f"{self.directory}/{LEADER_EPOCHS}", encode_epochs(self.leader_epochs))
        if self.sync_directory or self.rolled or self.snapshots:
            disk.sync_directory(self.directory)
        if self.sync_parent:
            disk.sync_directory(self.directory.rpartition("/")[0] or "/")


class Unsynced:
    """What has to become durable besides the bytes of the active segment."""

    __slots__ = ("directory_is_new", "names_changed", "rolled", "snapshots")

    def __init__(
        self, *, directory_is_new: bool, rolled: Iterable[Segment] = (), snapshots: Iterable[SnapshotToWrite] = ()
    ) -> None:
        self.directory_is_new = directory_is_new
        self.names_changed = directory_is_new  # files were made in the directory
        self.rolled = list(rolled)
        self.snapshots = list(snapshots)

    def forget(self, gone: Iterable[Segment]) -> None:
        """These segments are no longer part of the log."""
        gone_ids = set(map(id, gone))
        self.rolled = [segment for segment in self.rolled if id(segment) not in gone_ids]

    def take(
        self,
        disk: Disk,
        directory: str,
        end_offset: int,
        active: Segment,
        leader_epochs: LeaderEpochs,
    ) -> SyncTicket:
        """Everything so far, as one ticket; from now on only what comes later is unsynced."""
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
        )
        self.rolled, self.snapshots = [], []
        self.names_changed = self.directory_is_new = leader_epochs.is_dirty = False
        return ticket


def write_index_files(disk: Disk, segment: Segment) -> None:
    """The indexes as they stand, durably but for their names in the directory."""
    for path, data in segment.index_files():
        write_durably(disk, path, data)


def write_durably(disk: Disk, path: str, data: bytes) -> None:
    """Not in one step: for files that are made anew after a crash in between."""
    disk.write_bytes(path, data)
    disk.open(path).sync()
