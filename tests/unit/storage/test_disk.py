"""Tests that the real disk's methods work as documented on a real file system."""

import errno
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from odradek.storage.disk import (
    MAX_WRITE_BUFFERS,
    MAX_WRITE_BYTES,
    SAMPLE_EVERY_BYTES,
    Buffer,
    ChangeTrackingDisk,
    DirectoryInUse,
    RealDisk,
    RealFile,
    WouldBlock,
)
from odradek.system.files import NOWAIT


def read_cached(file: RealFile, size_bytes: int, position: int) -> Buffer:
    """Reads without waiting for the disk if the system has NOWAIT. Otherwise the read is refused, and this function
    reads normally."""
    try:
        return file.read_cached_at(size_bytes, position)
    except WouldBlock:
        assert not NOWAIT
        return file.read_at(size_bytes, position)


@pytest.mark.parametrize(
    "buffers",
    [
        [b"one"],
        [b"one", bytearray(b"two"), memoryview(b"three")],
        [bytes([n % 251]) * 3 for n in range(MAX_WRITE_BUFFERS * 2 + 1)],
        [bytes(range(256)) * (MAX_WRITE_BYTES // 128 + 1)],
        [b"a" * (MAX_WRITE_BYTES - 1), b"b" * 2, b"c" * MAX_WRITE_BYTES],
        [b"", b"x", b""],
    ],
)
def test_buffers_are_written_one_behind_the_other_however_many_and_large(tmp_path: Path, buffers: list[Buffer]) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    file.write_at(buffers, 5)
    data = b"".join(buffers)
    assert file.size() == 5 + len(data)
    assert file.read_at(len(data) + 10, 5) == data
    assert read_cached(file, len(data) + 10, 5) == data


def test_a_write_that_does_not_fit_raises_after_what_did_fit(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError) as failure:  # noqa: PT011  # the code is looked at
            file.write_at([b"x" * 80, b"y" * 80], 0)  # the kernel writes only 100 bytes and reports this
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert failure.value.errno == errno.EFBIG
    assert file.size() == 100


def test_reading_ends_at_the_end_of_the_file(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    file.write_at([b"content"], 0)
    assert file.read_at(100, 3) == b"tent"
    assert read_cached(file, 100, 3) == b"tent"
    assert read_cached(file, 100, 50) == b""


def test_a_file_is_closed_when_nobody_has_it_any_more(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del file
    assert len(os.listdir("/proc/self/fd")) == before


def test_opening_without_create_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RealDisk().open(f"{tmp_path}/file")


def test_replacing_leaves_the_new_bytes_and_nothing_else(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.replace(f"{tmp_path}/file", b"a longer first content")
    disk.replace(f"{tmp_path}/file", b"second")
    assert disk.read_bytes(f"{tmp_path}/file") == b"second"
    assert disk.list_directory(str(tmp_path)) == ["file"]


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    disk = RealDisk()
    lock = disk.lock(f"{tmp_path}/.lock")
    with pytest.raises(DirectoryInUse):
        RealDisk().lock(f"{tmp_path}/.lock")
    lock.release()
    lock.release()
    disk.lock(f"{tmp_path}/.lock").release()


def test_syncs_of_files_directories_and_file_systems_succeed(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(f"{tmp_path}/a/b")
    disk.open(f"{tmp_path}/a/b/file", create=True).sync()
    disk.sync_directory(f"{tmp_path}/a/b")
    disk.sync_file_system(str(tmp_path))


def test_directories_are_listed_renamed_and_removed(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(f"{tmp_path}/a")
    disk.write_bytes(f"{tmp_path}/a/file", b"x")
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert disk.list_directory(f"{tmp_path}/b") == ["file"]
    assert disk.exists(f"{tmp_path}/b/file")
    assert disk.size(f"{tmp_path}/b/file") == 1
    disk.unlink(f"{tmp_path}/b/file")
    disk.remove_directory(f"{tmp_path}/b")
    assert disk.list_directory(str(tmp_path)) == []


def test_a_part_of_a_file_is_sent_up_to_what_the_socket_takes(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    content = bytes(range(256)) * 4096
    file.write_at([content], 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        position, received = 1000, b""
        while position < len(content):
            try:
                position += file.send_to(ours.fileno(), len(content) - position, position)
            except BlockingIOError:
                received += theirs.recv(1 << 20)
        ours.close()
        while data := theirs.recv(1 << 20):
            received += data
    assert received == content[1000:]


def test_nothing_is_sent_from_behind_the_end_of_a_file(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    file.write_at([b"content"], 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.send_to(ours.fileno(), 100, 7) == 0


def test_a_file_that_cannot_be_sent_by_the_kernel_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "no sendfile here")

    monkeypatch.setattr("odradek.storage.disk.send_file", refuse)
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    file.write_at([b"content"], 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.send_to(ours.fileno(), 100, 3) == 4
        assert theirs.recv(100) == b"tent"


@pytest.mark.linux
def test_written_bytes_are_cached_and_bytes_beyond_the_end_are_not(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/file", create=True)
    file.write_at([bytes(3 * SAMPLE_EVERY_BYTES)], 0)
    assert file.is_cached_at(3 * SAMPLE_EVERY_BYTES, 0)
    assert file.is_cached_at(1, 5)
    assert not file.is_cached_at(3 * SAMPLE_EVERY_BYTES, 1)


@pytest.mark.parametrize(("umask", "file_mode", "directory_mode"), [(0o022, 0o600, 0o700), (0o277, 0o400, 0o500)])
def test_created_files_are_accessible_only_to_their_owner(
    tmp_path: Path, umask: int, file_mode: int, directory_mode: int
) -> None:
    disk, before = RealDisk(), os.umask(umask)
    try:
        disk.make_directory(f"{tmp_path}/directory")
        disk.open(f"{tmp_path}/file", create=True)
        disk.write_bytes(f"{tmp_path}/whole", b"x")
        assert (tmp_path / "directory").stat().st_mode & 0o777 == directory_mode
        assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "whole")} == {file_mode}
    finally:
        os.umask(before)


@pytest.mark.linux  # Windows cannot rename a directory that contains an open file
def test_changes_of_names_are_noted(tmp_path: Path) -> None:
    disk, at = ChangeTrackingDisk(), str(tmp_path)
    disk.write_bytes(f"{at}/before", b"1")
    disk.begin_notes()
    disk.make_directory(f"{at}/a")
    disk.write_bytes(f"{at}/a/b", b"1")
    disk.replace(f"{at}/a/c", b"1")
    file = disk.open(f"{at}/a/d", create=True)
    disk.rename(f"{at}/a", f"{at}/e")
    disk.unlink(f"{at}/e/b")
    disk.make_directory(f"{at}/f")
    disk.remove_directory(f"{at}/f")
    assert disk.read_bytes(f"{at}/before") == b"1"
    noted = disk.end_notes()
    assert sorted(noted) == [f"{at}/{each}" for each in ("a", "a/b", "a/c", "a/c.tmp", "a/d", "e", "e/b", "f")]
    file.write_at([b"1"], 0)
    disk.unlink(f"{at}/before")
    assert disk.end_notes() == []
