"""Protobuf schemas: canonical text and compatibility checks. Two schemas are compatible if messages written with one
can be read with the other.

Confluent documents the rules. Fields are identified by their numbers. Fields may be added and removed unless they are
required. A field's type may change to one with the same encoding. A field may not leave a oneof, and at most one field
of a message may move into a new oneof.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError

from odradek.registry.errors import invalid_schema
from odradek.registry.protobuf_text import descriptor_of, text_of
from odradek.registry.schemas import Incompatibility, Reference

Types = FieldDescriptor
# Groups of types with the same encoding. A field may change from one type to another in its group, because a reader can
# decode the values of all of them.
SAME_BYTES: Final[Sequence[frozenset[int]]] = (
    frozenset(
        {Types.TYPE_INT32, Types.TYPE_INT64, Types.TYPE_UINT32, Types.TYPE_UINT64, Types.TYPE_BOOL, Types.TYPE_ENUM}
    ),
    frozenset({Types.TYPE_SINT32, Types.TYPE_SINT64}),
    frozenset({Types.TYPE_FIXED32, Types.TYPE_SFIXED32}),
    frozenset({Types.TYPE_FIXED64, Types.TYPE_SFIXED64}),
    frozenset({Types.TYPE_STRING, Types.TYPE_BYTES}),
)
LENGTH_DELIMITED: Final = frozenset({Types.TYPE_STRING, Types.TYPE_BYTES, Types.TYPE_MESSAGE})
NAME: Final = "schema.proto"


class ProtobufSchema:
    __slots__ = ("canonical", "file", "pool")

    def __init__(
        self, file: FileDescriptor, proto: pb.FileDescriptorProto, pool: descriptor_pool.DescriptorPool
    ) -> None:
        """Creates a schema.

        file  the resolved file
        pool  contains the file and all its imports
        """
        self.file = file
        self.pool = pool
        self.canonical = text_of(proto)

    def normalized(self) -> str:
        """Returns the text with full type names. Declarations are ordered by name, and fields by number."""
        proto = pb.FileDescriptorProto()
        self.file.CopyToProto(proto)
        _sort(proto)
        return text_of(proto)

    def serialized(self) -> str:
        """Returns the FileDescriptorProto in base64, which clients request with `format=serialized`."""
        return base64.b64encode(self.file.serialized_pb).decode()

    def cannot_read(self, writer: ProtobufSchema) -> list[Incompatibility]:
        return list(_files(writer.file, self.file))


def parse(text: str, references: Sequence[tuple[Reference, str]]) -> ProtobufSchema:
    pool = descriptor_pool.DescriptorPool()
    try:
        for reference, referenced in references:
            _add(pool, _read(referenced, reference.name), reference.name)
        proto = _read(text, NAME)
        return ProtobufSchema(_add(pool, proto, NAME), proto, pool)
    except (TypeError, ValueError, KeyError, AttributeError, DecodeError) as error:
        raise invalid_schema(str(error)) from error
    except Exception as error:  # the parser's own errors are not ValueErrors
        raise invalid_schema(f"the text is not a Protobuf schema: {error}") from error


def _read(text: str, name: str) -> pb.FileDescriptorProto:
    """Parses `.proto` text or a FileDescriptorProto in base64."""
    if not text.strip():
        raise ValueError("an empty schema")
    try:
        file = pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return descriptor_of(text, name)
    file.name = name
    file.ClearField("source_code_info")
    return file


def _add(pool: descriptor_pool.DescriptorPool, proto: pb.FileDescriptorProto, name: str) -> FileDescriptor:
    for imported in proto.dependency:
        _add_well_known(pool, imported)
    pool.AddSerializedFile(_resolvable(proto).SerializeToString())
    return pool.FindFileByName(name)


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    """Adds a file that is part of Protobuf, such as google/protobuf/timestamp.proto. Raises ValueError if the import is
    neither a file of this kind nor a reference."""
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    try:
        standard = _well_known(name)
    except KeyError:
        raise ValueError(f'the import "{name}" is not a reference of this schema') from None
    for imported in standard.dependencies:
        _add_well_known(pool, imported.name)
    pool.AddSerializedFile(standard.serialized_pb)


def _well_known(name: str) -> FileDescriptor:
    if name.startswith("google/protobuf/") and name.endswith(".proto"):
        from importlib import import_module

        try:
            module = import_module(f"google.protobuf.{name[16:-6].replace('/', '.')}_pb2")
        except (ModuleNotFoundError, ValueError):
            raise KeyError(name) from None
        found: FileDescriptor = module.DESCRIPTOR
        return found
    raise KeyError(name)


def _resolvable(proto: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """Returns a copy without the options whose definitions are missing, because the pool would reject them."""
    copy = pb.FileDescriptorProto()
    copy.CopyFrom(proto)
    copy.options.ClearField("uninterpreted_option")
    waiting = list(copy.message_type)
    enums = list(copy.enum_type)
    for service in copy.service:
        service.options.ClearField("uninterpreted_option")
        for method in service.method:
            method.options.ClearField("uninterpreted_option")
    while waiting:
        message = waiting.pop()
        waiting.extend(message.nested_type)
        enums.extend(message.enum_type)
        for part in (message, *message.field, *message.oneof_decl, *message.extension):
            _interpret(part)
    for enum in enums:
        for value in (enum, *enum.value):
            _interpret(value)
    return copy


def _interpret(declaration: Any) -> None:
    declaration.options.ClearField("uninterpreted_option")
    if not declaration.options.ListFields():
        declaration.ClearField("options")


def _sort(proto: pb.FileDescriptorProto) -> None:
    proto.dependency.sort()
    waiting = [proto.message_type]
    enums = [proto.enum_type]
    while waiting:
        messages = waiting.pop()
        messages.sort(key=lambda each: each.name)
        for message in messages:
            message.field.sort(key=lambda each: each.number)
            waiting.append(message.nested_type)
            enums.append(message.enum_type)
    for found in enums:
        found.sort(key=lambda each: each.name)
        for enum in found:
            enum.value.sort(key=lambda each: each.number)


def _files(old: FileDescriptor, new: FileDescriptor) -> Iterator[Incompatibility]:
    after = {_relative(each): each for each in _messages(new.message_types_by_name)}
    for message in _messages(old.message_types_by_name):
        name = _relative(message)
        later = after.get(name)
        if later is None:
            yield Incompatibility("MESSAGE_REMOVED", f"The message {name} is removed", f"#/{name}")
        else:
            yield from _fields(message, later, f"#/{name}")


def _messages(messages: Mapping[str, Descriptor]) -> Iterator[Descriptor]:
    for message in messages.values():
        if not message.GetOptions().map_entry:
            yield message
            yield from _messages(message.nested_types_by_name)


def _relative(message: Descriptor) -> str:
    """Returns the name without the package, because a schema's package may change."""
    package = message.file.package
    return message.full_name[len(package) + 1 :] if package else message.full_name


