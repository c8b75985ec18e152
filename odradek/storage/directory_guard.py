"""Keeps jobs in threads away from the files of a partition that has been deleted.

Jobs reach files by name. After a partition is deleted, a new one with the same name may be created at once, and its
directory and files have the names that the job still holds.
"""

import errno
from threading import Lock
from types import TracebackType


class DirectoryGone(OSError):
    """The partition was deleted; what is left of the job does not matter any more."""

    def __init__(self) -> None:
        super().__init__(errno.ENOENT, "the partition was deleted")


class DirectoryGuard:
    """One per log. Within `with guard:` the directory is this log's; keep it short, the loop may be waiting."""

    __slots__ = ("_is_gone", "_lock")

    def __init__(self) -> None:
        self._is_gone = False
        self._lock = Lock()

    def take_away(self) -> None:
        """Called before the directory is renamed."""
        with self._lock:
            self._is_gone = True

    def __enter__(self) -> None:
        """Raises DirectoryGone."""
        self._lock.acquire()
        if self._is_gone:
            self._lock.release()
            raise DirectoryGone

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
