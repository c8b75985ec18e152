"""Tests that the rest of a response is sent completely and in order after any number of partial sends."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.network.file_sender import MAX_BUFFERS, UnsentChunks
from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.struct import Buffer


class BytesFile:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_at(self, size_bytes: int, position: int) -> Buffer:
        return self.content[position : position + size_bytes]

    def is_cached_at(self, size_bytes: int, position: int) -> bool:
        return True

    def send_to(self, descriptor: int, size_bytes: int, position: int) -> int:
        raise NotImplementedError


def chunk(is_in_file: bool, content: bytes) -> Chunk:
    if not is_in_file:
        return content
    return FileSlice(BytesFile(b"before" + content + b"behind"), len(b"before"), len(content))


def bytes_of(step: list[Buffer] | FileSlice) -> bytes:
    return bytes(step.read()) if isinstance(step, FileSlice) else b"".join(step)


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=20)), max_size=8), st.data())
def test_every_byte_leaves_once_and_in_order_however_little_is_taken(
    parts: list[tuple[bool, bytes]], data: st.DataObject
) -> None:
    unsent, received = UnsentChunks([chunk(*part) for part in parts]), b""
    while (step := unsent.next()) is not None:
        content = bytes_of(step)
        size_bytes = data.draw(st.integers(min(1, len(content)), len(content)))
        received += content[:size_bytes]
        unsent.sent(size_bytes)
    assert received == b"".join(content for _, content in parts)


def test_buffers_leave_together_up_to_the_next_part_in_a_file() -> None:
    part = chunk(True, b"file")
    unsent = UnsentChunks([b"head", b"a", part, b"tail"])
    assert unsent.next() == [b"head", b"a"]
    unsent.sent(5)
    assert unsent.next() is part
    unsent.sent(4)
    assert unsent.next() == [b"tail"]


def test_no_call_takes_more_buffers_than_the_kernel() -> None:
    step = UnsentChunks([b"x"] * (MAX_BUFFERS + 1)).next()
    assert isinstance(step, list)
    assert len(step) == MAX_BUFFERS
