"""Directories of deleted partitions: renamed at once, and removed from the disk after a delay."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker.runtime.clock import Timers
from broker.runtime.workers import JobResult, Workers
from storage.log_directory import remove_directory_tree

if TYPE_CHECKING:
    from storage.disk import Disk

logger = logging.getLogger(__name__)


class Discards:
    """What is not removed when the process ends is removed by the next start: the directory's name says what it is."""

    def __init__(self, disk: Disk, timers: Timers, workers: Workers) -> None:
        self._disk = disk
        self._timers = timers
        self._workers = workers

    def discard(self, path: str, delay_ms: int) -> None:
        remove = partial(remove_directory_tree, self._disk, path)
        self._timers.after(delay_ms, lambda: self._workers.run(remove, partial(self._removed, path)))

    def _removed(self, path: str, outcome: JobResult[None]) -> None:
        try:
            outcome.result()
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)
