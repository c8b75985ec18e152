"""Variable-length integers as records hold them: zigzag, seven bits a byte, least significant first.

Readers take the position and return (value, next position). Where the caller can, it checks once that it has not run
past its end. An index past the buffer raises IndexError, which callers in this package turn into MalformedMessage.
"""

from odradek.protocol.compression import Bytes
from odradek.protocol.errors import MalformedMessage


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """A 32-bit value in at most 5 bytes. Raises IndexError past the end, MalformedMessage when it is too long."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, position = byte & 0x7F, 7, position + 1
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Kafka lets the fifth byte carry bits that do not fit, and drops them.
            value &= 0xFFFF_FFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint of more than 5 bytes")


def read_varlong(data: Bytes, position: int) -> tuple[int, int]:
    """A 64-bit value in at most 10 bytes. Raises IndexError past the end, MalformedMessage when it is too long."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, position = byte & 0x7F, 7, position + 1
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF_FFFF_FFFF
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise MalformedMessage("a varlong of more than 10 bytes")


def append_varint(out: bytearray, value: int) -> None:
    """`value` must fit into 64 bits, signed; 32- and 64-bit values are written alike."""
    value = value << 1 if value >= 0 else ~(value << 1)
    if value < 0x80:
        out.append(value)
        return
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
