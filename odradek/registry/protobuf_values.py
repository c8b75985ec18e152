"""Converts values of Protobuf schemas to and from Protobuf's own JSON format, with field names as in the schema."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from odradek.registry.protobuf_schemas import ProtobufSchema
from odradek.registry.schemas import Json
from odradek.registry.values import DecodingBudget, DoesNotFitSchema, NotInWireFormat, json_text

FIRST_MESSAGE: Final = b"\0"  # the encoding of the index list [0], which selects the first message
MAX_INDEXES: Final = 100  # Protobuf's limit on the nesting of messages
MAX_VARINT_BYTES: Final = 5  # maximum size of a varint in bytes
ANY: Final = "google.protobuf.Any"  # contains another message in encoded form
# Errors that the Protobuf library raises for values that have no JSON form, and for JSON that is not a message.
REFUSALS: Final = (json_format.Error, ArithmeticError, ValueError, TypeError, LookupError, AttributeError)


def decode(payload: bytes, schema: ProtobufSchema, budget: DecodingBudget) -> str:
    """Returns the message as JSON. Raises NotInWireFormat, DoesNotFitSchema and TooMuchToDecode."""
    indexes, start = _indexes(payload)
    message = message_factory.GetMessageClass(_message(schema, indexes))()
    try:
        message.ParseFromString(payload[start:])
        _take_values(message, schema.pool, budget)
        found = json_format.MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=schema.pool,
        )
    except (DecodeError, *REFUSALS) as error:
        raise DoesNotFitSchema(f"its bytes are not a {message.DESCRIPTOR.full_name}: {error}") from error
    return json_text(found, budget)


def _take_values(message: Message, pool: DescriptorPool, budget: DecodingBudget) -> None:
    """Deducts the values that the JSON will contain from the budget, before the JSON is created. Counts the elements of
    lists and maps, and every field of each message, because the JSON also contains fields with default values. Raises
    TooMuchToDecode."""
    waiting = [message]
    while waiting:
        each = waiting.pop()
        budget.take_values(1 + len(each.DESCRIPTOR.fields))
        if each.DESCRIPTOR.full_name == ANY:
            waiting.extend(_in_any(each, pool))
            continue
        for field, value in each.ListFields():
            kind = field.message_type
            if field.is_repeated:
                budget.take_values(len(value))
            if kind is not None and kind.GetOptions().map_entry:
                if kind.fields_by_name["value"].message_type is not None:
                    waiting.extend(value.values())
            elif kind is not None:
                waiting.extend(value if field.is_repeated else [value])


def _in_any(message: Any, pool: DescriptorPool) -> list[Message]:
    """Returns a list that contains the message inside an Any, or an empty list if the message's type is not in the
    schema, because the message cannot be shown without it."""
    try:
        inner = message_factory.GetMessageClass(pool.FindMessageTypeByName(message.type_url.rpartition("/")[2]))()
        inner.ParseFromString(message.value)
    except (KeyError, DecodeError):
        return []
    return [inner]


def encode(value: Json, schema: ProtobufSchema) -> bytes:
    """Encodes a JSON value as the first message of the schema. Raises DoesNotFitSchema."""
    message = message_factory.GetMessageClass(_message(schema, [0]))()
    try:
        json_format.ParseDict(value, message, descriptor_pool=schema.pool)
        return FIRST_MESSAGE + message.SerializeToString()
    except REFUSALS as error:
        raise DoesNotFitSchema(f"it is not a {message.DESCRIPTOR.full_name}: {error}") from error


def _indexes(payload: bytes) -> tuple[list[int], int]:
    """Returns the indexes that lead to the message (first within the file, then within each enclosing message), and the
    position after them."""
    count, position = _number(payload, 0)
    if count == 0:
        return [0], position
    if not 0 < count <= MAX_INDEXES:
        raise NotInWireFormat(f"its list of message indexes has the length {count}")
    indexes = []
    for _ in range(count):
        index, position = _number(payload, position)
        indexes.append(index)
    return indexes, position


def _number(payload: bytes, position: int) -> tuple[int, int]:
    """Reads a zigzag varint. Returns its value and the position after it."""
    number = 0
    for length, byte in enumerate(payload[position : position + MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * length
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position + length + 1
    raise NotInWireFormat("its list of message indexes is cut off")


def _message(schema: ProtobufSchema, indexes: list[int]) -> Descriptor:
    found: Descriptor | None = None
    for index in indexes:
        inner = list(schema.file.message_types_by_name.values()) if found is None else list(found.nested_types)
        if not 0 <= index < len(inner):
            raise DoesNotFitSchema(f"its message indexes {indexes} do not refer to a message of the schema")
        found = inner[index]
    assert found is not None
    return found
