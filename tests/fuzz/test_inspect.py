"""Tests that no reader of `odradek inspect` raises an exception, whatever the bytes. The bytes are random, or come from
Kafka's files with a few bytes changed."""

from pathlib import Path
from random import Random

import pytest

from odradek.tools.inspect.command import LOG, METADATA_SNAPSHOT, READERS, json_line, recognised, text_line
from tests.support.oracle import needs_oracle, unpack

ROUNDS = 12
TOPICS = ("__transaction_state", "__consumer_offsets", "__share_group_state", "__cluster_metadata", "t")


@pytest.mark.parametrize("kind", [LOG, METADATA_SNAPSHOT, "request", "response:Fetch:12", *READERS])
def test_inspect_never_fails_on_random_bytes(kind: str, tmp_path: Path) -> None:
    rng = Random(kind)
    path = tmp_path / "data"
    for _ in range(ROUNDS * 5):
        path.write_bytes(rng.randbytes(rng.choice((0, 1, 17, 64, 500))))
        show_everything(path, kind, rng.choice(TOPICS))


@needs_oracle
@pytest.mark.parametrize("name", ["groups", "transactions-tv2"])
def test_inspect_never_fails_on_changed_files_of_kafka(name: str, tmp_path: Path) -> None:
    rng = Random(name)
    for path in sorted(unpack(name, tmp_path).rglob("*")):
        if not path.is_file() or not path.stat().st_size:
            continue
        good = path.read_bytes()[:4_000]
        for _ in range(ROUNDS):
            changed = bytearray(good)
            for _ in range(rng.randint(1, 6)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            path.write_bytes(changed)
            show_everything(path, None, None)


def show_everything(path: Path, kind: str | None, topic: str | None) -> None:
    for finding in recognised(path, kind, topic).findings():
        assert 0 <= finding.position <= path.stat().st_size
        json_line(str(path), finding)
        text_line(finding)
