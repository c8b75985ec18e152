"""Opens and closes a data directory: its lock, its identity, its mark of a clean shutdown, and its logs.

    open   acquire the lock · read meta.properties and the checkpoints · remove the mark of a clean shutdown, durably,
           before anything is written · write the release into meta.properties, if it is newer than the recorded release
    close  close every log · write the checkpoints · write the mark last, and only if every log closed without an error

Layout: docs/formats/data-directory.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from odradek.files.checkpoints import (
    CorruptCheckpoint,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
)
from odradek.files.manifest import FactsByName, encode_manifest, is_as_left
from odradek.files.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOCK,
    LOG_START_OFFSETS,
    MANIFEST,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    doomed_directory,
    is_doomed_directory,
    partition_directory,
    partition_of,
    stray_directory,
)
from odradek.files.releases import NONE, OWN, Releases, release_order, releases_in, with_releases
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint_files import CheckpointFiles, CheckpointWrite
from odradek.storage.disk import Disk, HeldLock, make_directory_durably, remove_directory_tree
from odradek.storage.leftovers import remember_refusal
from odradek.storage.log import Log, LogFailed, SyncTicket, no_jitter
from odradek.storage.log_config import LogConfig
from odradek.storage.log_state import CopiedLogState, LogState
from odradek.storage.log_sync import running_together
from odradek.storage.manifest import CHANGE_ADVICE, ManifestMaker, read_manifest
from odradek.storage.recovery import CheckpointFacts, CorruptLog, RefusedLog, load_log, new_log_state
from odradek.storage.segment import Segment
from odradek.storage.staging import TailCache
from odradek.storage.truncation import cut_files, last_kept
from odradek.system.files import RENAMES_DIRECTORIES_IN_USE

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another node or cluster, or cannot be read at all."""


@dataclass(frozen=True, slots=True)
class DirectoryId:
    """The identity of the broker that opens a data directory. A new directory gets `new_directory_id`. It also gets
    `new_cluster_id`, unless `cluster_id` is set.

    releases  the broker's own release, and the oldest release that can read what the broker writes
    """

    node_id: int
    cluster_id: str | None  # None accepts any cluster
    new_cluster_id: str
    new_directory_id: str
    releases: Releases = OWN


