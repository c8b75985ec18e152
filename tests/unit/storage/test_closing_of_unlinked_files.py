"""Tests that the last descriptor of an unlinked file is closed outside the event loop, because closing it waits until
the file's pages are freed. The garbage collector must not close it either, because it runs in the loop's thread."""

from weakref import WeakKeyDictionary

from odradek.storage.log_config import LogConfig
from tests.support.fake_disk import FakeDisk, FakeFile
from tests.support.log_builder import NOW_MS, LogOnDisk

UNIQUE = "0123456789abcdef" * 2


class WatchedDisk(FakeDisk):
    """A disk that records the names of unlinked files, and the names of those that were still open when they were
    unlinked."""

    def __init__(self) -> None:
        super().__init__()
        self.names: WeakKeyDictionary[FakeFile, str] = WeakKeyDictionary()
        self.unlinked: list[str] = []
        self.unlinked_while_open: list[str] = []

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        file = super().open(path, create=create)
        self.names[file] = name_of(path)
        return file

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.unlinked.append(name_of(path))
        if name_of(path) in self.names.values():
            self.unlinked_while_open.append(name_of(path))


def name_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".deleted")


def three_segments() -> tuple[LogOnDisk, WatchedDisk]:
    disk = WatchedDisk()
    given = LogOnDisk(disk, LogConfig(segment_bytes=100))
    for _ in range(3):
        given.append()
    return given, disk


def test_the_files_of_a_deleted_partition_are_closed_before_they_are_unlinked() -> None:
    given, disk = three_segments()
    segments = given.log.segments
    given.directory.delete_log("t", 0, UNIQUE).remove(disk)
    assert {f"{segment.base_offset:020}.log" for segment in segments} <= set(disk.unlinked)
    assert disk.unlinked_while_open == []


def test_segments_that_retention_removes_are_closed_when_they_are_unlinked() -> None:
    given, disk = three_segments()
    given.log.delete_records_before(2)
    removal = given.log.retention(NOW_MS)
    assert removal is not None
    removal.rename()
    assert {f"{offset:020}.log" for offset in (0, 1)} < set(disk.names.values())
    removal.unlink()
    assert list(disk.names.values()) == [f"{2:020}.log"]


def test_a_read_that_has_begun_keeps_the_file() -> None:
    given, disk = three_segments()
    file = given.log.segments[0].file
    size_bytes = given.log.segments[0].size_bytes
    given.directory.delete_log("t", 0, UNIQUE).remove(disk)
    assert len(file.read_at(size_bytes, 0)) == size_bytes
