"""The logs of partitions, as metadata asks for them: found in the data directory, made there, or taken out of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Timers
from broker.workers import Outcome, Workers
from storage.log_directory import remove_directory_tree

if TYPE_CHECKING:
    from storage.disk import Disk
    from storage.log import Log
    from storage.log_config import LogConfig
    from storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)


class LogSource:
    """Implements what `broker.partitions` wants of the data directory."""

    def __init__(
        self,
        directory: LogDirectory,
        disk: Disk,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        *,
        new_hex: Callable[[], str],
    ) -> None:
        """`new_hex` makes the 32 digits that keep the directory of a deleted partition apart from any other."""
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._new_hex = new_hex
        self._existing = set(directory.partitions())

    def open_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """The log that is there, or a new one. Raises KafkaError if what is there cannot be used."""
        key = (topic, partition)
        now_ms = self._clock.now_ms()
        if key in self._existing:
            found_id = self._directory.topic_id_of(topic, partition)
            if found_id is None or found_id == topic_id:
                return self._directory.open_log(topic, partition, topic_id, config, now_ms=now_ms)
            # Its topic was deleted, and another one of this name made, before the directory could be taken away.
            logger.warning("%s-%d is left from a deleted topic of that name: removing it", topic, partition)
            self._delete(topic, partition, config.file_delete_delay_ms)
        self._existing.add(key)
        return self._directory.create_log(topic, partition, topic_id, config, now_ms=now_ms)

    def delete_log(self, log: Log) -> None:
        """Takes the log out of the way at once; its files go `file.delete.delay.ms` later."""
        self._delete(log.topic, log.partition, log.config.file_delete_delay_ms)

    def _delete(self, topic: str, partition: int, delay_ms: int) -> None:
        path = self._directory.delete_log(topic, partition, self._new_hex())
        self._existing.discard((topic, partition))
        remove = partial(remove_directory_tree, self._disk, path)
        self._timers.after(delay_ms, lambda: self._workers.run(remove, partial(self._removed, path)))

    def _removed(self, path: str, outcome: Outcome[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            logger.warning("%s could not be removed (the next start tries again): %s", path, error)
