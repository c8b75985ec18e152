"""Directories of deleted partitions: renamed at once, and removed from the disk after a delay.

A power failure may undo a rename until the data directory is synced. If a topic of the same name is in the metadata by
then, the old directory has the name of its partition.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.runtime.clock import Timers
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.runtime.workers import JobResult, Workers

if TYPE_CHECKING:
    from odradek.storage.disk import Disk
    from odradek.storage.log_directory import DeletedLog

logger = logging.getLogger(__name__)


class Discards:
    """Directories to be removed. The next start removes what the process leaves behind: the name says what it is."""

    def __init__(self, disk: Disk, data_directory: str, timers: Timers, workers: Workers) -> None:
        self._disk = disk
        self._data_directory = data_directory
        self._timers = timers
        self._workers = workers
        self._waiting: list[Deferred[None]] = []  # for a sync that has not begun

    def renamed(self) -> Deferred[None]:
        """Done when no power failure undoes the renames so far, or the sync has failed, which is logged. One sync for
        all topics of a request."""
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
            logger.error("%s cannot be synced: %s", self._data_directory, error)
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
