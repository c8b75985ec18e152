"""Converts messages to kafka-python's classes and back, to compare our codec with an independent one."""

import uuid
from importlib import import_module
from typing import Any

from odradek.protocol.messages import MODULES
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import ZERO_UUID, Message, Struct

PACKAGES = ("admin", "consumer", "metadata", "producer", "sasl")


def known_classes() -> dict[str, Any]:
    """Returns kafka-python's request and response classes, by the names of our modules."""
    names = {name: module for module, name in MODULES.items()}
    found: dict[str, Any] = {}
    for package in PACKAGES:
        for name, value in vars(import_module(f"kafka.protocol.{package}")).items():
            if name in names and load(names[name]).kind in ("request", "response"):
                found[names[name]] = value
    return found


def their_field_of(field: Field, theirs: Any) -> Any:
    """Returns kafka-python's field for one of our fields.

    kafka-python uses a single name for three kinds of authorized operations, which it decodes as sets of bits. In
    TxnOffsetCommit it uses a name that Kafka 4.4 changed.
    """
    fields = {found._name: found for found in theirs.fields.values()}
    renamed = {"GenerationIdOrMemberEpoch": "GenerationId"}.get(field.name, field.name)
    if field.name.endswith("AuthorizedOperations"):
        renamed = "authorized_operations"
    return fields[field.name] if field.name in fields else fields[renamed]


def shared_versions(their_class: Any, schema: Schema) -> range:
    ours = schema.version_range()
    return range(ours.start, min(ours.stop, their_class.max_version + 1))


def to_theirs(message: Message, their_class: Any, schema: Schema, version: int) -> Any:
    return their_class(version=version, **_their_values(message, schema.fields, their_class._struct, schema, version))


def _their_values(
    struct: Struct, fields: tuple[Field, ...], theirs: Any, schema: Schema, version: int
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        if version in field.versions:
            their_field = their_field_of(field, theirs)
            value = getattr(struct, field.attribute)
            if field.is_array and value is not None:
                values[their_field.name] = [_their_value(one, field, their_field, schema, version) for one in value]
            else:
                values[their_field.name] = _their_value(value, field, their_field, schema, version)
    return values


def _their_value(value: Any, field: Field, their_field: Any, schema: Schema, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct:
        inner = _their_values(value, schema.structs[field.type], their_field, schema, version)
        return their_field.data_class(version=version, **inner)
    if field.type == "uuid":
        return uuid.UUID(bytes=value)
    if their_field.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value


def values_of_theirs(found: Any, their_struct: Any, schema: Schema, version: int) -> dict[str, Any]:
    """Returns kafka-python's message as a tree with our names and types, reduced to the fields of this version."""
    return _our_values(found, schema.fields, their_struct, schema, version)


def _our_values(found: Any, fields: tuple[Field, ...], theirs: Any, schema: Schema, version: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        if version in field.versions:
            their_field = their_field_of(field, theirs)
            value = getattr(found, their_field.name)
            if field.is_array and value is not None:
                values[field.attribute] = [_our_value(one, field, their_field, schema, version) for one in value]
            else:
                values[field.attribute] = _our_value(value, field, their_field, schema, version)
    return values


def _our_value(value: Any, field: Field, their_field: Any, schema: Schema, version: int) -> Any:
    if their_field.type_str == "bitfield":
        bits = {31} if value is None else value
        number = sum(1 << bit for bit in bits)
        return number - (1 << 32) if number >> 31 else number
    if field.type == "uuid":
        return ZERO_UUID if value is None else value.bytes
    if value is None:
        return None
    if field.is_struct:
        return _our_values(value, schema.structs[field.type], their_field, schema, version)
    return bytes(value) if isinstance(value, memoryview) else value


def values_of_ours(message: Message, schema: Schema, version: int) -> dict[str, Any]:
    """Returns our message as a tree in the form of `values_of_theirs`."""
    return _tree(message, schema.fields, schema, version)


def _tree(struct: Struct, fields: tuple[Field, ...], schema: Schema, version: int) -> dict[str, Any]:
    def plain(value: Any, field: Field) -> Any:
        if isinstance(value, Struct):
            return _tree(value, schema.structs[field.type], schema, version)
        return bytes(value) if isinstance(value, memoryview) else value

    values = {field: getattr(struct, field.attribute) for field in fields if version in field.versions}
    return {
        field.attribute: [plain(one, field) for one in value] if isinstance(value, list) else plain(value, field)
        for field, value in values.items()
    }
