"""Copies of a cluster's directory: the state of one moment, written by a thread, so that other clusters do not wait."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
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
        target = os.open(f"{to}/{self.name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            done = 0
            while done < self.size_bytes:
                written = os.sendfile(target, self.descriptor, done, self.size_bytes - done)
                if written == 0:  # it has been truncated
                    break
                done += written
        finally:
            os.close(target)


async def copy(directory: Path, to: Path) -> None:
    """Copies what it holds in this turn of the loop, except its lock. Raises OSError."""
    folders, names = _below(str(directory))
    if len(names) > MOST_OPENED:
        copy_now(directory, to)
        return
    files: list[OpenedFile] = []
    try:
        for name in names:
            descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            files.append(OpenedFile(name, descriptor, os.fstat(descriptor).st_size))
        await asyncio.to_thread(_write, folders, files, to)
    finally:
        for each in files:
            os.close(each.descriptor)


def copy_now(directory: Path, to: Path) -> None:
    """Copies it where nothing may happen before the copy is made. Raises OSError."""
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns(LOCK), copy_function=shutil.copyfile)


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


def _write(folders: list[str], files: list[OpenedFile], to: Path) -> None:
    for each in folders:
        (to / each).mkdir()
    for file in files:
        file.write(to)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
