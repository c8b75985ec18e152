"""The only module in this package that opens files. The rest of the package uses `Disk`, so that tests can substitute a
disk that counts, fails and loses data (tests/support/fake_disk.py).

The storage package relies on these properties of a crash:

- A killed process loses nothing that it has written. A power failure may lose any write since the last `sync` of the
  file, in whole or in part, and any creation, renaming or removal since the last `sync_directory` of its directory.
- `replace` is atomic and durable: the file has either its old or its new content, and the new content once `replace`
  has returned.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from odradek.system import files
from odradek.system.files import NOWAIT, open_file, pread, pwrite, pwritev, read_if_cached, send_file, sync

Buffer: TypeAlias = bytes | bytearray | memoryview

# For larger writes the kernel allocates larger pages, which take up to 4 times as long per byte.
MAX_WRITE_BYTES: Final = 128 * 1024
MAX_WRITE_BUFFERS: Final = 512  # IOV_MAX is 1024 on Linux
SAMPLE_EVERY_BYTES: Final = 128 * 1024  # size of Linux's read-ahead
NOT_SENDABLE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)  # raised by file systems that lack sendfile
REPLACE_SUFFIX: Final = ".tmp"


class WouldBlock(Exception):
    """The requested bytes are not in the page cache, so the caller must read them in a thread."""


class DirectoryInUse(Exception):
    """Another process has locked the directory."""


class DiskFile(Protocol):
    """An open file. It has no `close` method, but is closed when the last reference to it disappears, so a thread that
    is still reading can never find its descriptor reused for another file."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes all of `buffers` at `position`. After an OSError, any part of them may have been written."""
        ...

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        """Reads `size_bytes` bytes, or fewer at the end of the file. May wait for the disk."""
        ...

    def read_cached_at(self, size_bytes: int, position: int) -> Buffer:
        """Like `read_at`, but raises WouldBlock instead of waiting."""
        ...

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        """Returns whether these bytes exist and are in the page cache, judging by samples. Returns False if the state
        of the page cache cannot be determined."""
        ...

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        """Sends up to `size_bytes` bytes to a non-blocking socket without copying them. Returns the number of bytes
        sent, which is 0 only at the end of the file. Waits for the disk if the bytes are not cached. Raises
        BlockingIOError if the socket's buffer is full."""
        ...

    def sync(self) -> None:
        """Ensures that all writes and the file size survive a power failure."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def size(self) -> int: ...


class HeldLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """The file operations that a broker uses. Paths are absolute, or relative to the working directory. Every method
    may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Opens a file for reading and writing. If `create` is set, creates the file if it does not exist. Existing
        content is kept."""
        ...

    def open_for_reading(self, path: str) -> DiskFile: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: Buffer) -> None:
        """Writes `data` as the new content of a file, which is created if necessary. The content is not durable until a
        sync."""
        ...

    def replace(self, path: str, data: Buffer) -> None:
        """Replaces the file's content with `data`, durably and atomically."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[str]:
        """Returns the names in the directory, in no particular order. Raises FileNotFoundError or
        NotADirectoryError."""
        ...

    def make_directory(self, path: str) -> None:
        """Creates a directory and its parents. Does nothing if the directory already exists."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file_system(self, path: str) -> None:
        """Syncs all files and directories of the file system that contains `path`."""
        ...

    def space_bytes(self, path: str) -> tuple[int, int]:
        """Returns the total size of the file system that contains `path`, and the space available to this user, both in
        bytes."""
        ...

    def lock(self, path: str) -> HeldLock:
        """Locks the file for this process and creates the file if necessary. Raises DirectoryInUse if another process
        has locked it."""
        ...


class RealFile:
    """An operating system file. Its descriptor is open as long as this object exists."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        fd = self._fd
        if len(buffers) == 1 and len(buffers[0]) <= MAX_WRITE_BYTES:  # the usual case: the batches of a single request
            written = pwrite(fd, buffers[0], position)
            if written != len(buffers[0]):
                _write_rest(fd, bytes(buffers[0])[written:], position + written)
            return
        size_bytes = sum(map(len, buffers))
        if size_bytes <= MAX_WRITE_BYTES and len(buffers) <= MAX_WRITE_BUFFERS:  # nearly always the case
            groups: Iterable[tuple[Sequence[Buffer], int]] = ((buffers, size_bytes),)
        else:
            groups = _groups(buffers)
        for group, size_bytes in groups:
            written = pwritev(fd, group, position)
            if written != size_bytes:
                _write_rest(fd, b"".join(group)[written:], position + written)
            position += size_bytes

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        data = pread(self._fd, size_bytes, position)
        if len(data) < size_bytes and data:  # a signal interrupted the read, or the file ends here
            parts = [data]
            missing = size_bytes - len(data)
            position += len(data)
            while missing > 0 and (data := pread(self._fd, missing, position)):
                parts.append(data)
                position += len(data)
                missing -= len(data)
            return b"".join(parts)
        return data

    def read_cached_at(self, size_bytes: int, position: int) -> Buffer:
        data = bytearray(size_bytes)
        try:
            size_read = read_if_cached(self._fd, [data], position, NOWAIT)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # Some file systems, such as certain network file systems, do not support RWF_NOWAIT.
            return self.read_at(size_bytes, position)
        if size_read < size_bytes:
            if position + size_read < os.fstat(self._fd).st_size:
                raise WouldBlock  # only the first part of these bytes is cached
            del data[size_read:]
        return data

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        fd, sample = self._fd, bytearray(1)
        last = position + size_bytes - 1
        try:
            for at in range(position, last, SAMPLE_EVERY_BYTES):
                read_if_cached(fd, [sample], at, NOWAIT)
            return read_if_cached(fd, [sample], last, NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return False

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        try:
            return send_file(descriptor, self._fd, position, size_bytes)
        except OSError as error:
            if error.errno not in NOT_SENDABLE:
                raise
        return os.write(descriptor, self.read_at(min(size_bytes, MAX_WRITE_BYTES), position))

    def sync(self) -> None:
        sync(self._fd)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)

    def size(self) -> int:
        return os.fstat(self._fd).st_size


