"""Cluster directories, and consistent copies of them. The copies are written in threads, so that other clusters can
respond in the meantime."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from odradek.files.names import LOCK
from odradek.system.files import copy_range, open_file
from odradek.system.processes import is_alive

PREFIX = "odradek-clusters-"
IN_MEMORY = Path("/dev/shm")


def nothing_more() -> None:
    """Does nothing. The default of `and_then`."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """An open file, with its size at the time of opening. The file may grow, be renamed or be deleted before it is
    copied."""

    name: str  # path relative to the directory
    descriptor: int
    size_bytes: int

    def write(self, to: str) -> None:
        """Writes the file below the directory `to`.

        An existing file is overwritten in place, because allocating and clearing new pages would take longer than
        copying.
        """
        target = open_file(f"{to}/{self.name}", os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            done = 0
            while done < self.size_bytes:
                written = copy_range(target, self.descriptor, done, self.size_bytes - done)
                if written == 0:  # the file has been truncated
                    break
                done += written
            if os.fstat(target).st_size > done:
                os.ftruncate(target, done)
        finally:
            os.close(target)


class Copy(Protocol):
    """A function that copies a directory, such as `copy`."""

    async def __call__(
        self, directory: Path, to: Path, *, changed: Callable[[], list[str]], and_then: Callable[[], None]
    ) -> None: ...


async def copy(
    directory: Path,
    to: Path,
    *,
    changed: Callable[[], list[str]] = list,
    and_then: Callable[[], None] = nothing_more,
) -> None:
    """Copies a directory, without its lock file, as it was at a single moment. Raises OSError.

    First, a thread copies all files. Then, in one turn of the event loop, the files that changed during the copy are
    opened at their current size. Finally, a thread copies these files again.

    changed   returns the paths of files and folders that may have changed since `copy` was called; called in the turn
              in which the files are opened
    and_then  called in the same turn, after the changed files are opened
    """
    await asyncio.to_thread(_copy, directory, to)
    rest = _ChangedFiles(directory.as_posix(), to.as_posix())
    try:
        for path in changed():
            rest.add(path)
        and_then()
        await asyncio.to_thread(rest.write)
    finally:
        rest.close()


class _ChangedFiles:
    """Files and folders that changed during a copy and must be written or removed afterwards."""

    def __init__(self, directory: str, to: str) -> None:
        self._directory = directory
        self._to = to
        self._removed: list[str] = []
        self._folders: list[str] = []
        self._files: list[OpenedFile] = []

    def add(self, path: str) -> None:
        name = path.removeprefix(f"{self._directory}/")
        if not os.path.isdir(path):
            self._add_file(name)
            return
        folders, names = _paths_below(path)
        self._folders += [f"{name}/{each}" if each else name for each in folders]
        for each in names:
            self._add_file(f"{name}/{each}")

    def _add_file(self, name: str) -> None:
        try:
            self._files.append(_open_file(self._directory, name))
        except (FileNotFoundError, NotADirectoryError):
            self._removed.append(name)

    def write(self) -> None:
        for name in self._removed:
            _remove_one(f"{self._to}/{name}")
        for name in self._folders:
            os.makedirs(f"{self._to}/{name}", exist_ok=True)
        for file in self._files:
            os.makedirs(os.path.dirname(f"{self._to}/{file.name}"), exist_ok=True)
            file.write(self._to)

    def close(self) -> None:
        for each in self._files:
            os.close(each.descriptor)


def _copy(directory: Path, to: Path) -> None:
    """Copies the directory to `to`. Skips files that are deleted in the meantime."""
    folders, names = _paths_below(str(directory))
    if to.exists():
        _leave_only(folders, names, str(to))
    for folder in folders:
        os.makedirs(f"{to}/{folder}", exist_ok=True)
    for name in names:
        with suppress(FileNotFoundError):
            file = _open_file(str(directory), name)
            try:
                file.write(str(to))
            finally:
                os.close(file.descriptor)


async def remove(paths: Iterable[Path]) -> None:
    """Removes directories in a thread and waits until they are removed."""
    there = [each for each in paths if each.exists()]
    if there:
        await asyncio.to_thread(_remove, there)


def _paths_below(directory: str) -> tuple[list[str], list[str]]:
    """Returns the paths of all folders (each after its parent) and of all files, relative to the directory."""
    folders, names = [""], []
    for folder in folders:  # the loop body appends the folders that it finds
        try:
            entries = os.scandir(f"{directory}/{folder}")
        except FileNotFoundError:
            if not folder:
                raise
            continue  # the folder was renamed or deleted in the meantime
        with entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.name != LOCK:
                    names.append(name)
    return folders, names


def _open_file(directory: str, name: str) -> OpenedFile:
    descriptor = open_file(f"{directory}/{name}", os.O_RDONLY, 0)
    return OpenedFile(name, descriptor, os.fstat(descriptor).st_size)


def _leave_only(folders: Iterable[str], names: Iterable[str], there: str) -> None:
    old_folders, old_names = _paths_below(there)
    for name in set(old_names).difference(names):
        os.unlink(f"{there}/{name}")
    retained = set(folders)
    for folder in reversed(old_folders):
        if folder not in retained:
            os.rmdir(f"{there}/{folder}")


def _remove_one(path: str) -> None:
    """Removes a file or a folder if it exists."""
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path)
    except (FileNotFoundError, NotADirectoryError):
        pass


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def parent_of_roots() -> Path:
    return IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def fresh_root() -> Path:
    """Creates the directory for all clusters in this process. Also removes directories left behind by killed
    processes."""
    parent = parent_of_roots()
    for left in parent.glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
