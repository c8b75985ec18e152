"""Encodes and decodes the protocol's primitive types. Compiled codecs call these functions if their fast path does not
apply."""

from functools import cache
from struct import Struct as Packing
from struct import error as StructError
from typing import Any, Final

from odradek.protocol.errors import MalformedMessage, UnsupportedVersion
from odradek.protocol.struct import Buffer, RecordChunks

MAX_STRING_BYTES: Final = 0x7FFF  # maximum size of every string, even in the compact form
MAX_LENGTH: Final = 0x7FFF_FFFF
COPY_BELOW_BYTES: Final = 4096  # smaller buffers are copied, because writing another one to the socket would cost more

# The errors that Python raises when it decodes bytes that end too early or are not UTF-8, and when it encodes values
# that are out of range or unexpectedly null.
DECODING_ERRORS: Final = (IndexError, StructError, UnicodeDecodeError)
ENCODING_ERRORS: Final = (StructError, AttributeError, TypeError)

packing = cache(Packing)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Decodes an unsigned varint of at most five bytes. Returns the value and the position after the varint."""
    first = data[position]
    return (first, position + 1) if first < 0x80 else longer_varint(data, position + 1, first)


def longer_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Continues `read_varint` after a first byte that is not the last byte. `position` is the position of the second
    byte."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        if byte < 0x80:
            value |= byte << shift
            if value > MAX_LENGTH:
                raise MalformedMessage(f"the varint {value} is too large for a length")
            return value, position
        value |= (byte & 0x7F) << shift
    raise MalformedMessage("a varint has more than five bytes")


def longer_string_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Like `longer_varint`, but for the compact length of a string, which is its length plus one. Raises
    MalformedMessage if the string would be too long."""
    length, position = longer_varint(data, position, first)
    if length > MAX_STRING_BYTES + 1:
        raise MalformedMessage(f"a string has {length - 1} bytes; the limit is {MAX_STRING_BYTES}")
    return length, position


def varint(value: int) -> bytes:
    """Encodes a value as an unsigned varint."""
    if 0x7F < value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_varint(length: int) -> bytes:
    """Encodes a string's compact length, which is its length plus one."""
    if length > MAX_STRING_BYTES + 1:
        raise UnsupportedVersion(f"a string of {length - 1} bytes is too long; the limit is {MAX_STRING_BYTES} bytes")
    return varint(length)


# Maximum number of unknown tags in one struct; decoding 100 MiB of them would take ten seconds.
MAX_UNKNOWN_TAGS: Final = 10_000


def skip_tags(data: Buffer, position: int, count: int) -> int:
    """Returns the position after `count` unknown tagged fields. If `count` is above 127, it is only the first byte of a
    varint."""
    if count > 0x7F:
        count, position = longer_varint(data, position, count)
        if count > MAX_UNKNOWN_TAGS:
            raise MalformedMessage(f"the message has {count} unknown tagged fields; the limit is {MAX_UNKNOWN_TAGS}")
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        position += size
    return position


def read_fixed_array(data: Buffer, position: int, count: int, code: str) -> tuple[list[Any], int]:
    """Decodes `count` values of a fixed size. Does not allocate memory for values that are missing from the data."""
    size = packing(">" + code).size
    end = position + count * size
    if count < 0 or end > len(data):
        raise wrong_count(count)
    if code == "16s":
        return [value for (value,) in packing(code).iter_unpack(data[position:end])], end
    return list(packing(f">{count}{code}").unpack_from(data, position)), end


def fixed_array(values: list[Any], code: str) -> bytes:
    """Encodes values of a fixed size."""
    if code == "16s":
        return b"".join(values)
    return packing(f">{len(values)}{code}").pack(*values)


def unexpected_null(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name} is null")


def wrong_count(count: int) -> MalformedMessage:
    return MalformedMessage(f"an array announces {count} elements, more than the remaining bytes can hold")


def malformed(what: str, why: object) -> MalformedMessage:
    """Returns the error for bytes that cannot be decoded. `what` names the message and its version."""
    return MalformedMessage(f"{what}: {why}")


def records_size(records: RecordChunks) -> int:
    return sum(map(len, records)) if isinstance(records, list) else len(records)


def add_records(records: RecordChunks, out: bytearray, chunks: list[Any]) -> bytearray:
    """Appends records to `out` or to `chunks`. Returns the bytearray to which the caller must append next."""
    parts: list[Buffer] = records if isinstance(records, list) else [records]
    for part in parts:
        if len(part) < COPY_BELOW_BYTES:
            out += part
        else:
            chunks += (out, part)
            out = bytearray()
    return out


def cannot_carry(names: str) -> UnsupportedVersion:
    return UnsupportedVersion(f"{names}: this version has no field for the value")


def unfit(what: str, why: Exception) -> UnsupportedVersion:
    """Returns the error for values that the message's version cannot represent."""
    return UnsupportedVersion(f"{what}: {why}")
