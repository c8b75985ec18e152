"""Prevents jobs in threads from changing the files of a partition that has been deleted.

Jobs access files by name. After a partition is deleted, a new one with the same name may be created immediately, and
its directory and files then have the names that the job still uses.
"""

import errno
from threading import Lock
from types import TracebackType


class DirectoryGone(OSError):
    """The partition was deleted, so the rest of the job is no longer needed."""

    def __init__(self) -> None:
        super().__init__(errno.ENOENT, "the partition was deleted")


class DirectoryGuard:
    """Protects the directory of one log. Within `with guard:` it belongs to this log. Keep that short, because the loop
    may be waiting."""

    __slots__ = ("_is_gone", "_lock")

    def __init__(self) -> None:
        self._is_gone = False
        self._lock = Lock()

    def take_away(self) -> None:
        """Marks the directory as gone. Called before it is renamed."""
        with self._lock:
            self._is_gone = True

    def __enter__(self) -> None:
        """Locks the guard. Raises DirectoryGone if the directory no longer belongs to this log."""
        self._lock.acquire()
        if self._is_gone:
            self._lock.release()
            raise DirectoryGone

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
