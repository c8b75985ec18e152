"""Converts the text of `.proto` files to descriptors, and descriptors to text.

`proto-schema-parser` parses the text. Clients in Python and Rust send a serialized FileDescriptorProto instead of text.
The registry stores the text that this module generates, so that both forms become the same schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as pb
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

Field = pb.FieldDescriptorProto
Message = pb.DescriptorProto

SCALARS: Final[dict[str, Field.Type.ValueType]] = {
    name: getattr(Field, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
        *("sfixed32", "sfixed64", "sint32", "sint64"),
    )
}
NAMES_OF_SCALARS: Final = {number: name for name, number in SCALARS.items()}
LABELS: Final = {
    ast.FieldCardinality.OPTIONAL: Field.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: Field.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: Field.LABEL_REPEATED,
}
LAST_FIELD_NUMBER: Final = 536_870_911
LAST_ENUM_NUMBER: Final = 2_147_483_647


def descriptor_of(text: str, name: str) -> pb.FileDescriptorProto:
    """Parses a `.proto` text into the descriptor of a file with this name. Type names are not resolved yet. Raises
    ValueError if the text is invalid, or if it uses editions or groups, which are not supported."""
    parsed = Parser(setup_lexer=_set_strict, setup_parser=_set_strict).parse(text)
    if parsed.edition is not None:
        raise ValueError(f"editions of Protobuf ({parsed.edition}) are not supported; use syntax proto2 or proto3")
    syntax = (parsed.syntax or "proto2").strip("\"'")
    if syntax not in ("proto2", "proto3"):
        raise ValueError(f"the syntax {syntax} is neither proto2 nor proto3")
    found = pb.FileDescriptorProto(name=name)
    if syntax == "proto3":
        found.syntax = syntax
    for element in parsed.file_elements:
        if isinstance(element, ast.Package):
            found.package = element.name
        elif isinstance(element, ast.Import):
            if element.public:
                found.public_dependency.append(len(found.dependency))
            if element.weak:
                found.weak_dependency.append(len(found.dependency))
            found.dependency.append(element.name.strip("\"'"))
        elif isinstance(element, ast.Option):
            _set_option(found.options, element)
        elif isinstance(element, ast.Message):
            _fill_message(found.message_type.add(), element, syntax)
        elif isinstance(element, ast.Enum):
            _fill_enum(found.enum_type.add(), element)
        elif isinstance(element, ast.Extension):
            _fill_extension(found.extension, element, syntax)
        elif isinstance(element, ast.Service):
            _fill_service(found.service.add(), element)
        elif not isinstance(element, ast.Comment):
            raise ValueError(f"{type(element).__name__.lower()} is not supported at the top of a file")
    return found


class _Refusal(ErrorListener):  # type: ignore[misc]
    """Rejects a text at its first error. The parser itself would print the error and continue."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:
        raise ValueError(f"line {line}, column {column}: {message[:200]}")


def _set_strict(stage: Any) -> None:
    stage.removeErrorListeners()
    stage.addErrorListener(_Refusal())


def _fill_message(found: Message, message: ast.Message, syntax: str) -> None:
    found.name = message.name
    presences: list[Field] = []  # optional fields of proto3, each of which has a separate oneof
    for element in message.elements:
        if isinstance(element, ast.Field):
            field = _fill_field(found.field.add(), element)
            if syntax == "proto3" and element.cardinality is ast.FieldCardinality.OPTIONAL:
                presences.append(field)
        elif isinstance(element, ast.MapField):
            _fill_map(found, element)
        elif isinstance(element, ast.OneOf):
            index = len(found.oneof_decl)
            choice = found.oneof_decl.add(name=element.name)
            for inner in element.elements:
                if isinstance(inner, ast.Field):
                    _fill_field(found.field.add(), inner).oneof_index = index
                elif isinstance(inner, ast.Option):
                    _set_option(choice.options, inner)
                elif not isinstance(inner, ast.Comment):
                    raise ValueError("groups are not supported; use a message")
        elif isinstance(element, ast.Message):
            _fill_message(found.nested_type.add(), element, syntax)
        elif isinstance(element, ast.Enum):
            _fill_enum(found.enum_type.add(), element)
        elif isinstance(element, ast.Extension):
            _fill_extension(found.extension, element, syntax)
        elif isinstance(element, ast.ExtensionRange):
            for start, end in _ranges(element.ranges, LAST_FIELD_NUMBER):
                found.extension_range.add(start=start, end=end + 1)
        elif isinstance(element, ast.Reserved):
            for start, end in _ranges(element.ranges, LAST_FIELD_NUMBER):
                found.reserved_range.add(start=start, end=end + 1)
            found.reserved_name.extend(name.strip("\"'") for name in element.names)
        elif isinstance(element, ast.Option):
            _set_option(found.options, element)
        elif isinstance(element, ast.Group):
            raise ValueError("groups are not supported; use a message")
    for field in presences:
        field.proto3_optional = True
        field.oneof_index = len(found.oneof_decl)
        found.oneof_decl.add(name=f"_{field.name}")


