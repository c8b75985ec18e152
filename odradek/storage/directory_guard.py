"""Prevents background threads from changing a deleted partition's files.

These threads open files by name. A new partition with the same name can be created immediately after the deletion. A
thread still working on the deleted partition would then change the new partition's files.
"""

import errno
from threading import Lock
from types import TracebackType


class DirectoryGone(OSError):
    """The partition has been deleted, so the rest of the job is no longer needed."""

    def __init__(self) -> None:
        super().__init__(errno.ENOENT, "the partition was deleted")


class DirectoryGuard:
    """Protects the directory of one log from concurrent renaming. Inside `with guard:`, the directory belongs to this
    log. Keep the block short, because the loop may be waiting for it."""

    __slots__ = ("_is_deleted", "_lock")

    def __init__(self) -> None:
        self._is_deleted = False
        self._lock = Lock()

    def take_away(self) -> None:
        """Marks the directory as no longer belonging to this log. Must be called before the directory is renamed."""
        with self._lock:
            self._is_deleted = True

    def __enter__(self) -> None:
        """Locks the guard. Raises DirectoryGone if the directory no longer belongs to this log."""
        self._lock.acquire()
        if self._is_deleted:
            self._lock.release()
            raise DirectoryGone

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
