"""Generates `odradek/protocol/messages/` from the schemas. Run it with `python -m odradek.protocol.generate`.

Each message has a module with its class and the classes of its structs. They are plain classes with slots, because
creating dataclasses at import time would take longer than the rest of the broker's start-up.
"""

from collections.abc import Iterator
from pathlib import Path

from odradek.protocol.schema import INTEGERS, NO_VERSIONS, ZERO_UUID, Field, Schema, all_modules, load

MESSAGES = Path(__file__).resolve().parent / "messages"
PYTHON_TYPES = dict.fromkeys(INTEGERS, "int") | {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
}
NOQA = "\n# ruff: noqa: RUF023 (slots are in wire order)\n"


def python_type(field: Field, schema: Schema) -> str:
    """Returns the type annotation of a field, such as `list[int] | None`."""
    if field.type == "records":
        text = "RecordChunks" if schema.kind == "response" else "Buffer"
        return f"{text} | None"
    text = field.type if field.is_struct else PYTHON_TYPES[field.type]
    if field.is_array:
        text = f"list[{text}]"
    return f"{text} | None" if is_optional(field) else text


def is_optional(field: Field) -> bool:
    return field.is_null_when_absent or field.nullable != NO_VERSIONS


def default_text(field: Field) -> str:
    if field.is_null_when_absent:
        return "None"
    if field.default_is_empty:
        return "UNSET"
    if field.default == ZERO_UUID:
        return "ZERO_UUID"
    if isinstance(field.default, str):
        return f'"{field.default}"'
    return 'b""' if field.default == b"" else repr(field.default)


def class_lines(name: str, fields: tuple[Field, ...], schema: Schema, *, is_message: bool) -> Iterator[str]:
    yield f"class {name}({'Message' if is_message else 'Struct'}):"
    if not fields:
        yield "    __slots__ = ()"
    elif len(one_line := ", ".join(f'"{field.attribute}"' for field in fields)) <= 98:
        yield f"    __slots__ = ({one_line}{',' if len(fields) == 1 else ''})"
    else:
        yield "    __slots__ = ("
        yield from (f'        "{field.attribute}",' for field in fields)
        yield "    )"
    if is_message:
        if schema.key is not None:
            yield f"    API_KEY = {schema.key}"
        yield f"    MIN_VERSION = {schema.versions.lowest}"
        yield f"    MAX_VERSION = {schema.versions.highest}"
        yield f"    FLEXIBLE_SINCE = {schema.flexible.lowest if schema.flexible.highest is None else None}"
    if not fields:
        return
    yield ""
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    for field in fields:
        yield f"        {field.attribute}: {python_type(field, schema)} = {default_text(field)},"
    yield "    ) -> None:"
    for field in fields:
        name = field.attribute
        if default_text(field) != "UNSET":
            yield f"        self.{name} = {name}"
            continue
        choice = f"{'[]' if field.is_array else f'{field.type}()'} if {name} is UNSET else {name}"
        if len(choice) + len(name) <= 104:
            yield f"        self.{name} = {choice}"
        else:
            yield from (f"        self.{name} = (", f"            {choice}", "        )")


def module_text(schema: Schema) -> str:
    """Returns the source of one module, formatted as ruff would format it."""
    classes: list[str] = []
    for name, fields in [(schema.name, schema.fields), *schema.structs.items()]:
        classes.append("\n".join(class_lines(name, fields, schema, is_message=name == schema.name)))
    body = "\n\n\n".join(classes)
    names = [
        name
        for name in ("UNSET", "ZERO_UUID", "Buffer", "Message", "RecordChunks", "Struct")
        if any(f"{before}{name}" in body for before in ("(", " ", "["))
    ]
    needs_noqa = any(
        (slots := [field.attribute for field in fields]) != sorted(slots)
        for fields in (schema.fields, *schema.structs.values())
    )
    range_text = f"{schema.versions.lowest}-{schema.versions.highest}"
    return (
        f'"""{schema.name}, versions {range_text}. Written by `python -m odradek.protocol.generate`."""\n'
        f"{NOQA if needs_noqa else ''}\n"
        "from __future__ import annotations\n\n"
        f"from odradek.protocol.struct import {', '.join(names)}\n\n\n"
        f"{body}\n"
    )


INIT_HEAD = '''"""Typed classes of all messages. Written by `python -m odradek.protocol.generate`.

A module is imported on first use, so that a process loads only the messages that it needs.
"""

from importlib import import_module
from typing import cast

from odradek.protocol.struct import Message

'''
INIT_TAIL = '''

def message_class(module: str) -> type[Message]:
    """Returns the message class defined in `module`, which is a module name such as `produce_request`."""
    name = MODULES[module]
    return cast(type[Message], getattr(import_module(f"odradek.protocol.messages.{module}"), name))


def request_class(api_key: int) -> type[Message]:
    """Returns the request class of an API key. Raises KeyError if the API has none."""
    return message_class(REQUESTS[api_key])


def response_class(api_key: int) -> type[Message]:
    """Returns the response class of an API key. Raises KeyError if the API has none."""
    return message_class(RESPONSES[api_key])
'''


def init_text(schemas: list[Schema]) -> str:
    """Returns the source of `odradek/protocol/messages/__init__.py`."""
    lines = ["MODULES: dict[str, str] = {"]
    lines += [f'    "{schema.module}": "{schema.name}",' for schema in schemas]
    lines.append("}")
    for kind in ("request", "response"):
        lines.append(f"{kind.upper()}S: dict[int, str] = {{")
        of_kind = sorted((schema.key or 0, schema.module) for schema in schemas if schema.kind == kind)
        lines += [f'    {key}: "{module}",' for key, module in of_kind]
        lines.append("}")
    return INIT_HEAD + "\n".join(lines) + "\n" + INIT_TAIL


def generate_sources() -> dict[str, str]:
    """Returns the text of every file in `odradek/protocol/messages/`, keyed by file name."""
    schemas = [load(module) for module in all_modules()]
    return {"__init__.py": init_text(schemas)} | {f"{schema.module}.py": module_text(schema) for schema in schemas}


def main() -> None:
    MESSAGES.mkdir(exist_ok=True)
    texts = generate_sources()
    for path in MESSAGES.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (MESSAGES / name).write_text(text)


if __name__ == "__main__":
    main()
