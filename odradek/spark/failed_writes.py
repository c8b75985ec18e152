"""Records failed batch writes whose transactions may still be open, so that the next write on this machine can end
them.

Spark starts a new Python process for each commit and each abort of a batch write, so the session's next write cannot
rely on the memory of an earlier process. Each failed write is therefore recorded in a file, which is created before the
abort begins and removed once all transactions have ended. If the abort is killed, the file remains.

A process that handles a failed write holds a lock on the file. The lock is released when the process exits.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from odradek.system.files import is_own_and_private, lock, open_file, pread, pwrite
from odradek.system.processes import user_id

_SUFFIX = ".json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """The parts of a batch write's transactional ids, which identify the write."""

    bootstrap_servers: str
    sink: str
    run: str


def default_folder() -> Path:
    """Returns this user's folder for failed writes. The folder outlives the process."""
    return Path(tempfile.gettempdir()) / f"odradek-spark-failed-writes-{user_id()}"


class FailedWrites:
    """The folder of failed writes. If the folder cannot be used, nothing is recorded and a warning is logged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def recorded(self, write: FailedWrite) -> Iterator[None]:
        """Records the write before the block runs, and removes the record when the block exits without an error."""
        path = self._folder / f"{quote(write.sink, safe='')[:150]}.{write.run}{_SUFFIX}"
        try:
            self._require_folder()
            handle = open_file(str(path), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            _log.warning("a later write will not know that this write has failed: %s", error)
            yield
            return
        try:
            lock(handle, waits=True)
            os.ftruncate(handle, 0)
            pwrite(handle, json.dumps(asdict(write)).encode(), 0)
            yield
            path.unlink(missing_ok=True)
        finally:
            os.close(handle)

    def unfinished_writes(self, bootstrap_servers: str) -> Iterator[FailedWrite]:
        """Yields the recorded writes to these servers, except those that another process is handling. A record is
        removed when the caller asks for the next write, but remains if the caller raises an error or leaves the
        loop."""
        try:
            self._require_folder(creates=False)
            paths = sorted(self._folder.glob(f"*{_SUFFIX}"))
        except OSError:
            return
        for path in paths:
            try:
                handle = open_file(str(path), os.O_RDWR, 0)
            except OSError:
                continue
            try:
                if not lock(handle):
                    continue  # another process is handling this write
                write = FailedWrite(**json.loads(pread(handle, 1 << 16, 0)))
                if write.bootstrap_servers == bootstrap_servers:
                    yield write
                    path.unlink(missing_ok=True)
            except (OSError, TypeError, ValueError) as error:  # another process has not written the file yet
                _log.debug("%s is ignored: %s", path, error)
            finally:
                os.close(handle)

    def _require_folder(self, *, creates: bool = True) -> None:
        if creates:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        found = self._folder.lstat()
        if not is_own_and_private(found):
            raise PermissionError(f"{self._folder} is not a directory that only this user can use")
