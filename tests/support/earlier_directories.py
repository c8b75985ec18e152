"""Data directories that an Odradek wrote which kept acknowledgements in transactions under `share.version` 2.

They are as `kill -9` or a clean stop left them; what is in them stands in share_version_2/README.md.
"""

import tarfile
from pathlib import Path

from tests.support.fake_disk import FakeDisk
from tests.support.metadata import DATA

ARCHIVES = Path(__file__).with_name("share_version_2")
RAISED, PENDING, RESOLVED = "raised", "pending", "resolved"
QUEUE, OUTPUT, GROUP, TRANSACTIONAL_ID = "queue", "output", "workers", "worker-1"


def unpacked(name: str, to: Path) -> Path:
    """Returns the directory of this name below `to`."""
    found = to / name
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(found, filter="data")
    return found


def on_fake_disk(name: str) -> FakeDisk:
    """Everything on it is synced."""
    disk = FakeDisk()
    disk.make_directory(DATA)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        for member in archive:
            if member.isdir():
                disk.make_directory(f"{DATA}/{member.name}")
                continue
            content = archive.extractfile(member)
            assert content is not None
            disk.write_bytes(f"{DATA}/{member.name}", content.read())
    return disk.after_kill()
