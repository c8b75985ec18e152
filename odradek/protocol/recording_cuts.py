"""Removes batches' records from recorded frames, because the judge's rules use only batch headers.

A cut frame begins with the number of kept parts. Two sizes follow for each part: the size of the kept part, and the
size of the omitted part after it. Then come the kept parts. A reader replaces the omitted parts with zeros.
"""

from __future__ import annotations

from struct import Struct as Packing
from struct import error as PackingError
from struct import pack, unpack_from
from typing import Final

from odradek.protocol.batch_header import CONTROL, CRC_START, HEADER_BYTES, LOG_OVERHEAD, MAGIC
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import api_and_version
from odradek.protocol.file_slice import Chunk, FileSlice
from odradek.protocol.frames import REQUEST_START, read_header_fields
from odradek.protocol.primitives import read_varint
from odradek.protocol.struct import Buffer

PRODUCE_KEY: Final = 0
FLEXIBLE_SINCE: Final = 9  # first flexible version of Produce
FIRST_VERSION_WITH_IDS: Final = 13
ID_BYTES: Final = 16
ACKS_AND_TIMEOUT_BYTES: Final = 2 + 4
INDEX_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 2**31 - 1
CUT_FROM_BYTES: Final = 4096  # smaller requests are not cut, because keeping them is cheaper
# Number of bytes examined in a request with one batch. They contain the batch header unless names are very long.
HEAD_BYTES: Final = 600
# The empty tagged fields of the partition, the topic and the request, one byte each. They follow the batch.
NO_TAGS: Final = bytes(3)
TAGS_BYTES: Final = len(NO_TAGS)
ONE: Final = 2  # encoding of the count 1 in flexible versions
MAX_ONE_BYTE_VARINT: Final = 127
MAX_CLIENT_ID_BYTES: Final = 2**15 - 1  # larger values mean null
MAGIC_AT: Final = 16
# Maximum number of batches in a request that is cut. Requests with more batches are kept as they are, because all
# batches are checked in one iteration of the event loop.
MAX_BATCHES: Final = 1_000
_SIZE, _SHORT_SIZE, _COUNT = Packing(">i"), Packing(">h"), Packing(">I")
_TABLE_OF_ONE: Final = Packing(">5I")  # table of sizes in a cut frame with one batch
# A batch's header, beginning with its length. `_LENGTH_TO_CRC` reads the length, the magic and the CRC.
# `_LENGTH_TO_COUNT` reads the length, the magic, the attributes and the record count.
_LENGTH_TO_CRC: Final = Packing(">i4xbI")
_LENGTH_TO_COUNT: Final = Packing(">i4xb4xh34xi")
LENGTH_AT: Final = 8
SMALLEST_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD


class UncheckedCut:
    """A Produce request with one complete batch whose CRC has not been checked yet.

    head      a copy of everything before the records; the original header changes when the broker accepts the batch
    batch_at  position of the batch
    """

    __slots__ = ("batch_at", "frame", "head")

    def __init__(self, frame: memoryview, head: bytes, batch_at: int) -> None:
        self.frame = frame
        self.head = head
        self.batch_at = batch_at

    def is_sound(self) -> bool:
        """Returns whether the CRC is correct."""
        head, at = self.head, self.batch_at
        crc: int = _LENGTH_TO_CRC.unpack_from(head, at + LENGTH_AT)[2]
        return crc32c(self.frame[len(head) : len(self.frame) - TAGS_BYTES], crc32c(head[at + CRC_START :])) == crc

    def parts(self) -> list[Buffer]:
        """Returns the request without its records."""
        kept, end = len(self.head), len(self.frame) - TAGS_BYTES
        return [_TABLE_OF_ONE.pack(2, kept, end - kept, TAGS_BYTES, 0), self.head, NO_TAGS]

    def whole(self) -> bytes:
        """Returns the complete request, as the client sent it."""
        return self.head + self.frame[len(self.head) :]


