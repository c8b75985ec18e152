"""Tests that a recording can be read even if it was cut off or damaged at any position."""

from io import BytesIO

import pytest

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.recording import Kind, Recording, RecordingEntry, pack_block, pack_entries, pack_head

ENTRIES = [
    RecordingEntry(Kind.OPENED, 1, 0, 5, b"{}"),
    RecordingEntry(Kind.RECEIVED, 1, 1, 2**40, b"a request", waited_us=7, is_behind=True),
    RecordingEntry(Kind.ANSWERED, 1, 1, 2**40 + 1, b"", is_masked=True),
]
WHOLE = pack_head(1) + b"".join(pack_block(pack_entries([entry])) for entry in ENTRIES)


def read(data: bytes) -> tuple[list[RecordingEntry], bool]:
    recording = Recording(BytesIO(data).read)
    return list(recording.entries()), recording.is_cut


def test_entries_are_read_as_they_were_written() -> None:
    assert read(WHOLE) == (ENTRIES, False)


def test_a_cut_recording_is_read_to_its_last_whole_block() -> None:
    ends = [len(pack_head(1))]
    for entry in ENTRIES:
        ends.append(ends[-1] + len(pack_block(pack_entries([entry]))))
    for size in range(ends[0], len(WHOLE)):
        whole = sum(end <= size for end in ends) - 1
        assert read(WHOLE[:size]) == (ENTRIES[:whole], size not in ends)


def test_a_damaged_block_is_refused() -> None:
    damaged = bytearray(WHOLE)
    damaged[-1] ^= 1
    with pytest.raises(MalformedMessage, match="CRC"):
        read(bytes(damaged))


@pytest.mark.parametrize("data", [b"", b"ODRADEK", b"x" * 40])
def test_another_file_is_no_recording(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="not a recording"):
        Recording(BytesIO(data).read)
