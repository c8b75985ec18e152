"""Converts values of Protobuf schemas to JSON in Protobuf's own form, with field names as in the schema, and back."""

from __future__ import annotations

from typing import Final

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from odradek.registry.protobuf_schemas import ProtobufSchema
from odradek.registry.schemas import Json
from odradek.registry.values import DoesNotFitSchema, NotInWireFormat

FIRST_MESSAGE: Final = b"\0"  # stands for the list of indexes [0]
MOST_INDEXES: Final = 100  # Protobuf's limit for messages within messages
LONGEST_NUMBER: Final = 5  # bytes
# The errors that Protobuf's library raises for values that have no JSON form, and for JSON that is not a message.
REFUSALS: Final = (json_format.Error, ArithmeticError, ValueError, TypeError, LookupError, AttributeError)


def decode(payload: bytes, schema: ProtobufSchema) -> Json:
    """Returns the message as JSON. Raises NotInWireFormat and DoesNotFitSchema."""
    indexes, start = _indexes(payload)
    message = message_factory.GetMessageClass(_message(schema, indexes))()
    try:
        message.ParseFromString(payload[start:])
        return json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=schema.pool,
        )
    except (DecodeError, *REFUSALS) as error:
        raise DoesNotFitSchema(f"its bytes are no {message.DESCRIPTOR.full_name}: {error}") from error


def encode(value: Json, schema: ProtobufSchema) -> bytes:
    """Returns the bytes of the first message of the schema. Raises DoesNotFitSchema."""
    message = message_factory.GetMessageClass(_message(schema, [0]))()
    try:
        json_format.ParseDict(value, message, descriptor_pool=schema.pool)
        return FIRST_MESSAGE + message.SerializeToString()
    except REFUSALS as error:
        raise DoesNotFitSchema(f"it is no {message.DESCRIPTOR.full_name}: {error}") from error


def _indexes(payload: bytes) -> tuple[list[int], int]:
    """Returns the indexes that lead to the message, first in the file and then in each outer message; and the position
    after them."""
    count, position = _number(payload, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= MOST_INDEXES:
        raise NotInWireFormat(f"its list of message indexes has the length {count}")
    indexes = []
    for _ in range(count):
        index, position = _number(payload, position)
        indexes.append(index)
    return indexes, position


def _number(payload: bytes, position: int) -> tuple[int, int]:
    """Reads a zigzag varint. Returns it and the position after it."""
    number = 0
    for length, byte in enumerate(payload[position : position + LONGEST_NUMBER]):
        number |= (byte & 0x7F) << 7 * length
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position + length + 1
    raise NotInWireFormat("its list of message indexes is cut off")


def _message(schema: ProtobufSchema, indexes: list[int]) -> Descriptor:
    found: Descriptor | None = None
    for index in indexes:
        inner = list(schema.file.message_types_by_name.values()) if found is None else list(found.nested_types)
        if not 0 <= index < len(inner):
            raise DoesNotFitSchema(f"its message indexes {indexes} name no message of the schema")
        found = inner[index]
    assert found is not None
    return found
