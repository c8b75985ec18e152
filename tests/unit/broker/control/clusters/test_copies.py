"""Tests that a copy of a directory has exactly the original's files, whatever the target contained before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.broker.control.clusters.copies import copy
from odradek.files.names import LOCK
from odradek.storage.disk import ChangeTrackingDisk


def held(directory: Path) -> dict[str, bytes | None]:
    """Returns the contents of all files under a directory, keyed by relative path, and None for each subdirectory."""
    paths = directory.rglob("*")
    return {str(each.relative_to(directory)): None if each.is_dir() else each.read_bytes() for each in paths}


def filled(directory: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def test_all_but_the_lock_is_copied(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"a-0/log": b"records", "a-0/empty": b"", "point": b"1", LOCK: b""})
    (source / "a-1").mkdir()
    asyncio.run(copy(source, tmp_path / "copy"))
    assert held(tmp_path / "copy") == {k: v for k, v in held(source).items() if k != LOCK}


def test_a_copy_replaces_whatever_was_in_its_place(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"a-0/log": b"short", "b-0/log": b"longer than before", "c": b"1"})
    before = {"a-0/log": b"much longer", "b-0/log": b"short", "gone-0/deep/log": b"x", "c/was/a/directory": b"x"}
    there = filled(tmp_path / "there", before)
    asyncio.run(copy(source, there))
    assert held(there) == held(source)


def test_files_that_change_while_they_are_copied_are_copied_again_in_one_turn(tmp_path: Path) -> None:
    source = filled(
        tmp_path / "source", {"a-0/log": b"1", "b-0/log": b"2", "b-0/other": b"3", "c-0/log": b"4", "point": b"5"}
    )
    disk = ChangeTrackingDisk()
    disk.begin_notes()

    def change() -> list[str]:
        """Changes the original. The copy calls this function after a thread has copied everything and before the
        changed files are copied again."""
        disk.open(f"{source}/a-0/log").write_at([b"longer"], 0)
        disk.rename(f"{source}/b-0", f"{source}/b-0-delete")
        disk.unlink(f"{source}/c-0/log")
        disk.remove_directory(f"{source}/c-0")
        disk.replace(f"{source}/point", b"6")
        disk.make_directory(f"{source}/d-0")
        disk.write_bytes(f"{source}/d-0/metadata", b"7")
        return disk.end_notes()

    asyncio.run(copy(source, tmp_path / "copy", changed=change))
    assert held(tmp_path / "copy") == held(source)


def test_changes_after_the_turn_of_the_copy_are_not_in_the_copy(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"log": b"before", "other": b"1"})

    def go_on() -> None:
        with (source / "log").open("ab") as file:
            file.write(b", and after")
        (source / "log").rename(source / "renamed")

    asyncio.run(copy(source, tmp_path / "copy", changed=lambda: [f"{source}/log"], and_then=go_on))
    assert held(tmp_path / "copy") == {"log": b"before", "other": b"1"}