class LogDirectory:
    """A data directory, opened with `LogDirectory.open`. Its logs are opened and created on the loop thread, or before
    the loop runs."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        lock: HeldLock,
        meta: MetaProperties,
        tail_cache: TailCache,
        left: dict[str, dict[str, str]],
    ) -> None:
        """`left` contains facts about the files of each directory, from the manifest of a clean shutdown. The caller
        has acquired `lock`."""
        self._disk = disk
        self.path = path
        self._lock = lock
        self.meta = meta
        # whether the last process shut the directory down cleanly
        self.was_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
        self.releases: Releases = NONE  # the releases recorded in the directory when it was opened
        self.last_broker_epoch: int | None = None  # broker epoch of the last process, if the epoch was recorded
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, str] = {}  # why a log could not be opened, by partition
        self._tail_cache = tail_cache
        self._jitter_ms: Callable[[int], int] = no_jitter
        self._left = left
        self._checkpoints = CheckpointFiles(disk, path, left=left.get(".", {}), was_clean=self.was_clean)
        self._found: dict[TopicPartition, None] = {}  # partitions that have a directory
        self._topic_ids: dict[TopicPartition, bytes] = {}  # the topic ids stored in the partitions' directories
        self._copied_states: dict[TopicPartition, CopiedLogState] = {}
        self._prepared: NewDirectories | None = None
        # The new path of each deleted partition's directory, if the directory has not been renamed yet.
        self._not_renamed: dict[TopicPartition, str] = {}

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: DirectoryId,
        *,
        tail_cache: TailCache | None = None,
        jitter_ms: Callable[[int], int] = no_jitter,
    ) -> LogDirectory:
        """Opens the data directory and creates it if necessary. Does not open its logs.

        raises   DirectoryInUse, WrongDirectory, OSError
        """
        path = path.rstrip("/") or "/"
        make_directory_durably(disk, path)
        lock = disk.lock(f"{path}/{LOCK}")
        try:
            left = read_manifest(disk, path)
            meta = _meta_properties(disk, path, identity, left.get(".", {}))
            directory = cls(disk, path, lock, meta, tail_cache or TailCache(), left)
            directory._jitter_ms = jitter_ms
            directory._read()
            directory._record_release(identity.releases)
        except CorruptCheckpoint as error:
            lock.release()
            raise WrongDirectory(str(error)) from None
        except BaseException:
            lock.release()
            raise
        return directory

    def _read(self) -> None:
        names = self._disk.list_directory(self.path)
        if self.was_clean:
            mark = f"{self.path}/{CLEAN_SHUTDOWN}"
            self.last_broker_epoch = decode_clean_shutdown(self._disk.read_bytes(mark))
            self._disk.unlink(mark)
        doomed = [name for name in names if is_doomed_directory(name)]
        if self.was_clean or doomed:  # a power failure could still undo renames by a process that was killed
            self._disk.sync_directory(self.path)
        for name in doomed:
            remove_directory_tree(self._disk, f"{self.path}/{name}")
        for name in names:
            if (partition := partition_of(name)) is not None:
                self._found[partition] = None

    def _record_release(self, own: Releases) -> None:
        """Records that this release uses the directory, before writing anything that only this release may understand.

        Must be called after the mark of a clean shutdown has been durably removed. If a crash left the mark behind, the
        next start would compare the file with the manifest and find that it has changed.
        """
        file = f"{self.path}/{META_PROPERTIES}"
        data = self._disk.read_bytes(file)
        self.releases = releases_in(data)
        if self.releases.after(own) != self.releases:
            self._disk.replace(file, with_releases(data, self.releases.after(own)))

    # --- logs

    def register_copied_states(self, known: Mapping[TopicPartition, CopiedLogState]) -> None:
        """Registers the known states of the logs if the directory is a copy. Must be called before any log is
        opened."""
        if not self.was_clean:
            self._copied_states = dict(known)
            self._topic_ids.update((key, log.topic_id) for key, log in known.items() if log.topic_id is not None)

    def partitions(self) -> list[TopicPartition]:
        """Returns all partitions that have a directory, whether their logs are open or not."""
        return list(self._found)

    def topic_id_of(self, topic: str, partition: int) -> bytes | None:
        """Returns the topic id stored in the partition's directory, or None if the directory contains none."""
        known = self._topic_ids.get((topic, partition))
        if known is None:
            path = f"{self._path_of(topic, partition)}/{PARTITION_METADATA}"
            try:
                data = self._disk.read_bytes(path)
                if not is_as_left(self._manifest_facts_of(topic, partition), PARTITION_METADATA, data):
                    raise CorruptCheckpoint("it has changed since the clean stop")
                known = decode_partition_metadata(data)
            except FileNotFoundError:
                return None
            except CorruptCheckpoint as error:
                logger.warning("%s is damaged (%s); the topic is taken from the directory's name", path, error)
                return None
            self._topic_ids[topic, partition] = known
        return known

    def open_log(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, now_ms: int) -> Log:
        """Opens a log whose directory exists.

        topic_id   id in the metadata; written into the directory if it contains none
        raises     KafkaError KAFKA_STORAGE_ERROR if the log is damaged or cannot be read; `failed` then contains the
                   reason
        """
        key = (topic, partition)
        path = self._path_of(topic, partition)
        checkpointed = CheckpointFacts(
            self._checkpoints.recovery_point(key),
            self._checkpoints.log_start_offset(key),
            self.was_clean,
            self._manifest_facts_of(topic, partition),
            self._copied_states.pop(key, None),
        )
        try:
            state = load_log(self._disk, path, checkpointed, config, now_ms=now_ms)
            stored_id = self.topic_id_of(topic, partition)
            if stored_id is None and topic_id is not None:
                self._disk.write_bytes(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
                state.manifest_facts.pop(PARTITION_METADATA, None)
                state.is_new = True
        except (CorruptLog, OSError) as error:
            if isinstance(error, CorruptLog) and not isinstance(error, RefusedLog):
                remember_refusal(self._disk, path, str(error))
            self.failed[key] = str(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log = self._add(key, path, stored_id or topic_id, config, state)
        self._left.pop(partition_directory(topic, partition), None)  # the log itself keeps these facts from now on
        return log

    def prepare(self, partitions: Iterable[tuple[str, int, bytes]]) -> NewDirectories:
        """Returns the directories that `create_log` is about to need, so that a thread can create them. Leaves out
        partitions that already have a directory, and names that a deleted partition may still use.

        partitions   tuples of topic, partition and topic id
        """
        directories: dict[TopicPartition, tuple[str, bytes]] = {}
        for topic, partition, topic_id in partitions:
            key = (topic, partition)
            if key not in self._found and key not in self._not_renamed and not self._checkpoints.may_name(key):
                directories[key] = (self._path_of(topic, partition), topic_id)
        self._prepared = NewDirectories(self._disk, directories)
        return self._prepared

    def create_log(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, now_ms: int) -> Log:
        """Creates a new partition's directory and its log. The directory survives a power failure once the log has been
        synced.

        raises   KafkaError KAFKA_STORAGE_ERROR if the disk fails, for example if a deleted partition's directory
                 still has this name and cannot be renamed
        """
        key = (topic, partition)
        path = self._path_of(topic, partition)
        try:
            if key in self._not_renamed:
                self._rename_deleted(key)
            if self._checkpoints.may_name(key):
                # The checkpoints of a deleted log must not be applied to a new log with the same name.
                self.write_checkpoints()
            if self._prepared is None or not self._prepared.take_created(key):
                _make_partition_directory(self._disk, path, topic_id)
            state = new_log_state(self._disk, path, now_ms=now_ms)
        except OSError as error:
            self.failed[key] = str(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.failed.pop(key, None)
        self._found[key] = None
        return self._add(key, path, topic_id, config, state)

    def _add(self, key: TopicPartition, path: str, topic_id: bytes | None, config: LogConfig, state: LogState) -> Log:
        log = self.logs[key] = Log(
            self._disk,
            path,
            *key,
            topic_id=topic_id,
            config=config,
            state=state,
            tail_cache=self._tail_cache,
            jitter_ms=self._jitter_ms,
        )
        return log

    def truncate_log(self, topic: str, partition: int, offset: int, *, now_ms: int) -> Log:
        """Truncates a log that is not busy and reopens it with the same steps as after a crash. The previous `Log`
        object must not be used again.

        offset   batches that are not entirely below this offset are removed
        raises   KafkaError OFFSET_OUT_OF_RANGE, and leaves the log unchanged; KAFKA_STORAGE_ERROR, as in `open_log`
        """
        key = (topic, partition)
        log = self.logs[key]
        assert not log.is_busy, f"{log}: the log cannot be truncated during a write"
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.abandon()
        log.recovery_point = min(log.recovery_point, log.segments[last_kept(log.segments, offset)].base_offset)
        checkpointed = CheckpointFacts(log.recovery_point, log.log_start_offset)
        try:
            # The checkpoints are written first, because a log that ends below its recovery point is considered damaged.
            self.write_checkpoints()
            cut_files(self._disk, log.directory, log.segments, offset)
            state = load_log(self._disk, log.directory, checkpointed, log.config, now_ms=now_ms)
        except (CorruptLog, OSError) as error:
            self.failed[key] = str(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self._add(key, log.directory, log.topic_id, log.config, state)

    def delete_log(self, topic: str, partition: int, unique_hex: str) -> DeletedLog:
        """Renames a partition's directory, so that it is no longer part of the data directory.

        unique_hex   32 hexadecimal digits
        returns      the files to remove after `file.delete.delay.ms`
        raises       OSError; the directory is renamed when a partition with this name is created, or at the next start
        """
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            log.abandon()
            if not RENAMES_DIRECTORIES_IN_USE:
                for segment in log.segments:
                    segment.close_file()
        self.failed.pop((topic, partition), None)
        self._checkpoints.deleted((topic, partition))
        self._found.pop((topic, partition), None)
        self._topic_ids.pop((topic, partition), None)
        self._not_renamed[topic, partition] = f"{self.path}/{doomed_directory(topic, partition, unique_hex)}"
        return DeletedLog(self._rename_deleted((topic, partition)), () if log is None else log.segments)

    def _rename_deleted(self, key: TopicPartition) -> str:
        target = self._not_renamed[key]
        with suppress(FileNotFoundError):  # the directory may never have been created
            self._disk.rename(self._path_of(*key), target)
        return self._not_renamed.pop(key)

    def set_aside(self, topic: str, partition: int, unique_hex: str) -> str:
        """Renames the directory of an unknown partition, so that a partition with this name can be created. As in
        Kafka, the directory stays on disk so that it can be examined. Returns its new path."""
        key = topic, partition
        self._found.pop(key, None)
        self._topic_ids.pop(key, None)
        self._checkpoints.deleted(key)
        target = f"{self.path}/{stray_directory(topic, partition, unique_hex)}"
        self._disk.rename(self._path_of(topic, partition), target)
        return target

    def _manifest_facts_of(self, topic: str, partition: int) -> dict[str, str]:
        return self._left.get(partition_directory(topic, partition), {})

    def _path_of(self, topic: str, partition: int) -> str:
        return f"{self.path}/{partition_directory(topic, partition)}"

    def checkpoint(self) -> CheckpointWrite:
        """Captures the current recovery points, log start offsets and high watermarks, so that a thread can write
        them."""
        return self._checkpoints.write(self.logs)

    def is_checkpointed(self) -> bool:
        return self._checkpoints.are_current(self.logs)

    def write_checkpoints(self) -> None:
        """Writes the checkpoints immediately. Waits for the disk."""
        self.checkpoint().run()

    def space_bytes(self) -> tuple[int, int]:
        """Returns the total and the available space of the directory's file system, in bytes. Raises OSError."""
        return self._disk.space_bytes(self.path)

    def read_cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Returns the offset up to which each log has been compacted."""
        return self._checkpoints.read_cleaner_offsets()

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._checkpoints.write_cleaner_offsets(offsets)

    # --- closing

    def close(self, *, broker_epoch: int = -1) -> None:
        """Closes every log and marks the directory as cleanly shut down if no error occurs. Waits for the disk.

        raises   LogFailed, OSError: the next start will then read the logs. The lock is released in any case.
        """
        for _ in self.closing(broker_epoch):
            pass

    def closing(self, broker_epoch: int) -> Iterator[None]:
        """Closes the directory as `close` does, one step per iteration."""
        try:
            failure: LogFailed | None = None
            tickets: list[tuple[Log, SyncTicket]] = []
            for log in list(self.logs.values()):
                yield
                try:
                    ticket = log.start_close()
                    if ticket is not None:
                        tickets.append((log, ticket))
                except LogFailed as error:
                    failure = failure or error
            yield from running_together(self._disk, self.path, [ticket for _, ticket in tickets])
            for log, ticket in tickets:
                try:
                    log.finish_close(ticket)
                except LogFailed as error:
                    failure = failure or error
            yield
            self.write_checkpoints()
            if failure is not None:
                raise failure
            if not self.failed:
                yield from self._writing_manifest(broker_epoch)
                self._disk.replace(f"{self.path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))
        except BaseException:
            for _ in self.steps_of_abandon():
                pass
            raise
        yield from self.steps_of_abandon()

    def steps_of_abandon(self) -> Iterator[None]:
        """Closes every log without writing, one step per iteration, and then releases the lock."""
        for log in list(self.logs.values()):
            log.abandon()
            for segment in log.segments:
                segment.close_file()
            yield
        self._tail_cache.clear()
        self._lock.release()

    def _writing_manifest(self, broker_epoch: int) -> Iterator[None]:
        maker = ManifestMaker(self._disk, self.path)
        maker.add_own((META_PROPERTIES, LOG_START_OFFSETS, RECOVERY_POINTS, CLEANER_OFFSETS))
        for log in list(self.logs.values()):
            maker.add_log(log.directory, log.segments, log.manifest_facts)
            yield
        self._disk.replace(f"{self.path}/{MANIFEST}", encode_manifest(broker_epoch, maker.directories))


class NewDirectories:
    """The directories of new partitions. A thread creates them before the loop needs them, because creating a thousand
    directories takes nearly a second.

    A crash before the partitions exist leaves empty logs, like a crash between `create_log` and the first record.
    """

    def __init__(self, disk: Disk, directories: dict[TopicPartition, tuple[str, bytes]]) -> None:
        """`directories` contains the path and topic id of each directory to create, by partition."""
        self._disk = disk
        self._directories = directories
        self._made: set[TopicPartition] = set()

    def make(self) -> None:
        """Creates the directories. Runs in a thread. If a creation fails, `create_log` tries again and reports the
        error."""
        for key, (path, topic_id) in self._directories.items():
            with suppress(OSError):
                _make_partition_directory(self._disk, path, topic_id)
                self._made.add(key)

    def take_created(self, key: TopicPartition) -> bool:
        """Returns whether `make` has created this directory. Returns True at most once for each directory. Must not be
        called before `make` has returned."""
        if key in self._made:
            self._made.discard(key)
            return self._directories.pop(key, None) is not None
        return False


def _make_partition_directory(disk: Disk, path: str, topic_id: bytes | None) -> None:
    disk.make_directory(path)
    if topic_id is not None:
        disk.write_bytes(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """A deleted log whose files still have to be removed.

    path   the path of the log's directory after its last renaming
    """

    path: str
    segments: tuple[Segment, ...]

    def remove(self, disk: Disk) -> None:
        """Removes the directory. Runs in a thread and may be called again after a failure."""
        # Close the files in this thread, before they are unlinked: closing an unlinked file frees its pages, which
        # takes 0.3 s per gigabyte.
        for segment in self.segments:
            segment.close_for_removal()
        remove_directory_tree(disk, self.path)


def _meta_properties(disk: Disk, path: str, identity: DirectoryId, left: FactsByName) -> MetaProperties:
    file = f"{path}/{META_PROPERTIES}"
    if not disk.exists(file):
        meta = MetaProperties(
            identity.node_id, identity.cluster_id or identity.new_cluster_id, identity.new_directory_id
        )
        disk.replace(file, with_releases(encode_meta_properties(meta), identity.releases))
        return meta
    data = disk.read_bytes(file)
    if is_as_left(left, META_PROPERTIES, data):  # otherwise the lines with the releases may be damaged
        _require_readable(path, releases_in(data), identity.releases)
    try:
        meta = decode_meta_properties(data)
    except CorruptCheckpoint as error:
        raise WrongDirectory(f"{file}: {error}") from None
    if meta.node_id != identity.node_id:
        raise WrongDirectory(f"{file} belongs to node.id {meta.node_id}, not {identity.node_id}")
    if identity.cluster_id is not None and meta.cluster_id != identity.cluster_id:
        raise WrongDirectory(f"{file} belongs to cluster {meta.cluster_id}, not {identity.cluster_id}")
    if not is_as_left(left, META_PROPERTIES, data):
        raise WrongDirectory(f"{file}: it has changed since the clean stop. {CHANGE_ADVICE}")
    return meta


def _require_readable(path: str, found: Releases, own: Releases) -> None:
    if release_order(found.since) > release_order(own.newest):
        raise WrongDirectory(
            f"the data directory {path} can be read by Odradek {found.since} and later, but this is Odradek"
            f" {own.newest}: start the later release, or choose another directory with --data-dir"
        )
