"""Tests that a broker started after a clean stop tolerates or reports damage to any file that it trusts. The tests flip
each byte of a file, and truncate the file to each length.

The start must either have the same result as without the damage, or report the damage in a message that names the file.
`make damage` tries every byte and every length. Otherwise, the environment variable DAMAGE sets how many bytes and
lengths to try per file, and DAMAGE_SEED selects them.
"""

import logging
import os
from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from odradek.broker.metadata.replaying import CorruptMetadata
from odradek.protocol.errors import KafkaError
from odradek.protocol.records import batches
from odradek.storage.log_directory import WrongDirectory
from tests.damage.directories import DIRECTORIES, INTERNAL, StartResult, stopped
from tests.damage.outcome import Outcome

DAMAGE = os.environ.get("DAMAGE", "2")
SEED = os.environ.get("DAMAGE_SEED", "0")
MASKS = (0x01, 0x80, 0xFF)
CASES = [(name, path) for name in DIRECTORIES for path in stopped(name).files if path.endswith(stopped(name).damaged)]
REFUSALS = (WrongDirectory, CorruptMetadata, KafkaError)
BASE_OFFSET_BYTES = 8  # These bytes are not covered by a batch's CRC.


@cache
def undamaged(name: str) -> StartResult:
    found = stopped(name)
    return found.start(found.with_file("", b""))


def damages(name: str, path: str) -> Iterator[tuple[str, bytes]]:
    content = stopped(name).files[path]
    flips = [(at, mask) for at in range(len(content)) for mask in MASKS]
    cuts = list(range(len(content)))
    excused = set(nobodys_bytes(name, path, content))
    flips = [(at, mask) for at, mask in flips if at not in excused]
    if DAMAGE != "all":
        rng = Random(f"{SEED} {name} {path}")
        flips = rng.sample(flips, min(int(DAMAGE), len(flips)))
        cuts = rng.sample(cuts, min(int(DAMAGE), len(cuts)))
    for at, mask in flips:
        yield f"byte {at} xor {mask:#x}", content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
    for size in cuts:
        yield f"cut to {size} of {len(content)} bytes", content[:size]


def nobodys_bytes(name: str, path: str, content: bytes) -> Iterator[int]:
    """Yields the positions of bytes in which no start can detect damage."""
    log = undamaged(name).logs.get(path.split("/")[-2])
    if not path.endswith(".log") or not isinstance(log, Outcome):
        return
    for at, header in batches(content):
        if header.last_offset < log.log_start_offset:  # No client can read deleted records.
            yield from range(at, at + header.size_bytes)
        # Compacted logs normally have gaps, so a damaged base offset that falls into a gap is not detected.
        elif name == "compacted":
            yield from range(at, at + BASE_OFFSET_BYTES)


@pytest.mark.parametrize(("name", "path"), CASES, ids=str)
def test_a_damaged_file_changes_nothing_or_is_named(name: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Messages()
    # pytest's handlers would keep and format all of the messages
    monkeypatch.setattr(logging.getLogger(), "handlers", [log])
    wrong = []
    for damage, content in damages(name, path):
        log.said.clear()
        found = what_is_wrong(name, path, content, log)
        if found is not None:
            wrong.append(f"{damage}: {found}")
    assert not wrong, f"{len(wrong)} of {path}:\n" + "\n".join(wrong[:20])


class Messages(logging.Handler):
    """Collects warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def what_is_wrong(name: str, path: str, content: bytes, log: Messages) -> str | None:
    found = stopped(name)
    file, directory = path.rpartition("/")[2], path.split("/")[-2]
    disk = found.with_file(path, content)
    try:
        seen = found.start(disk)
    except REFUSALS as refusal:
        try:
            found.start(disk.after_kill())
        except REFUSALS:
            return None if file in str(refusal) else f"refused without naming it: {refusal}"
        return "refused once, and then no more"
    expected = undamaged(name)
    is_named = any(path in message for message in log.said)
    for fact, value in expected.facts.items():
        if seen.facts[fact] != value and not (directory.startswith(INTERNAL) and is_named):
            return f"{fact}: {seen.facts[fact]}, not {value}"
    for partition, outcome in expected.logs.items():
        instead = seen.logs[partition]
        if instead == outcome:
            continue
        if isinstance(instead, str) and partition == directory and file in instead:
            continue
        if partition == directory and partition.startswith(INTERNAL) and is_named:
            continue
        return f"{partition}: {difference(outcome, instead)}"
    return None


def difference(expected: object, instead: object) -> str:
    if not isinstance(expected, tuple) or not isinstance(instead, tuple):
        return str(instead)
    fields = getattr(expected, "_fields", ())
    pairs = zip(fields, expected, instead, strict=True)
    return "; ".join(f"{field} {new}, not {old}" for field, old, new in pairs if old != new)
