"""Tests that file operations give the same guarantees on every system. `make test-elsewhere` runs these tests with the
fallbacks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.system import files
from odradek.system.files import COPY_BYTES, NOWAIT, lock, open_file, pread, pwrite, pwritev, read_if_cached


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = open_file(f"{tmp_path}/file", os.O_RDWR | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


def test_bytes_are_written_and_read_at_their_positions(file: int) -> None:
    assert pwrite(file, b"abc", 10) == 3
    assert pwritev(file, [b"de", bytearray(b"f"), memoryview(b"gh")], 13) == 5
    assert pread(file, 100, 9) == b"\0abcdefgh"
    assert pread(file, 2, 11) == b"bc"
    assert pread(file, 1, 18) == b""


def test_a_cached_read_returns_the_bytes_or_refuses(file: int) -> None:
    pwrite(file, b"abc", 0)
    data = bytearray(3)
    if NOWAIT:
        assert read_if_cached(file, [data], 0, NOWAIT) == 3
        assert data == b"abc"
    else:
        with pytest.raises(BlockingIOError):
            read_if_cached(file, [data], 0, NOWAIT)


def test_a_file_is_created_emptied_or_required(tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    with pytest.raises(FileNotFoundError):
        open_file(path, os.O_RDWR, 0o600)
    first = open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
    pwrite(first, b"abc", 0)
    for flags, content in ((os.O_RDONLY, b"abc"), (os.O_RDWR | os.O_CREAT, b"abc"), (os.O_RDWR | os.O_TRUNC, b"")):
        again = open_file(path, flags, 0o600)
        assert pread(again, 3, 0) == content
        os.close(again)
    os.close(first)


def test_an_open_file_can_be_renamed_and_removed_and_is_still_read(tmp_path: Path) -> None:
    descriptor = open_file(f"{tmp_path}/file", os.O_RDWR | os.O_CREAT, 0o600)
    pwrite(descriptor, b"abc", 0)
    os.replace(f"{tmp_path}/file", f"{tmp_path}/file.deleted")
    os.unlink(f"{tmp_path}/file.deleted")
    assert pread(descriptor, 3, 0) == b"abc"
    os.close(descriptor)


def test_a_range_is_copied_to_the_current_position_of_another_file(tmp_path: Path, file: int) -> None:
    content = os.urandom(COPY_BYTES + 1000)
    pwrite(file, content, 0)
    target = open_file(f"{tmp_path}/target", os.O_WRONLY | os.O_CREAT, 0o600)
    position = 500
    while copied := files.copy_range(target, file, position, len(content)):
        position += copied
    os.close(target)
    assert (tmp_path / "target").read_bytes() == content[500:]


def test_files_directories_and_file_systems_are_synced(tmp_path: Path, file: int) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "unwritable").touch(0o400)
    files.sync(file)
    files.sync_directory(str(tmp_path))
    files.sync_file_system(str(tmp_path))


def test_a_lock_excludes_others_until_its_file_is_closed(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    first, second = (open_file(path, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    assert lock(first)
    assert not lock(second)
    os.close(first)
    assert lock(second, waits=True)
    os.close(second)


def test_a_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    script = (
        "import os, sys, time; from odradek.system.files import lock, open_file\n"
        "print(lock(open_file(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)), flush=True)\n"
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline().strip() == b"True"
        descriptor = open_file(path, os.O_RDWR, 0o600)
        assert not lock(descriptor)
        holder.kill()
        holder.wait()
    assert lock(descriptor)
    os.close(descriptor)


def test_the_space_of_a_file_system_is_at_least_what_is_available(tmp_path: Path) -> None:
    total, available = files.space_bytes(str(tmp_path))
    assert total >= available > 0
