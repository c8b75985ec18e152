"""The partitions that this broker leads, by topic name and by topic id, kept in step with the metadata log.

`Partitions` owns every `Partition`. It never changes in response to a request, but only after the metadata has changed.
`opening_topic` and `deleting_topic` are called after a commit. The directories of deleted partitions are renamed
immediately, and removed after a delay (`DirectoryRemovals`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.broker.metadata.node_partitions import new_partitions
from odradek.broker.partitions.group_commit import AppendFlush, LogSyncs
from odradek.broker.partitions.partition import Partition
from odradek.broker.runtime.clock import Clock, Timers
from odradek.broker.runtime.slices import Steps, run_to_end
from odradek.broker.runtime.waiting import Deferred
from odradek.broker.runtime.workers import JobResult, Workers
from odradek.broker.transactions.producers import Seals
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import INTERNAL_TOPICS

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.metadata.cluster_metadata import ClusterMetadata
    from odradek.broker.metadata.image import MetadataImage, PartitionImage, TopicImage
    from odradek.protocol.struct import Message
    from odradek.storage.disk import Disk
    from odradek.storage.log import Log
    from odradek.storage.log_config import LogConfig
    from odradek.storage.log_directory import DeletedLog, LogDirectory


logger = logging.getLogger(__name__)


class BrokerParts(Protocol):
    """The parts of the broker that most packages need. Each package adds the parts that only it needs."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def steady_clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def partitions(self) -> Partitions: ...