def unchecked_cut(frame: memoryview) -> UncheckedCut | None:
    """Returns the cut for a Produce request of the usual form, with a single batch. Returns None for all other
    requests, some of which `cut_request` can cut."""
    size, head = len(frame), bytes(frame[:HEAD_BYTES])
    try:
        version, client_id_size = head[3], head[8] << 8 | head[9]
        at = REQUEST_START.size + (client_id_size if client_id_size <= MAX_CLIENT_ID_BYTES else 0)
        if head[0] or head[1] != PRODUCE_KEY or head[2] or version < FLEXIBLE_SINCE:
            return None
        if head[at] or head[at + 1] > MAX_ONE_BYTE_VARINT:
            return None
        at += 1 + (head[at + 1] or 1) + ACKS_AND_TIMEOUT_BYTES
        if head[at] != ONE:
            return None
        topic_bytes = ID_BYTES if version >= FIRST_VERSION_WITH_IDS else head[at + 1]
        if topic_bytes > MAX_ONE_BYTE_VARINT or head[at + 1 + topic_bytes] != ONE:
            return None
        at += 1 + topic_bytes + 1 + INDEX_BYTES
        records_bytes, shift = head[at] & MAX_ONE_BYTE_VARINT, 7
        while head[at] > MAX_ONE_BYTE_VARINT:
            at += 1
            records_bytes |= (head[at] & MAX_ONE_BYTE_VARINT) << shift
            shift += 7
        at += 1
        magic = head[at + MAGIC_AT]
    except IndexError:
        return None
    head_bytes, records_bytes = at + HEADER_BYTES, records_bytes - 1
    if head_bytes > len(head) or records_bytes < HEADER_BYTES or at + records_bytes + TAGS_BYTES != size:
        return None
    length: int = _SIZE.unpack_from(head, at + LENGTH_AT)[0]
    if magic != MAGIC or length != records_bytes - LOG_OVERHEAD or bytes(frame[size - TAGS_BYTES :]) != NO_TAGS:
        return None
    return UncheckedCut(frame, head[:head_bytes], at)


def cut_request(frame: memoryview) -> list[Buffer] | None:
    """Returns a Produce request without its records, or None for an unusual request, which the judge must examine in
    full.

    In a request that is cut, each partition has one complete batch with a correct CRC.

    frame   without its length; the kept parts are views of it
    """
    try:
        places = _batches_at(frame)
    except (IndexError, PackingError, MalformedMessage):
        return None
    if not places:
        return None
    sizes: list[int] = []
    parts: list[Buffer] = [b""]
    kept_from = 0
    for at, end in places:
        headers_end = at + HEADER_BYTES
        sizes += (headers_end - kept_from, end - headers_end)
        parts.append(frame[kept_from:headers_end])
        kept_from = end
    sizes += (len(frame) - kept_from, 0)
    parts.append(frame[kept_from:])
    parts[0] = _table(sizes)
    return parts


def _batches_at(frame: memoryview) -> list[tuple[int, int]]:
    """Returns the start and end of each batch in a Produce request, or an empty list if any batch is unusual."""
    head = api_and_version(frame)
    if head is None or head[0] != PRODUCE_KEY:
        return []
    version = head[1]
    is_flexible = version >= FLEXIBLE_SINCE
    _, _, at = read_header_fields(frame, has_tags=is_flexible)
    at = _behind_text(frame, at, is_flexible) + ACKS_AND_TIMEOUT_BYTES
    topics, at = _count(frame, at, is_flexible)
    places: list[tuple[int, int]] = []
    for _ in range(topics):
        at = at + ID_BYTES if version >= FIRST_VERSION_WITH_IDS else _behind_text(frame, at, is_flexible)
        partitions, at = _count(frame, at, is_flexible)
        for _ in range(partitions):
            size, at = _count(frame, at + INDEX_BYTES, is_flexible)
            end = at + size
            start: tuple[int, int, int] = _LENGTH_TO_CRC.unpack_from(frame, at + LENGTH_AT)
            length, magic, crc = start
            if magic != MAGIC or length != size - LOG_OVERHEAD or length < SMALLEST_LENGTH or end > len(frame):
                return []
            if crc32c(frame[at + CRC_START : end]) != crc:
                return []
            if len(places) == MAX_BATCHES:
                return []
            places.append((at, end))
            at = _behind_tags(frame, end, is_flexible)
        at = _behind_tags(frame, at, is_flexible)
    return places


