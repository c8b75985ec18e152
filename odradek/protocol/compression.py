"""Compresses and decompresses batches' records in the formats that Kafka's clients write. The size of decompressed data
is limited.

Kafka streams compressed records and needs no limit. Odradek keeps the decompressed records in memory and therefore
limits their size (docs/formats/record-batch.md). A frame that would exceed the limit is rejected before memory for the
excess is allocated.
"""

import zlib
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from odradek.protocol.errors import MalformedMessage, without_traceback

Bytes: TypeAlias = bytes | bytearray | memoryview

# The default of `socket.request.max.bytes`, which is the maximum size of a request. A batch that decompresses to more
# bytes than that could not have been sent uncompressed.
DECOMPRESSED_LIMIT_BYTES = 100 * 1024 * 1024


# The default of Kafka's max.decompressed.message.bytes, which is the maximum length of an array in Java.
NO_RECORD_LIMIT_BYTES = 2**31 - 9


class DecompressedTooLarge(MalformedMessage):
    """The compressed data, or a single record in it, decompresses to more bytes than the caller accepts."""


class Compression(Enum):
    """The compression type of a batch's records. The value is stored in the lowest three bits of the batch's
    attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(kind: Compression, data: Bytes, level: int | None = None) -> bytes:
    """Compresses `data` in the same format as Kafka's own clients.

    level   Kafka's scale for the codec (gzip -1 or 1..9, lz4 1..17, zstd -131072..22), or None for Kafka's default.
            Snappy has no levels.
    """
    match kind:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return deflate.compress(data) + deflate.flush()
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(kind: Compression, data: Bytes, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes | memoryview:
    """Decompresses `data`. Raises DecompressedTooLarge if the result exceeds `limit_bytes`, and MalformedMessage if the
    data is not valid.

    For NONE, the result is a view of `data`; otherwise it does not share memory with `data`. As in Kafka, bytes after
    the end of a frame are ignored.
    """
    if kind is Compression.NONE:
        if len(data) > limit_bytes:
            raise DecompressedTooLarge(f"the records have {len(data)} bytes; the limit is {limit_bytes}")
        return memoryview(data)
    try:
        return _OPEN[kind](memoryview(data), limit_bytes)
    except MalformedMessage as error:
        refusal = without_traceback(error)
    try:
        raise refusal
    finally:
        del refusal  # otherwise the exception and this stack frame would keep each other alive


# --- gzip ------------------------------------------------------------------------------------------------------------

_GZIP_WINDOW_BITS = 31  # 15 bits of window; adding 16 selects gzip's header and trailer
_GZIP_READ_BYTES = 16 * 1024
_GZIP_PART_BYTES = 8 * 1024 * 1024  # the C library returns freed blocks of this size to the kernel


def _open_gzip(data: memoryview, limit_bytes: int) -> bytes:
    """Decompresses one or more gzip members. Passes the input in small pieces, because zlib copies the part of its
    input that it has not yet read."""
    opened: list[bytes] = []
    left, position, unread = limit_bytes, 0, b""
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while True:
        piece: Bytes = unread
        if not unread:
            piece = data[position : position + _GZIP_READ_BYTES]
            position += len(piece)
        try:
            part = member.decompress(piece, min(left, _GZIP_PART_BYTES) + 1)  # 0 would mean "no limit"
        except zlib.error as error:
            raise MalformedMessage(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise DecompressedTooLarge(f"gzip: the decompressed data has more than {limit_bytes} bytes")
        if part:
            opened.append(part)
        unread = member.unconsumed_tail
        if member.eof:
            position -= len(member.unused_data)
            if bytes(data[position : position + 2]) != b"\x1f\x8b":
                return opened[0] if len(opened) == 1 else b"".join(opened)
            member, unread = zlib.decompressobj(_GZIP_WINDOW_BITS), b""  # another member follows
        elif not piece and not part:
            raise MalformedMessage("gzip: the data ends too early")


# --- snappy ----------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
# After the magic, the header contains the version and the minimum version of a compatible reader. Both versions are 1.
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_BEST_RATIO = 32  # a safe limit: no element yields more than 64 bytes from 3


def _compress_snappy(data: Bytes) -> bytes:
    import cramjam

    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _open_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _open_snappy_block(data, limit_bytes)
    opened: list[bytes] = []
    left, position, end = limit_bytes, len(_XERIAL_HEADER), len(data)
    while position < end:
        if data[position : position + 8] == _XERIAL_MAGIC:  # streams may be concatenated
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > end:
            break  # snappy-java treats this as the end of the stream
        length = int.from_bytes(data[position : position + 4], "big")
        block_end = position + 4 + length
        if block_end > end:
            raise MalformedMessage("snappy: the data ends too early")
        part = _open_snappy_block(data[position + 4 : block_end], left)
        left -= len(part)
        opened.append(part)
        position = block_end
    return b"".join(opened)


def _open_snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    import cramjam

    try:
        claimed = int(cramjam.snappy.decompress_raw_len(block))
        if claimed > limit_bytes:
            raise DecompressedTooLarge(f"snappy: the decompressed data has more than {limit_bytes} bytes")
        if claimed > _SNAPPY_BEST_RATIO * len(block):
            raise MalformedMessage(f"snappy: a block of {len(block)} bytes cannot decompress to {claimed} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise MalformedMessage(f"snappy: {error}") from None


# --- lz4 -------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = (
    _LZ4_MAGIC + b"\x60\x40\x82"
)  # independent blocks of at most 64 KiB, no checksums, no size; then the header's own checksum
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000  # flag in the length of a block: the block is not compressed
LZ4_DEFAULT_LEVEL = 9  # Kafka's value for the fast compressor; every other level selects the slower, denser compressor


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    import cramjam

    thorough: dict[str, Any] = {}
    if level is not None and level != LZ4_DEFAULT_LEVEL:
        thorough = {"mode": "high_compression", "compression": level}
    out = bytearray(_LZ4_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False, **thorough))
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little")
            out += block
        else:
            out += (len(plain) | _LZ4_STORED).to_bytes(4, "little")
            out += plain
    out += b"\x00\x00\x00\x00"
    return bytes(out)


def _open_lz4(data: memoryview, limit_bytes: int) -> memoryview:
    import cramjam

    frame_end, max_bytes = _measure_lz4(data)
    try:
        return _open_into(cramjam.lz4.decompress_into, data[:frame_end], max_bytes, limit_bytes)
    except cramjam.DecompressionError as error:
        raise MalformedMessage(f"lz4: {error}") from None


def _measure_lz4(data: memoryview) -> tuple[int, int]:
    """Returns the end of the frame and its maximum decompressed size. Reads only the headers of the blocks.

    Rejects the same frames as Kafka's reader: those with dependent blocks, reserved bits or other versions.
    """
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise MalformedMessage("lz4: the data is not a frame")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0b11 or descriptor & 0b1000_1111 or descriptor >> 4 < 4:
        raise MalformedMessage("lz4: the frame has unknown flags")
    if not flags & 0x20:
        raise MalformedMessage("lz4: the blocks of the frame depend on one another, which is not supported")
    block_checksum, content_size, content_checksum = flags & 0x10, flags & 0x08, flags & 0x04
    block_bytes = 1 << (8 + 2 * (descriptor >> 4))  # 4 means 64 KiB, and each step above 4 multiplies the size by four
    position, end, max_bytes = 7 + (8 if content_size else 0), len(data), 0
    while position + 4 <= end:
        length = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if length == 0:
            position += 4 if content_checksum else 0
            if position > end:
                break
            return position, max_bytes
        stored, length = length & _LZ4_STORED, length & ~_LZ4_STORED
        if length > block_bytes:
            raise MalformedMessage("lz4: a block is longer than its frame allows")
        max_bytes += length if stored else block_bytes
        position += length + (4 if block_checksum else 0)
    raise MalformedMessage("lz4: the data ends too early")


# --- zstd ------------------------------------------------------------------------------------------------------------

ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 128 * 1024  # maximum decompressed size of a block
_ZSTD_SIZE_BYTES = (0, 2, 4, 8)  # size of the content size field, by the value of its flag
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)


def _open_zstd(data: memoryview, limit_bytes: int) -> memoryview:
    import cramjam

    if not data:
        return data  # like Kafka, treat a missing frame as no records rather than an error
    end, max_bytes = _measure_zstd(data)
    try:
        return _open_into(cramjam.zstd.decompress_into, data[:end], max_bytes, limit_bytes)
    except cramjam.DecompressionError as error:
        raise MalformedMessage(f"zstd: {error}") from None


def _measure_zstd(data: memoryview) -> tuple[int, int]:
    """Returns the end of the last frame and the maximum decompressed size of all frames. Reads only the headers of the
    blocks."""
    position, end, max_bytes = 0, len(data), 0
    while True:
        if data[position : position + 4] == _ZSTD_MAGIC:
            position, frame_bytes = _measure_zstd_frame(data, position + 4)
            max_bytes += frame_bytes
        elif (
            bytes(data[position + 1 : position + 4]) == b"\x2a\x4d\x18" and data[position] >> 4 == 5
        ):  # a skippable frame
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        else:
            raise MalformedMessage("zstd: the data is not a frame")
        if position > end:
            raise MalformedMessage("zstd: the data ends too early")
        if position == end:
            return end, max_bytes


def _measure_zstd_frame(data: memoryview, position: int) -> tuple[int, int]:
    end, max_bytes = len(data), 0
    if position >= end:
        raise MalformedMessage("zstd: the data ends too early")
    flags = data[position]
    single_segment = flags & 0x20
    position += 1 + (0 if single_segment else 1) + _ZSTD_DICTIONARY_BYTES[flags & 3]
    position += _ZSTD_SIZE_BYTES[flags >> 6] or (1 if single_segment else 0)
    while position + 3 <= end:
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
        position += 3
        if kind == 3 or size > _ZSTD_BLOCK_BYTES:
            raise MalformedMessage("zstd: a block has an unknown type, or is too large")
        position += 1 if kind == 1 else size  # a block of kind 1 is a single repeated byte
        max_bytes += _ZSTD_BLOCK_BYTES if kind == 2 else size
        if is_last:
            return position + (4 if flags & 0x04 else 0), max_bytes
    raise MalformedMessage("zstd: the data ends too early")


# --- lz4 and zstd ----------------------------------------------------------------------------------------------------


def _open_into(
    open_into: Callable[[memoryview, bytearray], int], data: memoryview, max_bytes: int, limit_bytes: int
) -> memoryview:
    """Decompresses into a buffer of the maximum size. Raises DecompressedTooLarge if the result exceeds `limit_bytes`.

    The unused end of the buffer costs nothing, because the system provides pages only when they are first written to.
    """
    if max_bytes <= limit_bytes:
        room = bytearray(max_bytes)
        return memoryview(room)[: open_into(data, room)]
    import cramjam

    room = bytearray(limit_bytes)
    try:
        return memoryview(room)[: open_into(data, room)]
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise DecompressedTooLarge(f"more than {limit_bytes} bytes") from None
        raise


_OPEN: dict[Compression, Callable[[memoryview, int], bytes | memoryview]] = {
    Compression.GZIP: _open_gzip,
    Compression.SNAPPY: _open_snappy,
    Compression.LZ4: _open_lz4,
    Compression.ZSTD: _open_zstd,
}