def _fill_field(found: Field, field: ast.Field) -> Field:
    found.name, found.number = field.name, field.number
    found.label = Field.LABEL_OPTIONAL if field.cardinality is None else LABELS[field.cardinality]
    _set_type(found, field.type)
    for option in field.options:
        if option.name == "default":
            found.default_value = _text_of(option.value)
        elif option.name == "json_name":
            found.json_name = _text_of(option.value)
        else:
            _set_option(found.options, option)
    return found


def _fill_map(message: Message, field: ast.MapField) -> None:
    entry = message.nested_type.add(name=f"{_camel(field.name)}Entry")
    entry.options.map_entry = True
    for name, number, kind in (("key", 1, field.key_type), ("value", 2, field.value_type)):
        _set_type(entry.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL), kind)
    found = message.field.add(name=field.name, number=field.number, label=Field.LABEL_REPEATED, type_name=entry.name)
    for option in field.options:
        _set_option(found.options, option)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _set_type(found: Field, kind: str) -> None:
    if kind in SCALARS:
        found.type = SCALARS[kind]
    else:
        found.type_name = kind  # the pool determines whether this is a message or an enum


def _fill_enum(found: pb.EnumDescriptorProto, enum: ast.Enum) -> None:
    found.name = enum.name
    for element in enum.elements:
        if isinstance(element, ast.EnumValue):
            value = found.value.add(name=element.name, number=element.number)
            for option in element.options:
                _set_option(value.options, option)
        elif isinstance(element, ast.EnumReserved):
            for start, end in _ranges(element.ranges, LAST_ENUM_NUMBER):
                found.reserved_range.add(start=start, end=end)
            found.reserved_name.extend(name.strip("\"'") for name in element.names)
        elif isinstance(element, ast.Option):
            _set_option(found.options, element)


def _fill_extension(extensions: Any, extension: ast.Extension, syntax: str) -> None:
    for element in extension.elements:
        if isinstance(element, ast.Field):
            _fill_field(extensions.add(extendee=extension.typeName), element)


def _fill_service(found: pb.ServiceDescriptorProto, service: ast.Service) -> None:
    found.name = service.name
    for element in service.elements:
        if isinstance(element, ast.Option):
            _set_option(found.options, element)
        elif isinstance(element, ast.Method):
            method = found.method.add(
                name=element.name, input_type=element.input_type.type, output_type=element.output_type.type
            )
            method.client_streaming = element.input_type.stream
            method.server_streaming = element.output_type.stream
            for inner in element.elements:
                if isinstance(inner, ast.Option):
                    _set_option(method.options, inner)


def _ranges(texts: Iterable[str], last: int) -> Iterator[tuple[int, int]]:
    for text in texts:
        start, _, end = text.partition(" to ")
        yield int(start), last if end.strip() == "max" else int(end or start)


def _set_option(options: Any, option: ast.Option) -> None:
    """Stores an option of a Protobuf schema.

    A standard option is stored in its own field. Any other option is stored as an uninterpreted option, so that it is
    not lost when the schema is turned into text again.
    """
    field = options.DESCRIPTOR.fields_by_name.get(option.name)
    value = option.value
    if field is None or isinstance(value, ast.MessageLiteral) or field.message_type is not None:
        uninterpreted = options.uninterpreted_option.add()
        uninterpreted.name.add(name_part=option.name, is_extension=False)
        if isinstance(value, bool | ast.Identifier):
            uninterpreted.identifier_value = _text_of(value)
        elif isinstance(value, int):
            if value < 0:
                uninterpreted.negative_int_value = value
            else:
                uninterpreted.positive_int_value = value
        elif isinstance(value, float):
            uninterpreted.double_value = value
        elif isinstance(value, str):
            uninterpreted.string_value = value.encode()
        else:
            uninterpreted.aggregate_value = _literal(value)
    elif field.enum_type is not None:
        setattr(options, option.name, field.enum_type.values_by_name[_text_of(value)].number)
    else:
        setattr(options, option.name, value)


def _text_of(value: Any) -> str:
    if isinstance(value, ast.Identifier):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _literal(value: Any) -> str:
    if isinstance(value, ast.MessageLiteral):
        fields = [each for each in value.elements if isinstance(each, ast.MessageLiteralField)]
        return " ".join(f"{each.name}: {_literal(each.value)}" for each in fields)
    if isinstance(value, list):
        return f"[{', '.join(_literal(each) for each in value)}]"
    return f'"{value}"' if isinstance(value, str) else _text_of(value)


def text_of(file: pb.FileDescriptorProto) -> str:
    """Converts a descriptor to a `.proto` text without comments. Equal descriptors yield equal texts."""
    is_proto3 = file.syntax == "proto3"
    parts = [f'syntax = "{file.syntax or "proto2"}";\n' + (f"package {file.package};\n" if file.package else "")]
    if file.dependency:
        kinds = dict.fromkeys(file.public_dependency, "public ") | dict.fromkeys(file.weak_dependency, "weak ")
        parts.append("".join(f'import {kinds.get(index, "")}"{name}";\n' for index, name in enumerate(file.dependency)))
    if options := list(_options(file.options)):
        parts.append("".join(f"option {option};\n" for option in options))
    parts += ["\n".join(_message(each, is_proto3, "")) + "\n" for each in file.message_type]
    parts += ["\n".join(_enum(each, "")) + "\n" for each in file.enum_type]
    parts += ["\n".join(_extensions(file.extension, is_proto3, "")) + "\n"] if file.extension else []
    parts += ["\n".join(_service(each)) + "\n" for each in file.service]
    return "\n".join(parts)


