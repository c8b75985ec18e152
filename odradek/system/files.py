"""Operations on files, by descriptor or by path. Every function may raise OSError.

pread, pwrite, pwritev  as in `os`; on Windows, they move the descriptor's position, under a lock
read_if_cached          preadv with RWF_NOWAIT; raises BlockingIOError on other systems, so that the caller reads in a
                        thread
send_file               sendfile to a socket; raises ENOSYS on other systems, so that the caller reads and writes
sync                    fdatasync; F_FULLFSYNC on macOS; FlushFileBuffers on Windows
copy_range              copies from a position of one file to the current position of another; returns the number of
                        bytes copied, which is 0 only at the end of the source
open_file               like os.open; on Windows, the file can be renamed and removed while it is open
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

COPY_BYTES: Final = 1024 * 1024

open_file: Callable[[str, int, int], int]
pread: Callable[[int, int, int], bytes]
pwrite: Callable[[int, Buffer, int], int]
pwritev: Callable[[int, Sequence[Buffer], int], int]
read_if_cached: Callable[[int, Sequence[bytearray], int, int], int]
send_file: Callable[[int, int, int, int], int]
copy_range: Callable[[int, int, int, int], int]
sync: Callable[[int], None]

# Locks for the functions that seek first, chosen by descriptor. Two threads that use different files rarely share a
# lock.
_locks: Final = [Lock() for _ in range(64)]


def _seek_and_read(descriptor: int, size_bytes: int, position: int) -> bytes:
    with _locks[descriptor % len(_locks)]:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, size_bytes)


def _seek_and_write(descriptor: int, buffer: Buffer, position: int) -> int:
    with _locks[descriptor % len(_locks)]:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, buffer)


def _write_joined(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    return pwrite(descriptor, b"".join(buffers), position)


def _never_cached(_descriptor: int, _buffers: Sequence[bytearray], _position: int, _flags: int) -> int:
    raise BlockingIOError(errno.EAGAIN, "this system does not report the contents of its page cache")


def _cannot_send(_socket: int, _file: int, _position: int, _size_bytes: int) -> int:
    raise OSError(errno.ENOSYS, "this system does not support sending files")


NOWAIT: int  # last argument of `read_if_cached`
if sys.platform == "linux" and hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv"):
    NOWAIT = os.RWF_NOWAIT
    read_if_cached = os.preadv
else:
    NOWAIT = 0
    read_if_cached = _never_cached

# On macOS, sendfile reports the number of sent bytes differently, so only Linux uses it.
if sys.platform == "linux" and hasattr(os, "sendfile"):
    send_file = os.sendfile
else:
    send_file = _cannot_send

if sys.platform == "win32":
    pread, pwrite, pwritev = _seek_and_read, _seek_and_write, _write_joined
else:
    pread, pwrite = os.pread, os.pwrite
    # Available since macOS 11.
    pwritev = os.pwritev if hasattr(os, "pwritev") else _write_joined


if sys.platform == "win32":
    import _winapi
    import msvcrt

    # FILE_SHARE_READ, FILE_SHARE_WRITE and FILE_SHARE_DELETE. The last of these, which os.open does not set, allows a
    # segment to be renamed and removed while a consumer is still reading it.
    _SHARE_ALL: Final = 0x1 | 0x2 | 0x4
    _CREATE_ALWAYS: Final = 2
    _OPEN_ALWAYS: Final = 4
    _TRUNCATE_EXISTING: Final = 5
    _FILE_ATTRIBUTE_NORMAL: Final = 0x80
    # On Windows, other processes cannot read locked bytes, so `lock` locks a byte beyond any content.
    _LOCKED_AT: Final = 1 << 30

    def _open_shared(path: str, flags: int, mode: int) -> int:
        access = _winapi.GENERIC_READ
        if flags & os.O_RDWR:
            access |= _winapi.GENERIC_WRITE
        elif flags & os.O_WRONLY:
            access = _winapi.GENERIC_WRITE
        if flags & os.O_CREAT:
            disposition = _CREATE_ALWAYS if flags & os.O_TRUNC else _OPEN_ALWAYS
        else:
            disposition = _TRUNCATE_EXISTING if flags & os.O_TRUNC else _winapi.OPEN_EXISTING
        handle = _winapi.CreateFile(
            path, access, _SHARE_ALL, _winapi.NULL, disposition, _FILE_ATTRIBUTE_NORMAL, _winapi.NULL
        )
        return msvcrt.open_osfhandle(handle, (flags & (os.O_RDWR | os.O_WRONLY)) | os.O_BINARY | os.O_NOINHERIT)

    open_file = _open_shared
    sync = os.fsync

    _OPEN_TO_SYNC: Final = os.O_RDWR  # Windows syncs only files that are open for writing
    # PermissionError means that a removed file is still open elsewhere.
    _GONE: Final = (FileNotFoundError, PermissionError)

    def sync_directory(path: str) -> None:
        """Does nothing, because Windows cannot sync a directory, and NTFS journals changes of names in order."""

    _sync_names = sync_directory

    def lock(descriptor: int, *, waits: bool = False) -> bool:
        """Locks an open file for this process until the file is closed. Returns False if another process has locked it.

        waits  whether to wait for the other process, for up to ten seconds
        """
        os.lseek(descriptor, _LOCKED_AT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

    def is_own_and_private(found: os.stat_result) -> bool:
        """Returns whether the path is a directory. On Windows, a directory for temporary files is always private to its
        user."""
        return stat.S_ISDIR(found.st_mode)

else:
    import fcntl

    open_file = os.open

    def _sync_to_the_medium(descriptor: int) -> None:
        """Syncs a file on macOS with F_FULLFSYNC, because fsync leaves the data in the drive's cache. Falls back to
        fsync on file systems that refuse F_FULLFSYNC, such as network file systems."""
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError:
            os.fsync(descriptor)

    _FULL_SYNC: int = getattr(fcntl, "F_FULLFSYNC", 0)
    if _FULL_SYNC:
        sync = _sync_to_the_medium
    elif sys.platform != "darwin" and hasattr(os, "fdatasync"):
        sync = os.fdatasync
    else:
        sync = os.fsync

    _OPEN_TO_SYNC: Final = os.O_RDONLY
    _GONE: Final = (FileNotFoundError,)

    def sync_directory(path: str) -> None:
        """Makes sure that the names in a directory survive a power failure."""
        _sync_names(path, sync if _FULL_SYNC else os.fsync)

    def _sync_names(path: str, sync_it: Callable[[int], None] = os.fsync) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_it(descriptor)
        finally:
            os.close(descriptor)

    def lock(descriptor: int, *, waits: bool = False) -> bool:
        """Locks an open file for this process until the file is closed. Returns False if another process has locked it.

        waits  whether to wait for the other process
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def is_own_and_private(found: os.stat_result) -> bool:
        """Returns whether the path is a directory that belongs to this user and that no other user can access."""
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


