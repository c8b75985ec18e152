"""A disk in memory that counts its calls, fails on demand, and derives the states that a crash can leave.

    disk = FakeDisk(); …; disk.fail(7, Fault.EIO)      the seventh call from now fails
    disk.crash_before(7)                               … or the process dies before that call: `ProcessCrashed`
    for state in disk.after_power_failure(seed): …     each `state.disk` is one that a reboot may find
    disk.after_kill()                                  what remains if only the process died

A write survives a power failure if its file was synced afterwards. Otherwise it may survive completely, in part, or not
at all. A created, renamed or removed name survives if its directory was synced afterwards; otherwise it may or may not.
A failed sync makes nothing durable, and a later sync does not make up for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from random import Random

from odradek.storage.disk import REPLACE_SUFFIX, Buffer, DirectoryInUse, WouldBlock
from tests.support.fake_files import (
    BytesOnly,
    Chance,
    Directory,
    EverythingSurvives,
    File,
    NamesOnly,
    Node,
    OnlySyncedSurvives,
    Truncate,
    Write,
    copy_of,
    directories,
    files,
)


class ProcessCrashed(BaseException):
    """Raised when the process dies. Not an Exception, so no handler catches it."""


class Fault(Enum):
    EIO = errno.EIO
    ENOSPC = errno.ENOSPC
    SHORT = -1  # Half of a write succeeds. Other calls fail as with ENOSPC.


@dataclass(frozen=True, slots=True)
class CrashState:
    name: str
    disk: FakeDisk


class FakeDisk:
    def __init__(self, root: Directory | None = None) -> None:
        self._root = root or Directory()
        self._locked: set[str] = set()
        self._faults: dict[int, Fault] = {}
        self._crash_at: int | None = None
        self._half_write_at_crash = False
        self.calls = 0  # number of calls that changed the disk
        self.log: list[str] = []  # names and paths of the calls that changed the disk, in order
        self.now_ms = 0
        # called at each point where `crash_before` could kill the process
        self.before_call: Callable[[], None] | None = None

    # --- faults

    def fail(self, call: int, fault: Fault) -> None:
        """Makes the `call`-th call from now fail. The next call is number 1."""
        self._faults[self.calls + call] = fault

    def fail_from(self, call: int, fault: Fault, calls: int = 10_000) -> None:
        for number in range(call, call + calls):
            self.fail(number, fault)

    def heal(self) -> None:
        self._faults.clear()

    def crash_before(self, call: int, *, half_write: bool = False) -> None:
        """Makes the process die in place of the `call`-th call from now.

        half_write  if this call is a write, half of it is executed
        """
        self._crash_at = self.calls + call
        self._half_write_at_crash = half_write

    def evict(self) -> None:
        """Removes all files from the simulated page cache. Reading a file brings it back."""
        for file in files(self._root):
            file.is_cold = True

    def _call(self, name: str, path: str) -> Fault | None:
        if self.before_call is not None:
            self.before_call()
        self.calls += 1
        if self._crash_at is not None and self.calls >= self._crash_at:
            if self._half_write_at_crash and name == "write":
                self._half_write_at_crash = False
                return Fault.SHORT
            raise ProcessCrashed(f"at call {self.calls}, {name} {path}")
        self.log.append(f"{name} {path}")
        fault = self._faults.get(self.calls)
        if fault is not None and name != "write":
            raise _error(fault, name, path)
        return fault

    # --- Disk

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._call("create", path)
            node = File()
            parent.change(None, name, node)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        return FakeFile(self, node, path)

    def open_for_reading(self, path: str) -> FakeFile:
        return self.open(path)

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.open(path)._file.content)

    def write_bytes(self, path: str, data: Buffer) -> None:
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        if len(data):
            file.write_at([data], 0)

    def replace(self, path: str, data: Buffer) -> None:
        aside = path + REPLACE_SUFFIX
        self.write_bytes(aside, data)
        self.open(aside).sync()
        self.rename(aside, path)
        self.sync_directory(path.rpartition("/")[0])

    def exists(self, path: str) -> bool:
        try:
            parent, name = self._parent(path)
        except OSError:
            return False
        return name in parent.entries

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        return self.now_ms

    def list_directory(self, path: str) -> list[str]:
        return list(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        parts = [part for part in path.split("/") if part]
        here = self._root
        for depth, part in enumerate(parts):
            node = here.entries.get(part)
            if node is None:
                self._call("mkdir", "/" + "/".join(parts[: depth + 1]))
                node = Directory()
                here.change(None, part, node)
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "a file", path)
            here = node

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        target_parent, target_name = self._parent(target)
        assert parent is target_parent, "names only change within a directory here"
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._call("rename", f"{source} {target_name}")
        parent.change(name, target_name, node)

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if not isinstance(parent.entries.get(name), File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._call("unlink", path)
        parent.change(name, None, None)

    def remove_directory(self, path: str) -> None:
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        parent, name = self._parent(path)
        self._call("rmdir", path)
        parent.change(name, None, None)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self._call("sync_directory", path)
        directory.durable = dict(directory.entries)
        directory.pending = []

    def sync_file_system(self, path: str) -> None:
        all_files = list(files(self._root))
        try:
            self._call("sync_file_system", path)
        except OSError:
            for file in all_files:
                file.doom()
            raise
        for file in all_files:
            file.settle()
        for directory in directories(self._root):
            directory.durable = dict(directory.entries)
            directory.pending = []

    def space_bytes(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> FakeLock:
        if path in self._locked:
            raise DirectoryInUse(path)
        self.open(path, create=True)
        self._locked.add(path)
        return FakeLock(self._locked, path)

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _directory(self, path: str) -> Directory:
        here: Node = self._root
        for part in path.split("/"):
            if part:
                if not isinstance(here, Directory) or part not in here.entries:
                    raise FileNotFoundError(errno.ENOENT, "no such directory", path)
                here = here.entries[part]
        if not isinstance(here, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return here

    @property
    def fingerprint(self) -> bytes:
        """Returns a digest of all names and contents. Equal disks have equal digests."""
        digest = blake2b()
        for path, file in self._paths("", self._root):
            digest.update(f"{path} {len(file.content)} ".encode())
            digest.update(file.content)
        return digest.digest()

    def _paths(self, above: str, directory: Directory) -> Iterator[tuple[str, File]]:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, File):
                yield f"{above}/{name}", node
            else:
                yield from self._paths(f"{above}/{name}", node)

    # --- crashes

    def after_kill(self) -> FakeDisk:
        """Returns the disk as the next process finds it if only this process has died. It contains everything written
        so far."""
        return FakeDisk(copy_of(self._root, EverythingSurvives()))

    def after_power_failure(self, seed: int, random_states: int = 4) -> Iterator[CrashState]:
        """Yields some of the disks that a reboot may find: the two extremes, and `random_states` states drawn from
        `seed`."""
        yield CrashState("nothing unsynced survived", FakeDisk(copy_of(self._root, OnlySyncedSurvives())))
        yield CrashState("everything survived", FakeDisk(copy_of(self._root, EverythingSurvives())))
        yield CrashState("names survived, bytes did not", FakeDisk(copy_of(self._root, NamesOnly())))
        yield CrashState("bytes survived, names did not", FakeDisk(copy_of(self._root, BytesOnly())))
        for number in range(random_states):
            name = f"seed {seed}, state {number}"
            yield CrashState(name, FakeDisk(copy_of(self._root, Chance(Random(f"{seed}.{number}")))))


class FakeFile:
    __slots__ = ("__weakref__", "_disk", "_file", "_path")

    def __init__(self, disk: FakeDisk, file: File, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        fault = self._disk._call("write", self._path)
        if fault is Fault.SHORT:
            self._change(Write(position, data[: len(data) // 2]))
            if self._disk._crash_at is not None:
                raise ProcessCrashed(f"in the middle of a write to {self._path}")
        if fault is not None:
            raise _error(fault, "write", self._path)
        self._change(Write(position, data))

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        self._file.is_cold = False
        return bytes(self._file.content[position : position + size_bytes])

    def read_cached_at(self, size_bytes: int, position: int) -> Buffer:
        if self._file.is_cold:
            raise WouldBlock
        return self.read_at(size_bytes, position)

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        return not self._file.is_cold and position + size_bytes <= self.size()

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        return os.write(descriptor, self.read_at(size_bytes, position))

    def sync(self) -> None:
        try:
            self._disk._call("sync", self._path)
        except OSError:
            self._file.doom()
            raise
        self._file.settle()

    def truncate(self, size_bytes: int) -> None:
        self._disk._call("truncate", self._path)
        self._change(Truncate(size_bytes))

    def size(self) -> int:
        return len(self._file.content)

    def _change(self, change: Write | Truncate) -> None:
        change.apply(self._file.content)
        self._file.pending.append(change)


class FakeLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


def _error(fault: Fault, name: str, path: str) -> OSError:
    code = errno.ENOSPC if fault is Fault.SHORT else fault.value
    return OSError(code, f"injected into {name}", path)