def _message(message: Message, is_proto3: bool, indent: str) -> Iterator[str]:
    inner = indent + "  "
    yield f"{indent}message {message.name} {{"
    for option in _options(message.options):
        yield f"{inner}option {option};"
    yield from _reserved(message.reserved_range, message.reserved_name, inner, LAST_FIELD_NUMBER, 1)
    for each in message.extension_range:
        yield f"{inner}extensions {_range(each.start, each.end - 1, LAST_FIELD_NUMBER)};"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield _field(field, entries, is_proto3, inner)
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            choice = message.oneof_decl[field.oneof_index]
            yield f"{inner}oneof {choice.name} {{"
            for option in _options(choice.options):
                yield f"{inner}  option {option};"
            for other in message.field:
                if other.HasField("oneof_index") and other.oneof_index == field.oneof_index:
                    yield _field(other, entries, True, inner + "  ")
            yield f"{inner}}}"
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from _message(nested, is_proto3, inner)
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    yield from _extensions(message.extension, is_proto3, inner)
    yield f"{indent}}}"


def _field(field: Field, entries: dict[str, Message], is_proto3: bool, indent: str) -> str:
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == Field.LABEL_REPEATED else None
    if entry is not None:
        kind = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>"
    else:
        label = ""
        if field.label == Field.LABEL_REPEATED:
            label = "repeated "
        elif field.label == Field.LABEL_REQUIRED:
            label = "required "
        elif not is_proto3 or field.proto3_optional:
            label = "optional "
        kind = label + _type(field)
    options = list(_options(field.options))
    if field.HasField("default_value"):
        is_text = field.type in (Field.TYPE_STRING, Field.TYPE_BYTES)
        options.insert(0, f"default = {_quoted(field.default_value) if is_text else field.default_value}")
    if field.HasField("json_name") and field.json_name != json_name(field.name):
        options.insert(0, f"json_name = {_quoted(field.json_name)}")
    return f"{indent}{kind} {field.name} = {field.number}{_in_brackets(options)};"


def _in_brackets(options: Sequence[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def json_name(name: str) -> str:
    """Returns the JSON name of a field without a `json_name` option, which is its name in lower camel case."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _type(field: Field) -> str:
    return field.type_name if field.type_name else NAMES_OF_SCALARS[field.type]


def _enum(enum: pb.EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for option in _options(enum.options):
        yield f"{indent}  option {option};"
    yield from _reserved(enum.reserved_range, enum.reserved_name, indent + "  ", LAST_ENUM_NUMBER, 0)
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number}{_in_brackets(list(_options(value.options)))};"
    yield f"{indent}}}"


def _reserved(ranges: Iterable[Any], names: Sequence[str], indent: str, last: int, beyond: int) -> Iterator[str]:
    """Yields the `reserved` declarations of a message or an enum. `beyond` is 1 if the ends of the ranges are
    exclusive."""
    if texts := [_range(each.start, each.end - beyond, last) for each in ranges]:
        yield f"{indent}reserved {', '.join(texts)};"
    if names:
        yield f"{indent}reserved {', '.join(_quoted(name) for name in names)};"


def _range(start: int, end: int, last: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == last else end}"


def _extensions(extensions: Iterable[Field], is_proto3: bool, indent: str) -> Iterator[str]:
    for extension in extensions:
        yield f"{indent}extend {extension.extendee} {{"
        yield _field(extension, {}, is_proto3, indent + "  ")
        yield f"{indent}}}"


def _service(service: pb.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for option in _options(service.options):
        yield f"  option {option};"
    for method in service.method:
        request = ("stream " if method.client_streaming else "") + method.input_type
        answer = ("stream " if method.server_streaming else "") + method.output_type
        options = list(_options(method.options))
        yield f"  rpc {method.name} ({request}) returns ({answer}){' {' if options else ';'}"
        for option in options:
            yield f"    option {option};"
        if options:
            yield "  }"
    yield "}"


def _options(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            for uninterpreted in value:
                yield f"{uninterpreted.name[0].name_part} = {_uninterpreted(uninterpreted)}"
        elif field.name != "map_entry" and field.message_type is None:
            for each in value if field.is_repeated else [value]:
                if field.enum_type is not None:
                    yield f"{field.name} = {field.enum_type.values_by_number[each].name}"
                else:
                    yield f"{field.name} = {_quoted(each) if isinstance(each, str) else _text_of(each)}"


def _uninterpreted(option: pb.UninterpretedOption) -> str:
    for field, value in option.ListFields():
        if field.name == "string_value":
            return _quoted(value.decode(errors="replace"))
        if field.name == "aggregate_value":
            return f"{{ {value} }}"
        if field.name != "name":
            return str(value)
    return '""'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