class RealLock:
    """A locked file. The kernel unlocks it when the process ends, so a killed broker leaves no lock behind."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# New files are accessible only to their owner, because they contain records and credentials. A stricter umask may
# restrict them further.
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


class RealDisk:
    """A disk that uses the operating system's files."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        return RealFile(open_file(path, os.O_RDWR | (os.O_CREAT if create else 0), FILE_MODE))

    def open_for_reading(self, path: str) -> RealFile:
        return RealFile(open_file(path, os.O_RDONLY, FILE_MODE))

    def read_bytes(self, path: str) -> bytes:
        file = self.open_for_reading(path)
        return bytes(file.read_at(file.size(), 0))

    def write_bytes(self, path: str, data: Buffer) -> None:
        file = RealFile(open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE))
        if len(data):
            file.write_at([data], 0)

    def replace(self, path: str, data: Buffer) -> None:
        aside = path + REPLACE_SUFFIX
        self.write_bytes(aside, data)
        self.open(aside).sync()
        os.replace(aside, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_directory(self, path: str) -> list[str]:
        return os.listdir(path)

    def make_directory(self, path: str) -> None:
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except (FileExistsError, FileNotFoundError):  # makedirs alone is slower: it looks for the parent first
            os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        files.sync_directory(path)

    def sync_file_system(self, path: str) -> None:
        files.sync_file_system(path)

    def space_bytes(self, path: str) -> tuple[int, int]:
        return files.space_bytes(path)

    def lock(self, path: str) -> RealLock:
        fd = open_file(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            is_ours = files.lock(fd)
        except OSError:
            os.close(fd)
            raise
        if not is_ours:
            os.close(fd)
            raise DirectoryInUse(f"{path} is locked by another process")
        return RealLock(fd)


class ChangeTrackingDisk(RealDisk):
    """Records which paths are changed by name between `begin_notes` and `end_notes`, so that a copy made during that
    time can be corrected. Does not record writes to files that were already open."""

    def __init__(self) -> None:
        self._noted: set[str] | None = None  # threads also add paths to it

    def begin_notes(self) -> None:
        self._noted = set()

    def end_notes(self) -> list[str]:
        noted, self._noted = self._noted, None
        return list(noted or ())

    def _note(self, *paths: str) -> None:
        noted = self._noted
        if noted is not None:
            noted.update(paths)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        self._note(path)
        return super().open(path, create=create)

    def write_bytes(self, path: str, data: Buffer) -> None:
        self._note(path)
        super().write_bytes(path, data)

    def replace(self, path: str, data: Buffer) -> None:
        self._note(path)
        super().replace(path, data)

    def make_directory(self, path: str) -> None:
        self._note(path)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._note(source, target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._note(path)
        super().unlink(path)

    def remove_directory(self, path: str) -> None:
        self._note(path)
        super().remove_directory(path)


def make_directory_durably(disk: Disk, path: str) -> None:
    """Creates a directory and its parents so that they survive a power failure."""
    missing = []
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for new in reversed(missing):
        disk.make_directory(new)
        disk.sync_directory(new.rpartition("/")[0] or ("/" if new.startswith("/") else "."))


def remove_directory_tree(disk: Disk, path: str) -> None:
    """Removes a directory and its files. Runs in a thread and may be called again after a failure."""
    for name in disk.list_directory(path):
        disk.unlink(f"{path}/{name}")
    disk.remove_directory(path)


def _groups(buffers: Sequence[Buffer]) -> Iterator[tuple[list[Buffer], int]]:
    """Yields `buffers` in groups of at most MAX_WRITE_BYTES and MAX_WRITE_BUFFERS, each group with its size. Splits
    large buffers."""
    group: list[Buffer] = []
    group_bytes = 0
    for buffer in buffers:
        size_bytes = len(buffer)
        if group and (group_bytes + size_bytes > MAX_WRITE_BYTES or len(group) == MAX_WRITE_BUFFERS):
            yield group, group_bytes
            group, group_bytes = [], 0
        if size_bytes > MAX_WRITE_BYTES:
            view = memoryview(buffer)
            for start in range(0, size_bytes, MAX_WRITE_BYTES):
                part = view[start : start + MAX_WRITE_BYTES]
                yield [part], len(part)
            continue
        group.append(buffer)
        group_bytes += size_bytes
    if group:
        yield group, group_bytes


def _write_rest(fd: int, data: bytes, position: int) -> None:
    """Writes the remaining bytes after a short write. If the disk is full, for example, this second write raises the
    error."""
    while data:
        written = pwrite(fd, data, position)
        if written == 0:
            raise OSError(errno.EIO, "a write made no progress")
        data = data[written:]
        position += written
