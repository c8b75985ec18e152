"""A data directory: its lock, its identity, how it was left, and the logs in it.

    open   take the lock · read meta.properties and the checkpoints · remove the mark of a clean shutdown, durably,
           before anything is written
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
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint_files import CheckpointFiles, CheckpointWrite
from odradek.storage.disk import Disk, HeldLock, make_directory_durably, remove_directory_tree
from odradek.storage.leftovers import remember_refusal
from odradek.storage.log import Log, LogWriteFailed, SyncTicket, no_jitter
from odradek.storage.log_config import LogConfig
from odradek.storage.log_state import KnownLog, LogState
from odradek.storage.log_sync import running_together
from odradek.storage.manifest import IF_CHANGED_BY_HAND, ManifestMaker, read_manifest
from odradek.storage.recovery import Checkpointed, CorruptLog, RefusedLog, load_log, new_log_state
from odradek.storage.segment import Segment
from odradek.storage.staging import TailCache
from odradek.storage.truncation import cut_files, last_kept

logger = logging.getLogger(__name__)


class WrongDirectory(Exception):
    """The data directory belongs to another node or cluster, or cannot be read at all."""


@dataclass(frozen=True, slots=True)
class DirectoryId:
    """The identity that wants to use a data directory. `new_directory_id` is given to one that has none yet."""

    node_id: int
    cluster_id: str | None  # None: whatever the directory says
    new_cluster_id: str
    new_directory_id: str


class LogDirectory:
    """Use `LogDirectory.open`. Logs are opened and created on the loop thread, or before it runs."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        lock: HeldLock,
        meta: MetaProperties,
        tail_cache: TailCache,
        left: dict[str, dict[str, str]],
    ) -> None:
        """left: by directory, what a clean stop said of its files"""
        self._disk = disk
        self.path = path
        self._lock = lock
        self.meta = meta
        self.was_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")  # how the last process left it
        self.last_broker_epoch: int | None = None  # of that process, where it told
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: dict[TopicPartition, str] = {}  # logs that could not be opened, and why
        self._tail_cache = tail_cache
        self._jitter_ms: Callable[[int], int] = no_jitter
        self._left = left
        self._checkpoints = CheckpointFiles(disk, path, left=left.get(".", {}), was_clean=self.was_clean)
        self._found: dict[TopicPartition, None] = {}  # those that have a directory
        self._topic_ids: dict[TopicPartition, bytes] = {}  # as their directories say
        self._known: dict[TopicPartition, KnownLog] = {}
        self._prepared: NewDirectories | None = None
        self._not_renamed: dict[TopicPartition, str] = {}  # deleted ones in the way of a new one, and their new path

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
        """Opens the data directory, making it where there is none, but not yet the logs in it.

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
        if self.was_clean or doomed:  # a power failure may still undo renames of a process that was killed
            self._disk.sync_directory(self.path)
        for name in doomed:
            remove_directory_tree(self._disk, f"{self.path}/{name}")
        for name in names:
            if (partition := partition_of(name)) is not None:
                self._found[partition] = None

    # --- the logs in it

    def expect(self, known: Mapping[TopicPartition, KnownLog]) -> None:
        """Takes note, before any log is opened, that the directory is a copy of one whose logs are known."""
        if not self.was_clean:
            self._known = dict(known)
            self._topic_ids.update((key, log.topic_id) for key, log in known.items() if log.topic_id is not None)

    def partitions(self) -> list[TopicPartition]:
        """Lists partitions that have a directory, whether opened or not."""
        return list(self._found)

    def topic_id_of(self, topic: str, partition: int) -> bytes | None:
        """The topic that the partition's directory was made for; None when the directory does not tell."""
        known = self._topic_ids.get((topic, partition))
        if known is None:
            path = f"{self._path_of(topic, partition)}/{PARTITION_METADATA}"
            try:
                data = self._disk.read_bytes(path)
                if not is_as_left(self._left_in(topic, partition), PARTITION_METADATA, data):
                    raise CorruptCheckpoint("it is not as the clean stop left it")
                known = decode_partition_metadata(data)
            except FileNotFoundError:
                return None
            except CorruptCheckpoint as error:
                logger.warning("%s is damaged (%s); the directory's name says whose it is", path, error)
                return None
            self._topic_ids[topic, partition] = known
        return known

    def open_log(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, now_ms: int) -> Log:
        """Opens a log that has a directory.

        topic_id   what metadata says; put into the directory if that does not tell
        raises     KafkaError KAFKA_STORAGE_ERROR for a damaged log or one that cannot be read: `failed` says why
        """
        key = (topic, partition)
        path = self._path_of(topic, partition)
        checkpointed = Checkpointed(
            self._checkpoints.recovery_point(key),
            self._checkpoints.log_start_offset(key),
            self.was_clean,
            self._left_in(topic, partition),
            self._known.pop(key, None),
        )
        try:
            state = load_log(self._disk, path, checkpointed, config, now_ms=now_ms)
            stored_id = self.topic_id_of(topic, partition)
            if stored_id is None and topic_id is not None:
                self._disk.write_bytes(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
                state.noted.pop(PARTITION_METADATA, None)
                state.is_new = True
        except (CorruptLog, OSError) as error:
            if isinstance(error, CorruptLog) and not isinstance(error, RefusedLog):
                remember_refusal(self._disk, path, str(error))
            self.failed[key] = str(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log = self._add(key, path, stored_id or topic_id, config, state)
        self._left.pop(partition_directory(topic, partition), None)  # from now on the log knows
        return log

    def prepare(self, partitions: Iterable[tuple[str, int, bytes]]) -> NewDirectories:
        """Directories that `create_log` is going to need, for a thread to make. Left out are those whose name a deleted
        partition may still have on the disk.

        partitions   topic, partition, topic id
        """
        wanted: dict[TopicPartition, tuple[str, bytes]] = {}
        for topic, partition, topic_id in partitions:
            key = (topic, partition)
            if key not in self._found and key not in self._not_renamed and not self._checkpoints.may_name(key):
                wanted[key] = (self._path_of(topic, partition), topic_id)
        self._prepared = NewDirectories(self._disk, wanted)
        return self._prepared

    def create_log(self, topic: str, partition: int, topic_id: bytes | None, config: LogConfig, *, now_ms: int) -> Log:
        """Makes the directory of a new partition. It survives a power failure from the log's first sync on.

        raises   KafkaError KAFKA_STORAGE_ERROR; also while the directory of a deleted one cannot be renamed
        """
        key = (topic, partition)
        path = self._path_of(topic, partition)
        try:
            if key in self._not_renamed:
                self._rename_deleted(key)
            if self._checkpoints.may_name(key):
                self.write_checkpoints()  # a new log must not be measured by a deleted one of its name
            if self._prepared is None or not self._prepared.take(key):
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
        """Cuts a log that is not busy, and opens what is left as after a crash. The `Log` from before is gone.

        offset   what is not wholly below it goes: a batch that holds it goes as a whole
        raises   KafkaError OFFSET_OUT_OF_RANGE, and nothing has changed; KAFKA_STORAGE_ERROR, as `open_log`
        """
        key = (topic, partition)
        log = self.logs[key]
        assert not log.is_busy, f"{log}: it is cut between writes"
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.abandon()
        log.recovery_point = min(log.recovery_point, log.segments[last_kept(log.segments, offset)].base_offset)
        checkpointed = Checkpointed(log.recovery_point, log.log_start_offset)
        try:
            self.write_checkpoints()  # first: a log that ends below its recovery point is damaged
            cut_files(self._disk, log.directory, log.segments, offset)
            state = load_log(self._disk, log.directory, checkpointed, log.config, now_ms=now_ms)
        except (CorruptLog, OSError) as error:
            self.failed[key] = str(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self._add(key, log.directory, log.topic_id, log.config, state)

    def delete_log(self, topic: str, partition: int, unique_hex: str) -> DeletedLog:
        """Takes a partition's directory out of sight.

        unique_hex   32 hexadecimal digits
        returns      what is to be removed `file.delete.delay.ms` later
        raises       OSError; then it is renamed before a partition of that name is made, or by the next start
        """
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            log.abandon()
        self.failed.pop((topic, partition), None)
        self._checkpoints.deleted((topic, partition))
        self._found.pop((topic, partition), None)
        self._topic_ids.pop((topic, partition), None)
        self._not_renamed[topic, partition] = f"{self.path}/{doomed_directory(topic, partition, unique_hex)}"
        return DeletedLog(self._rename_deleted((topic, partition)), () if log is None else log.segments)

    def _rename_deleted(self, key: TopicPartition) -> str:
        target = self._not_renamed[key]
        with suppress(FileNotFoundError):  # it could not even be made
            self._disk.rename(self._path_of(*key), target)
        return self._not_renamed.pop(key)

    def set_aside(self, topic: str, partition: int, unique_hex: str) -> str:
        """Renames the directory of a partition that nobody knows, so that one of that name can be made. It stays until
        somebody looks at it, as in Kafka. Returns its path from now on."""
        key = topic, partition
        self._found.pop(key, None)
        self._topic_ids.pop(key, None)
        self._checkpoints.deleted(key)
        target = f"{self.path}/{stray_directory(topic, partition, unique_hex)}"
        self._disk.rename(self._path_of(topic, partition), target)
        return target

    def _left_in(self, topic: str, partition: int) -> dict[str, str]:
        return self._left.get(partition_directory(topic, partition), {})

    def _path_of(self, topic: str, partition: int) -> str:
        return f"{self.path}/{partition_directory(topic, partition)}"

    def checkpoint(self) -> CheckpointWrite:
        """Recovery points, log start offsets and high watermarks as they are now, for a thread to put in place."""
        return self._checkpoints.write(self.logs)

    def is_checkpointed(self) -> bool:
        return self._checkpoints.are_current(self.logs)

    def write_checkpoints(self) -> None:
        """The same at once. Waits for the disk."""
        self.checkpoint().run()

    def space_bytes(self) -> tuple[int, int]:
        """(total, usable) of the file system that it lies on. Raises OSError."""
        return self._disk.space_bytes(self.path)

    def read_cleaner_offsets(self) -> dict[TopicPartition, int]:
        """How far compaction has come."""
        return self._checkpoints.read_cleaner_offsets()

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._checkpoints.write_cleaner_offsets(offsets)

    # --- leaving

    def close(self, *, broker_epoch: int = -1) -> None:
        """Closes every log, and marks the directory as cleanly shut down if that went well. Waits for the disk.

        raises   LogWriteFailed, OSError: the next start will read the logs; the lock is let go in any case
        """
        for _ in self.closing(broker_epoch):
            pass

    def closing(self, broker_epoch: int) -> Iterator[None]:
        """Closes it step by step, as `close` does at once."""
        try:
            failure: LogWriteFailed | None = None
            tickets: list[tuple[Log, SyncTicket]] = []
            for log in list(self.logs.values()):
                yield
                try:
                    ticket = log.start_close()
                    if ticket is not None:
                        tickets.append((log, ticket))
                except LogWriteFailed as error:
                    failure = failure or error
            yield from running_together(self._disk, self.path, [ticket for _, ticket in tickets])
            for log, ticket in tickets:
                try:
                    log.finish_close(ticket)
                except LogWriteFailed as error:
                    failure = failure or error
            yield
            self.write_checkpoints()
            if failure is not None:
                raise failure
            if not self.failed:
                yield from self._writing_manifest(broker_epoch)
                self._disk.replace(f"{self.path}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))
        except BaseException:
            for _ in self.abandoning():
                pass
            raise
        yield from self.abandoning()

    def abandoning(self) -> Iterator[None]:
        """Closes every log step by step; nothing more is written."""
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
            maker.add_log(log.directory, log.segments, log.noted)
            yield
        self._disk.replace(f"{self.path}/{MANIFEST}", encode_manifest(broker_epoch, maker.directories))


class NewDirectories:
    """Directories of new partitions, made by a thread before the loop asks for them: a thousand take most of a second.

    A crash in between leaves what one between `create_log` and the first record leaves: an empty log.
    """

    def __init__(self, disk: Disk, wanted: dict[TopicPartition, tuple[str, bytes]]) -> None:
        """wanted: path and topic id of each"""
        self._disk = disk
        self._wanted = wanted
        self._made: set[TopicPartition] = set()

    def make(self) -> None:
        """For a thread. What fails is left to `create_log`, which tries it again and says why not."""
        for key, (path, topic_id) in self._wanted.items():
            with suppress(OSError):
                _make_partition_directory(self._disk, path, topic_id)
                self._made.add(key)

    def take(self, key: TopicPartition) -> bool:
        """Whether it was made. Once `make` has returned; each counts once."""
        if key in self._made:
            self._made.discard(key)
            return self._wanted.pop(key, None) is not None
        return False


def _make_partition_directory(disk: Disk, path: str, topic_id: bytes | None) -> None:
    disk.make_directory(path)
    if topic_id is not None:
        disk.write_bytes(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """path   its directory, under its last name"""

    path: str
    segments: tuple[Segment, ...]

    def remove(self, disk: Disk) -> None:
        """For a thread; may be repeated after a failure."""
        # Closed before they are unlinked, and here: closing an unlinked file frees its pages, for 0.3 s per gigabyte.
        for segment in self.segments:
            segment.let_go()
        remove_directory_tree(disk, self.path)


def _meta_properties(disk: Disk, path: str, identity: DirectoryId, left: FactsByName) -> MetaProperties:
    file = f"{path}/{META_PROPERTIES}"
    if not disk.exists(file):
        meta = MetaProperties(
            identity.node_id, identity.cluster_id or identity.new_cluster_id, identity.new_directory_id
        )
        disk.replace(file, encode_meta_properties(meta))
        return meta
    try:
        data = disk.read_bytes(file)
        meta = decode_meta_properties(data)
    except CorruptCheckpoint as error:
        raise WrongDirectory(f"{file}: {error}") from None
    if meta.node_id != identity.node_id:
        raise WrongDirectory(f"{file}: belongs to node.id {meta.node_id}, not {identity.node_id}")
    if identity.cluster_id is not None and meta.cluster_id != identity.cluster_id:
        raise WrongDirectory(f"{file}: belongs to cluster {meta.cluster_id}, not {identity.cluster_id}")
    if not is_as_left(left, META_PROPERTIES, data):
        raise WrongDirectory(f"{file}: it is not as the clean stop left it. {IF_CHANGED_BY_HAND}")
    return meta