def _count(frame: memoryview, at: int, is_flexible: bool) -> tuple[int, int]:
    """Decodes a count or a size. Returns the value, which is 0 for null, and the position after it."""
    if is_flexible:
        more, at = read_varint(frame, at)
        return max(more - 1, 0), at
    size: int = _SIZE.unpack_from(frame, at)[0]
    return max(size, 0), at + _SIZE.size


def _behind_text(frame: memoryview, at: int, is_flexible: bool) -> int:
    if is_flexible:
        size, at = _count(frame, at, True)
        return at + size
    return at + _SHORT_SIZE.size + max(int(_SHORT_SIZE.unpack_from(frame, at)[0]), 0)


def _behind_tags(frame: memoryview, at: int, is_flexible: bool) -> int:
    if not is_flexible:
        return at
    if frame[at]:
        raise MalformedMessage("the request has tagged fields, which Produce does not define")
    return at + 1


def cut_answer(chunks: list[Chunk]) -> list[Buffer] | None:
    """Returns a response without most of its records. The response must have the form written by the codec, in which
    every other chunk contains records and begins with a batch.

    In each of these chunks, headers are kept up to the first batch whose records are not markers. Returns None if the
    chunks have a different form.
    """
    sizes: list[int] = []
    parts: list[Buffer] = [b""]
    kept = 0
    for number, chunk in enumerate(chunks):
        if number % 2:
            size, headers = len(chunk), _headers(chunk)
            sizes += (kept + len(headers), size - len(headers))
            parts.append(headers)
            kept = 0
        elif isinstance(chunk, FileSlice):
            return None
        else:
            kept = len(chunk)
            parts.append(chunk)
    sizes += (kept, 0)
    parts[0] = _table(sizes)
    return parts


def _headers(chunk: Chunk) -> Buffer:
    at, size = 0, len(chunk)
    while at + HEADER_BYTES <= size:
        start = _bytes_of(chunk, at, at + HEADER_BYTES)
        if len(start) < HEADER_BYTES:
            break
        length, magic, attributes, count = _LENGTH_TO_COUNT.unpack_from(start, LENGTH_AT)
        if magic != MAGIC or length < SMALLEST_LENGTH or (count > 0 and not attributes & CONTROL):
            return start if at == 0 else _bytes_of(chunk, 0, at + HEADER_BYTES)
        at += length + LOG_OVERHEAD
    return _bytes_of(chunk, 0, size)


def _bytes_of(chunk: Chunk, start: int, end: int) -> Buffer:
    """Returns a chunk's bytes, or no bytes if its file cannot be read, in which case sending the chunk reports the
    error."""
    if isinstance(chunk, FileSlice):
        try:
            return chunk.file.read_at(end - start, chunk.position + start)
        except OSError:
            return b""
    return chunk[start:end]


def _table(sizes: list[int]) -> bytes:
    if len(sizes) == 4:
        return _TABLE_OF_ONE.pack(2, sizes[0], sizes[1], sizes[2], sizes[3])
    return pack(f">{len(sizes) + 1}I", len(sizes) // 2, *sizes)


def restore_body(body: bytes) -> bytes:
    """Returns the frame with zeros in place of the records. Raises MalformedMessage."""
    try:
        (count,) = _COUNT.unpack_from(body)
        sizes = unpack_from(f">{count * 2}I", body, _COUNT.size)
    except PackingError as error:
        raise MalformedMessage("the cut frame ends within its sizes") from error
    if sum(sizes) > MAX_FRAME_BYTES:
        raise MalformedMessage(f"the cut frame has {sum(sizes)} bytes; the limit is {MAX_FRAME_BYTES}")
    at = _COUNT.size * (1 + 2 * count)
    parts: list[bytes] = []
    for kept, left_out in zip(sizes[::2], sizes[1::2], strict=True):
        parts += (body[at : at + kept], bytes(left_out))
        at += kept
    return b"".join(parts)
