"""Copies of a cluster's directory: the state of one moment, written by a thread, so that other clusters do not wait."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.storage.checkpoints import LOCK

MOST_OPENED = 1_000  # files; of larger directories the copy is made at once


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """File with the size that it had: its log may grow meanwhile, and its name may go."""

    name: str  # below the directory
    descriptor: int
    size_bytes: int

    def write(self, to: Path) -> None:
        """Over what is there: its pages need not be found and cleared again, which takes longer than the copy."""
        target = os.open(f"{to}/{self.name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            done = 0
            while done < self.size_bytes:
                written = os.sendfile(target, self.descriptor, done, self.size_bytes - done)
                if written == 0:  # it has been truncated
                    break
                done += written
            if os.fstat(target).st_size > done:
                os.ftruncate(target, done)
        finally:
            os.close(target)


async def copy(directory: Path, to: Path, *, and_then: Callable[[], None] | None = None) -> None:
    """Makes `to` hold what a directory holds in this turn of the loop, except its lock. Raises OSError.

    and_then   called in the same turn, once it is certain what is copied
    """
    folders, names = _below(str(directory))
    if len(names) > MOST_OPENED:
        _copy(directory, to)
        if and_then is not None:
            and_then()
        return
    files: list[OpenedFile] = []
    try:
        for name in names:
            files.append(_opened(directory, name))
        if and_then is not None:
            and_then()
        await asyncio.to_thread(_write, folders, names, files, to)
    finally:
        for each in files:
            os.close(each.descriptor)


async def put_back(directory: Path, to: Path) -> None:
    """The same of a directory that nobody changes meanwhile."""
    await asyncio.to_thread(_copy, directory, to)


def _copy(directory: Path, to: Path) -> None:
    folders, names = _below(str(directory))
    _write(folders, names, _opened_in_turn(directory, names), to)


async def remove(paths: Iterable[Path]) -> None:
    """Returns when they are gone."""
    there = [each for each in paths if each.exists()]
    if there:
        await asyncio.to_thread(_remove, there)


def _below(directory: str) -> tuple[list[str], list[str]]:
    """Returns the folders, each behind the one that holds it, and the files, by their paths below the directory."""
    folders, names = [""], []
    for folder in folders:  # which grows meanwhile
        with os.scandir(f"{directory}/{folder}") as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.name != LOCK:
                    names.append(name)
    return folders, names


def _opened(directory: Path, name: str) -> OpenedFile:
    descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    return OpenedFile(name, descriptor, os.fstat(descriptor).st_size)


def _opened_in_turn(directory: Path, names: Iterable[str]) -> Iterator[OpenedFile]:
    """Each is closed when the next one is asked for."""
    for name in names:
        file = _opened(directory, name)
        try:
            yield file
        finally:
            os.close(file.descriptor)


def _write(folders: Sequence[str], names: Iterable[str], files: Iterable[OpenedFile], to: Path) -> None:
    """names: of the files"""
    if to.exists():
        _leave_only(folders, names, str(to))
    for folder in folders:
        os.makedirs(f"{to}/{folder}", exist_ok=True)
    for file in files:
        file.write(to)


def _leave_only(folders: Iterable[str], names: Iterable[str], there: str) -> None:
    old_folders, old_names = _below(there)
    for name in set(old_names).difference(names):
        os.unlink(f"{there}/{name}")
    kept = set(folders)
    for folder in reversed(old_folders):
        if folder not in kept:
            os.rmdir(f"{there}/{folder}")


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
