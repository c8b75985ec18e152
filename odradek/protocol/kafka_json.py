"""Converts a message to JSON in the form that Kafka's own converters and DumpLogSegments print.

Names are in camelCase. Only the version's fields are included, and tagged fields only if they differ from their
defaults. Bytes and uuids are encoded in base64 (uuids URL-safe, without padding). Records are shown as
`<name>SizeInBytes`.
"""

from base64 import b64encode, urlsafe_b64encode
from typing import Any

from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct


def kafka_json(message: Message, version: int) -> dict[str, Any]:
    schema = load(type(message).__module__.rpartition(".")[2])
    return _struct(message, schema.fields, schema, version)


def _struct(struct: Struct, fields: tuple[Field, ...], schema: Schema, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        value = getattr(struct, field.attribute)
        if version not in field.versions or (field.tag is not None and is_default(field, value)):
            continue
        name = field.name[0].lower() + field.name[1:]
        if field.type == "records" and version not in field.nullable:
            found[name] = ""  # Kafka prints the records of ShareFetch like this, whatever their size
        elif field.type == "records" and value is not None:
            found[f"{name}SizeInBytes"] = len(value)
        elif field.is_array and value is not None:
            found[name] = [_value(element, field, schema, version) for element in value]
        else:
            found[name] = _value(value, field, schema, version)
    return found


def is_default(field: Field, value: object) -> bool:
    if field.default_is_empty:
        if field.is_array:
            return value == []
        return value is None if field.is_null_when_absent else value is not None and value == type(value)()
    return bool(value == field.default)


def _value(value: Any, field: Field, schema: Schema, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return _struct(value, schema.structs[field.type], schema, version)
    if field.type == "uuid":
        return urlsafe_b64encode(value).rstrip(b"=").decode()
    if field.type == "bytes":
        return b64encode(value).decode()
    return value
