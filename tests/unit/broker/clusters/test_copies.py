"""A copy of a directory holds what that holds, whatever was in its place before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.broker.clusters.copies import copy, put_back
from odradek.storage.checkpoints import LOCK


def held(directory: Path) -> dict[str, bytes | None]:
    """None: a directory."""
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


def test_what_was_in_its_place_is_gone(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"a-0/log": b"short", "b-0/log": b"longer than before", "c": b"1"})
    before = {"a-0/log": b"much longer", "b-0/log": b"short", "gone-0/deep/log": b"x", "c/was/a/directory": b"x"}
    for make in (copy, put_back):
        there = filled(tmp_path / "there", before)
        asyncio.run(make(source, there))
        assert held(there) == held(source)
        (there / "c").unlink()


def test_a_file_that_grows_is_copied_as_it_was(tmp_path: Path) -> None:
    source = filled(tmp_path / "source", {"log": b"before"})

    async def copy_meanwhile() -> None:
        copying = asyncio.ensure_future(copy(source, tmp_path / "copy"))
        await asyncio.sleep(0)
        with (source / "log").open("ab") as file:
            file.write(b", and after")
        (source / "log").rename(source / "renamed")
        await copying

    asyncio.run(copy_meanwhile())
    assert held(tmp_path / "copy") == {"log": b"before"}