class DirectoryRemovals:
    """Removes renamed directories after a delay. If the process exits first, the next process recognises the
    directories by their names and removes them."""

    def __init__(self, disk: Disk, data_directory: str, timers: Timers, workers: Workers) -> None:
        self._disk = disk
        self._data_directory = data_directory
        self._timers = timers
        self._workers = workers
        self._waiting: list[Deferred[None]] = []  # callers waiting for a sync that has not started

    def sync_renames(self) -> Deferred[None]:
        """Returns a Deferred that resolves when all renames made so far can survive a power failure. It also resolves
        if the sync fails, in which case the failure is logged. All topics of a request share one sync."""
        durable: Deferred[None] = Deferred()
        self._waiting.append(durable)
        if len(self._waiting) == 1:
            self._timers.after(0, self._sync)
        return durable

    def _sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._workers.run(partial(self._disk.sync_directory, self._data_directory), partial(self._synced, waiting))

    def _synced(self, waiting: list[Deferred[None]], outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            logger.error("the data directory %s cannot be synced: %s", self._data_directory, error)
        for durable in waiting:
            durable.resolve(None)

    def discard(self, log: DeletedLog, delay_ms: int) -> None:
        remove = partial(log.remove, self._disk)
        self._timers.after(delay_ms, lambda: self._workers.run(remove, partial(self._removed, log.path)))

    def _removed(self, path: str, outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)


def nothing_more(partition: Partition) -> None:
    """Does nothing. Used as the default for `on_created`."""


class Partitions:
    def __init__(
        self,
        image: MetadataImage,
        log_directory: LogDirectory,
        *,
        node_id: int,
        log_config: Callable[[str], LogConfig],
        clock: Clock,
        flush: AppendFlush,
        syncs: LogSyncs,
        discard: Callable[[DeletedLog, int], None],
        new_uuid: Callable[[], bytes],
        two_phase: Container[int] = frozenset(),
        seals: Seals | None = None,
        on_created: Callable[[Partition], None] = nothing_more,
    ) -> None:
        """Creates a registry without open partitions; see `open_all`.

        log_config  returns a topic's current settings
        discard     removes a log's directory after a number of milliseconds
        two_phase   see `Partition`
        seals       see `Partition`
        on_created  called with each partition whose log has just been created
        """
        self._image = image
        self._log_directory = log_directory
        self.node_id = node_id
        self._log_config = log_config
        self._clock = clock
        self._flush = flush
        self._syncs = syncs
        self._discard = discard
        self._new_uuid = new_uuid
        self._two_phase = two_phase
        self._seals = Seals() if seals is None else seals
        self._on_created = on_created
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self.offline: set[tuple[str, int]] = set()  # topic and index of each partition whose log cannot be used
        self._found = set(log_directory.partitions())  # partitions that have a directory

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, topic: str, index: int) -> Partition:
        """Returns the partition. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER or KAFKA_STORAGE_ERROR."""
        partition = self._by_name.get((topic, index))
        if partition is None:
            raise self._error_for(self._image.topics.get(topic), index)
        return partition

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Returns the partition. Raises UNKNOWN_TOPIC_ID, or the same errors as `get`."""
        partition = self._by_id.get((topic_id, index))
        if partition is None:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            raise self._error_for(topic, index)
        return partition

    def of_topic(self, topic: str) -> list[Partition]:
        image = self._image.topics.get(topic)
        if image is None:
            return []
        keys = ((topic, partition.partition_id) for partition in image.partitions)
        return [self._by_name[key] for key in keys if key in self._by_name]

    def open_all(self) -> None:
        """Opens the logs of all partitions that the metadata assigns to this node."""
        run_to_end(self.opening())

    def opening(self) -> Steps[None]:
        """Opens the partitions in steps, so that the caller can choose when each step runs."""
        for topic in self._image.topics.values():
            yield from self.opening_topic(topic)

    def prepare(self, records: Sequence[Message]) -> Callable[[], None]:
        """Returns a function that prepares the partitions in these records. It can run in a thread before the metadata
        contains the records."""
        return self._log_directory.prepare(new_partitions(self._image, self.node_id, records)).make

    def opening_topic(self, topic: TopicImage) -> Steps[None]:
        """Opens a topic's partitions, one per step. Also used when partitions are added to a topic."""
        config = self._log_config(topic.name)
        for partition in topic.partitions:
            if self.node_id in partition.replicas and (topic.name, partition.partition_id) not in self._by_name:
                self._open(topic, partition, config)
                yield

    def truncate(self, topic: str, index: int, offset: int) -> None:
        """Truncates the log, as an unclean election does. The caller assigns the new leader epoch.

        raises   KafkaError, as `LogDirectory.truncate_log` does; KAFKA_STORAGE_ERROR takes the partition offline
        """
        partition = self.get(topic, index)
        try:
            log = self._log_directory.truncate_log(topic, index, offset, now_ms=self._clock.now_ms())
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                logger.error("%s is offline: %s", partition, error)
            raise
        partition.replace_truncated_log(log)

    def deleting_topic(self, topic: TopicImage) -> Steps[None]:
        """Removes a topic's partitions. The first step answers the requests waiting for the topic. After one more step
        per partition, the topic's name can be reused."""
        removed = []
        delay_ms = self._log_config(topic.name).file_delete_delay_ms
        for image in topic.partitions:
            key = (topic.name, image.partition_id)
            partition = self._by_name.pop(key, None)
            if partition is not None:
                del self._by_id[topic.topic_id, image.partition_id]
                partition.refuse_waiting_requests()
            if partition is not None or key in self.offline:
                self.offline.discard(key)
                removed.append(key)
        for key in removed:
            yield
            self._remove(key, delay_ms)

    def topic_config_changed(self, topic: str) -> None:
        partitions = self.of_topic(topic)
        if partitions:
            config = self._log_config(topic)
            for partition in partitions:
                partition.configure(config)

    def broker_config_changed(self) -> None:
        """Applies changes to the broker settings that are the defaults of topic settings."""
        for topic in self._image.topics:
            self.topic_config_changed(topic)

    def _open(self, topic: TopicImage, partition: PartitionImage, config: LogConfig) -> None:
        key = (topic.name, partition.partition_id)
        is_new = key not in self._found
        try:
            log = self._log(key, topic.topic_id, config)
        except (KafkaError, OSError) as error:
            logger.error("%s-%d is offline: %s", *key, error)
            self.offline.add(key)
            return
        log.assign_leader_epoch(partition.leader_epoch)
        opened = Partition(
            *key,
            topic.topic_id,
            log,
            flush=self._flush,
            syncs=self._syncs,
            is_internal=topic.name in INTERNAL_TOPICS,
            two_phase=self._two_phase,
            seals=self._seals,
        )
        self._by_name[key] = opened
        self._by_id[topic.topic_id, partition.partition_id] = opened
        if is_new:
            self._on_created(opened)

    def _log(self, key: tuple[str, int], topic_id: bytes, config: LogConfig) -> Log:
        now_ms = self._clock.now_ms()
        # A directory that was found at startup belongs to this topic, because directories of other topics with the same
        # name have been set aside (odradek/broker/metadata/node_partitions.py).
        if key in self._found:
            return self._log_directory.open_log(*key, topic_id, config, now_ms=now_ms)
        log = self._log_directory.create_log(*key, topic_id, config, now_ms=now_ms)
        self._found.add(key)
        return log

    def _remove(self, key: tuple[str, int], delay_ms: int) -> None:
        """Renames a partition's directory. Its files are removed later."""
        self._found.discard(key)
        try:
            self._discard(self._log_directory.delete_log(*key, self._new_uuid().hex()), delay_ms)
        except OSError as error:
            logger.error("%s-%d cannot be removed: %s", *key, error)

    def _error_for(self, topic: TopicImage | None, index: int) -> KafkaError:
        if topic is None or not 0 <= index < len(topic.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic.name, index) in self.offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class LedPartitions(Partitions):
    """The partitions as seen by one of several nodes that share the logs. A node only leads the partitions that the
    metadata assigns to it."""

    def __init__(self, whole: Partitions, node_id: int) -> None:
        self._image = whole._image
        self._log_directory = whole._log_directory
        self.node_id = node_id
        self._log_config = whole._log_config
        self._clock = whole._clock
        self._flush = whole._flush
        self._syncs = whole._syncs
        self._discard = whole._discard
        self._new_uuid = whole._new_uuid
        self._two_phase = whole._two_phase
        self._seals = whole._seals
        self._on_created = whole._on_created
        self._by_name = whole._by_name
        self._by_id = whole._by_id
        self.offline = whole.offline
        self._found = whole._found

    def get(self, topic: str, index: int) -> Partition:
        partition = super().get(topic, index)
        self._require_leader(partition)
        return partition

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        partition = super().get_by_id(topic_id, index)
        self._require_leader(partition)
        return partition

    def _require_leader(self, partition: Partition) -> None:
        if self._image.topics[partition.topic].partitions[partition.index].leader != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
