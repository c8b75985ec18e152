"""Converts keys and values between Confluent's wire format, which names a schema, and JSON.

The bytes begin with a zero byte and the id of the schema. For Protobuf, the id is followed by indexes that select a
message in the schema's file. Each schema type has its own module, which is imported with the first value of that type.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from odradek.registry.schemas import AVRO, JSON, PROTOBUF, Json, ParsedSchema

MAGIC: Final = 0
HEADER: Final = struct.Struct(">BI")  # magic, schema id
LAST_ID: Final = 2**31 - 1
MODULES: Final[Mapping[str, str]] = {
    AVRO: "odradek.registry.avro_values",
    JSON: "odradek.registry.json_values",
    PROTOBUF: "odradek.registry.protobuf_values",
}


class SchemaValueError(Exception):
    """Raised if a key or value cannot be decoded or encoded. The subclasses distinguish the reasons."""


class TooMuchToDecode(SchemaValueError):
    """Decoding needs more work than the budget allows."""


class NotInWireFormat(SchemaValueError):
    """The bytes do not begin with a zero byte and a schema id, so they were not written by a serializer that uses a
    schema registry."""


class DoesNotFitSchema(SchemaValueError):
    """The bytes or the JSON are not a value of the schema."""


@dataclass(slots=True)
class DecodingBudget:
    """The amount of work that decoding may still do. The number of bytes does not limit it: in Avro, an array of a
    million nulls takes up only a few bytes, and the JSON repeats a field's name, however long, with each value.

    values      how many more values may be read, such as numbers, texts, arrays and records, including nested ones
    characters  how many more characters the JSON may have
    """

    values: int = sys.maxsize
    characters: int = sys.maxsize

    def take_values(self, count: int = 1) -> None:
        """Deducts this many values from the budget. Raises TooMuchToDecode if too few values are left."""
        self.values -= count
        if self.values < 0:
            raise TooMuchToDecode("it contains more values than this registry decodes")

    def take_characters(self, count: int) -> None:
        """Deducts this many characters from the budget. Raises TooMuchToDecode if too few characters are left."""
        self.characters -= count
        if self.characters < 0:
            raise TooMuchToDecode("its JSON is longer than this registry decodes")


def schema_id_of(content: bytes) -> int:
    """Returns the id of the schema with which a key or value was encoded. Raises NotInWireFormat."""
    if len(content) < HEADER.size:
        raise NotInWireFormat(f"it has {len(content)} bytes, but a schema id needs {HEADER.size}")
    magic, schema_id = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise NotInWireFormat(f"its first byte is {magic}, not 0, so it does not name a schema")
    if not 0 < schema_id <= LAST_ID:
        raise NotInWireFormat(f"{schema_id} cannot be the id of a schema")
    return int(schema_id)


def decode(content: bytes, schema_type: str, schema: ParsedSchema, budget: DecodingBudget | None = None) -> str:
    """Decodes a key or value in wire format to JSON on one line. Numbers remain as they were written. Raises
    SchemaValueError.

    budget  limits the work, which is deducted from it; None means no limit
    """
    schema_id_of(content)
    payload = content[HEADER.size :]
    try:
        return _functions(schema_type)[0](payload, schema, budget or DecodingBudget())
    except RecursionError:
        raise DoesNotFitSchema("it is nested too deeply") from None


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


def json_text(value: Json, budget: DecodingBudget) -> str:
    """Returns a value as JSON. Raises TooMuchToDecode before the text exceeds the budget."""
    chunks = []
    for chunk in _ENCODER.iterencode(value):
        budget.take_characters(len(chunk))
        chunks.append(chunk)
    return "".join(chunks)


def encode(value: Json, schema_id: int, schema_type: str, schema: ParsedSchema) -> bytes:
    """Returns the bytes of a JSON value in wire format. Raises DoesNotFitSchema."""
    try:
        return HEADER.pack(MAGIC, schema_id) + _functions(schema_type)[1](value, schema)
    except UnicodeEncodeError:
        raise DoesNotFitSchema("it contains half a surrogate pair, which UTF-8 cannot encode") from None
    except RecursionError:
        raise DoesNotFitSchema("it is nested too deeply") from None


def encode_text(text: bytes, schema_id: int, schema_type: str, schema: ParsedSchema) -> bytes:
    """Returns the bytes of a JSON text in wire format. If the schema's type is JSON, the bytes contain the text itself,
    because a number such as 10.00 or a name that occurs twice would not survive parsing.

    Raises DoesNotFitSchema, or ValueError if the text is not JSON.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise DoesNotFitSchema("it is nested too deeply") from None
    encoded = encode(value, schema_id, schema_type, schema)
    if schema_type != JSON:
        return encoded
    return encoded[: HEADER.size] + text.decode(json.detect_encoding(text)).strip().encode()


def _functions(
    schema_type: str,
) -> tuple[Callable[[bytes, Any, DecodingBudget], str], Callable[[Json, Any], bytes]]:
    module = import_module(MODULES[schema_type])
    return module.decode, module.encode
