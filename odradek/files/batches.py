"""Determines whether a batch begins at a given byte position in a log and, if none does, explains why. Readers use
these functions to read a log batch by batch. Does no I/O.

A log ends with its last complete batch. That batch may be followed by a batch that a live broker is writing, an
incomplete batch from a crash, or preallocated zeros. Anywhere else, such bytes are damage. docs/formats/record-batch.md
describes the bytes of a batch.
"""

from __future__ import annotations

from odradek.protocol.batch_header import HEADER_BYTES, LOG_OVERHEAD, MAGIC, BatchHeader, unpack_batch_header
from odradek.protocol.struct import Buffer

_OLD_MAGICS = (0, 1)


def good_header(data: Buffer, at: int, rest: int, next_offset: int) -> BatchHeader | None:
    """Returns the header of the batch at `at`. Returns None if no batch can be read there; `describe_damage` then
    explains why.

    rest          number of bytes from `at` to the end of the file, which may be more than `data` contains
    next_offset   smallest valid offset
    """
    if len(data) - at < HEADER_BYTES:
        return None
    header = unpack_batch_header(data, at)
    if (
        header.magic == MAGIC
        and HEADER_BYTES <= header.batch_length + LOG_OVERHEAD <= rest
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
    ):
        return header
    return None


def describe_damage(data: Buffer, at: int, rest: int, next_offset: int) -> str:
    """Explains why no batch can be read at `at`. Accepts the same arguments as `good_header`."""
    if rest < HEADER_BYTES:
        return f"{rest} bytes are too few for a batch, whose header alone has {HEADER_BYTES}"
    if len(data) - at < HEADER_BYTES:
        return f"the file became shorter while it was read: {rest} bytes are missing"
    header = unpack_batch_header(data, at)
    if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LOG_OVERHEAD:
        if header.magic in _OLD_MAGICS and (header.magic or header.batch_length > 0):
            return (
                f"this is a message of format {header.magic}, from before Kafka 0.11: convert the log with Kafka 3"
                " first"
            )
        return f"no batch begins here: magic {header.magic}, length {header.batch_length}"
    if header.size_bytes > rest:
        return f"a batch is cut short: its header says {header.size_bytes} bytes, but only {rest} are left"
    if header.base_offset < next_offset:
        return f"the base offset is {header.base_offset}, but must be at least {next_offset}"
    return f"the batch ends before it begins: its last offset delta is {header.last_offset_delta}"


def may_end_a_log(data: Buffer, rest: int) -> bool:
    """Returns whether the last segment of a log may end with bytes like `data`, which are not a complete batch.

    rest   number of bytes from the beginning of `data` to the end of the file, which may be more than `data` contains
    """
    if rest < HEADER_BYTES or len(data) < HEADER_BYTES:
        return True
    if not any(data[:HEADER_BYTES]):
        return True  # zeros that were preallocated or left behind by a crash
    header = unpack_batch_header(data)
    return header.magic == MAGIC and header.size_bytes > rest
