"""Data directories from an earlier Odradek, in which level 2 of `share.version` enabled acknowledgements in
transactions.

Each broker was either killed with `kill -9` or stopped cleanly. share_version_2/README.md describes the contents.
"""

import tarfile
import tempfile
from pathlib import Path

from tests.support.fake_disk import FakeDisk
from tests.support.metadata import DATA

ARCHIVES = Path(__file__).with_name("share_version_2")
RAISED, PENDING, RESOLVED = "raised", "pending", "resolved"
QUEUE, OUTPUT, GROUP, TRANSACTIONAL_ID = "queue", "output", "workers", "worker-1"


def unpacked(name: str, to: Path) -> Path:
    """Unpacks the directory `name` below `to` and returns its path."""
    found = to / name
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(found, filter="data")
    return found


def on_fake_disk(name: str) -> FakeDisk:
    """Returns a fake disk with the contents of the directory `name`, all synced."""
    with tempfile.TemporaryDirectory() as folder:
        return copied_from(unpacked(name, Path(folder)))


def copied_from(directory: Path) -> FakeDisk:
    """Returns a fake disk with the contents of a real directory, all synced."""
    disk = FakeDisk()
    disk.make_directory(DATA)
    for path in sorted(directory.rglob("*")):
        place = f"{DATA}/{path.relative_to(directory)}"
        if path.is_dir():
            disk.make_directory(place)
        else:
            disk.write_bytes(place, path.read_bytes())
    return disk.after_kill()
