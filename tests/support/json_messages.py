"""Converts messages to and from the JSON of Kafka's own converters, with records as base64.

`odradek.protocol.kafka_json` prints JSON as Kafka's tools do, without records.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from odradek.protocol.kafka_json import is_default
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct


def message_of(message_class: type[Message], value: Mapping[str, Any]) -> Message:
    """Returns a message. Fields missing in the JSON get their default values. Raises KeyError for an unknown field."""
    schema = load(message_class.__module__.rpartition(".")[2])
    return _struct_of(message_class, schema.fields, schema, value)  # type: ignore[return-value]


def json_of(message: Message, version: int) -> dict[str, Any]:
    schema = load(type(message).__module__.rpartition(".")[2])
    return _json(message, schema.fields, schema, version)


def _struct_of(of: type[Struct], fields: tuple[Field, ...], schema: Schema, value: Mapping[str, Any]) -> Struct:
    by_name = {_name(field): field for field in fields}
    given: dict[str, Any] = {}
    for name, each in value.items():
        field = by_name[name]
        if field.is_array and each is not None:
            given[field.attribute] = [_value_of(of, field, schema, one) for one in each]
        else:
            given[field.attribute] = _value_of(of, field, schema, each)
    return of(**given)


def _value_of(of: type[Struct], field: Field, schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct:
        struct = getattr(import_module(of.__module__), field.type)
        return _struct_of(struct, schema.structs[field.type], schema, value)
    if field.type == "uuid":
        return urlsafe_b64decode(value + "=" * (-len(value) % 4))
    return b64decode(value) if field.type in ("bytes", "records") else value


def _json(struct: Struct, fields: tuple[Field, ...], schema: Schema, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        value = getattr(struct, field.attribute)
        if version not in field.versions or (field.tag is not None and is_default(field, value)):
            continue
        if field.is_array and value is not None:
            found[_name(field)] = [_json_value(one, field, schema, version) for one in value]
        else:
            found[_name(field)] = _json_value(value, field, schema, version)
    return found


def _json_value(value: Any, field: Field, schema: Schema, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return _json(value, schema.structs[field.type], schema, version)
    if field.type == "uuid":
        return urlsafe_b64encode(bytes(value)).rstrip(b"=").decode()
    return b64encode(bytes(value)).decode() if field.type in ("bytes", "records") else value


def _name(field: Field) -> str:
    return field.name[0].lower() + field.name[1:]