def _fields(old: Descriptor, new: Descriptor, path: str) -> Iterator[Incompatibility]:
    for number, field in old.fields_by_number.items():
        place = f"{path}/{number}"
        later = new.fields_by_number.get(number)
        if later is None:
            if field.is_required:
                yield Incompatibility("REQUIRED_FIELD_REMOVED", f"The required field {field.name} is removed", place)
            elif _oneof(field) is not None:
                yield Incompatibility("ONEOF_FIELD_REMOVED", f"The field {field.name} of a oneof is removed", place)
            continue
        yield from _field(field, later, place)
    for number, field in new.fields_by_number.items():
        if number not in old.fields_by_number and field.is_required:
            yield Incompatibility(
                "REQUIRED_FIELD_ADDED", f"The required field {field.name} is added", f"{path}/{number}"
            )
    for choice in new.oneofs:
        if len(choice.fields) == 1 and choice.name.startswith("_"):
            continue  # this oneof only represents the presence of an optional field in proto3
        moved = [
            field.name
            for field in choice.fields
            if (earlier := old.fields_by_number.get(field.number)) is not None and _oneof(earlier) is None
        ]
        exists = any(_oneof(earlier) == choice.name for earlier in old.fields)
        if len(moved) > 1:
            yield Incompatibility(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"The fields {', '.join(moved)} move into {choice.name}", path
            )
        elif moved and exists:
            yield Incompatibility(
                "FIELD_MOVED_TO_EXISTING_ONEOF", f"The field {moved[0]} moves into {choice.name}", path
            )


def _oneof(field: FieldDescriptor) -> str | None:
    """Returns the name of the field's oneof, unless the compiler generated it."""
    choice = field.containing_oneof
    if choice is None or (len(choice.fields) == 1 and choice.name == f"_{field.name}"):
        return None
    return str(choice.name)


def _field(old: FieldDescriptor, new: FieldDescriptor, place: str) -> Iterator[Incompatibility]:
    if old.is_repeated != new.is_repeated and not (old.type in LENGTH_DELIMITED and new.type in LENGTH_DELIMITED):
        yield Incompatibility("FIELD_NUMERIC_LABEL_CHANGED", f"The label of the field {new.name} changes", place)
    if new.is_required and not old.is_required:
        yield Incompatibility("REQUIRED_FIELD_ADDED", f"The field {new.name} becomes required", place)
    before, after = old.type, new.type
    if before == Types.TYPE_MESSAGE and after == Types.TYPE_MESSAGE:
        yield from _message_fields(old, new, place)
    elif before != after and not any(before in same and after in same for same in SAME_BYTES):
        are_named = Types.TYPE_MESSAGE in (before, after) or Types.TYPE_ENUM in (before, after)
        kind = "FIELD_KIND_CHANGED" if are_named else "FIELD_SCALAR_KIND_CHANGED"
        yield Incompatibility(kind, f"The type of the field {new.name} changes", place)


def _message_fields(old: FieldDescriptor, new: FieldDescriptor, place: str) -> Iterator[Incompatibility]:
    before, after = old.message_type, new.message_type
    assert before is not None
    assert after is not None
    if before.GetOptions().map_entry and after.GetOptions().map_entry:
        yield from _fields(before, after, place)
    elif _relative(before) != _relative(after):
        yield Incompatibility("FIELD_NAMED_TYPE_CHANGED", f"The message type of the field {new.name} changes", place)