# Windows cannot rename a directory while a file in it is open.
RENAMES_DIRECTORIES_IN_USE: Final[bool] = sys.platform != "win32"


if sys.platform == "linux":

    def sync_file_system(path: str) -> None:
        """Syncs the file system that contains the directory `path`."""
        import ctypes  # only used at shutdown, so this import must not slow down the start

        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if libc.syncfs(descriptor):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(descriptor)

else:

    def sync_file_system(path: str) -> None:
        """Syncs all files and directories below the directory `path`, because only Linux can sync an entire file
        system."""
        _sync_tree(path)


def _sync_tree(path: str) -> None:
    """Syncs a directory and its contents. The last call also flushes the drive's cache for all of these files."""
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                descriptor = open_file(f"{directory}/{name}", _OPEN_TO_SYNC, 0)
            except _GONE:
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_names(directory)
    sync_directory(path)


def _read_and_write(target: int, source: int, position: int, size_bytes: int) -> int:
    return os.write(target, pread(source, min(size_bytes, COPY_BYTES), position))


# On Linux, sendfile can write to any file; on other systems, only to sockets.
copy_range = _read_and_write if send_file is _cannot_send else send_file


def space_bytes(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Returns the total size of the file system that contains `path`, and the space available to this user, both in
    bytes."""
    import shutil  # imported here so that it does not slow down the start

    found = shutil.disk_usage(path)
    return found.total, found.free
