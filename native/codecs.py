"""Generates message codecs ahead of time. mypyc compiles them together with the message classes.

Without compilation, `odradek.protocol.codec` generates the same functions from the same schemas at run time. Here, each
version's functions, such as `read_9` and `write_9`, are added at the end of the message's module.
"""

from __future__ import annotations

import re
from typing import Any

from odradek.protocol import reader_source, writer_source
from odradek.protocol.schema import Schema, load

HEAD = "from __future__ import annotations\n"
IMPORTS = f"""# mypy: disable-error-code="union-attr"
# A null where none may be raises AttributeError, which becomes UnsupportedVersion.
from struct import Struct as Packing
from typing import Any, Final
from odradek.protocol.primitives import {", ".join(sorted({*reader_source.HELPERS, *writer_source.HELPERS}))}
from odradek.protocol.struct import ZERO_UUID, Buffer
"""
LIST = re.compile(r"^( *)(\w+) = (\S+) = \[\]$", re.M)
DEFAULT = re.compile(r"^(        )(\w+): (.*) = UNSET,$", re.M)


def with_codecs(source: str, module: str) -> str:
    """Returns the source of a message's module, extended with decoders and encoders for all versions.

    Requests get only decoders and responses get only encoders, because the broker needs nothing else. Messages stored
    in the broker's records get both.
    """
    schema = load(module)
    functions: list[str] = []
    constants: dict[str, str] = {}
    for version in range(schema.versions.lowest, (schema.versions.highest or 0) + 1):
        if schema.kind != "response":
            functions.append(_reader(schema, version, constants))
        if schema.kind != "request":
            functions.append(_writer(schema, version, constants))
    packings = [f"{name}: Final = Packing({text!r}).{name_of(name)}" for name, text in sorted(constants.items())]
    assert HEAD in source
    return "\n\n".join([_typed(source).replace(HEAD, HEAD + IMPORTS), "\n".join(packings), *functions])


def name_of(constant: str) -> str:
    return "unpack_from" if constant.startswith("read_") else "pack"


def _typed(source: str) -> str:
    """Returns the source with the type Any for each constructor parameter whose default is UNSET. The attribute set by
    the parameter is annotated with the original type instead."""
    lines: list[str] = []
    types: dict[str, str] = {}
    for line in source.split("\n"):
        if match := DEFAULT.match(line):
            types[match[2]] = match[3]
            line = f"{match[1]}{match[2]}: Any = UNSET,"
        elif (match := re.match(r"        self\.(\w+) = ", line)) and match[1] in types:
            line = line.replace(f"self.{match[1]} =", f"self.{match[1]}: {types.pop(match[1])} =", 1)
        lines.append(line)
    return "\n".join(lines)


def _reader(schema: Schema, version: int, constants: dict[str, str]) -> str:
    text, names = reader_source.reader_source(schema, version)
    _packings(names, constants)
    text = re.sub(r"\bnew\((\w+)\)", r"\1()", text)
    text = LIST.sub(r"\1\3 = []\n\1\2 = \3", text)
    head = "def read(data, p):\n"
    copied = "    if type(data) is not bytes:\n        m, q = read(bytes(data[p:]), 0)\n        return m, p + q\n"
    assert text.startswith(head)
    text = text.removeprefix(head).removeprefix(copied)
    integers = "".join(f"    {name}: int\n" for name in sorted(set(re.findall(r"\bn\d+\b", text))))
    result = f"-> tuple[{schema.name}, int]:\n"
    if "    view = " in text:
        view = "    view = data if isinstance(data, memoryview) else memoryview(data)\n"
        text = re.sub(r"^    view = .*\n", view, text)
        return f"def read_{version}(data: Buffer, p: int) {result}{integers}{text}"
    return (
        f"def _read_{version}(data: bytes, p: int) {result}{integers}{text}\n\n"
        f"def read_{version}(data: Buffer, p: int) {result}"
        f"    if isinstance(data, bytes):\n        return _read_{version}(data, p)\n"
        f"    m, q = _read_{version}(bytes(data[p:]), 0)\n    return m, p + q\n"
    )


def _writer(schema: Schema, version: int, constants: dict[str, str]) -> str:
    text, names = writer_source.writer_source(schema, version)
    _packings(names, constants)
    records = sorted(set(re.findall(r"type\((\w+)\) is not list", text)))
    text = re.sub(r"type\((\w+)\) is not list", r"not isinstance(\1, list)", text)
    nullable = re.findall(r"^ *n\d+, (a\d+) = -?\d, \(\)$", text, re.M)
    declared = "".join(f"    {name}: Any\n" for name in [*records, *nullable])
    head = "def write(m, out, chunks):\n"
    assert text.startswith(head)
    return (
        f"def write_{version}(m: {schema.name}, out: bytearray, chunks: list[Any]) -> None:\n"
        f"{declared}{text.removeprefix(head)}"
    )


def _packings(names: dict[str, Any], constants: dict[str, str]) -> None:
    for name, value in names.items():
        if re.fullmatch(r"(read|pack)_[A-Za-z0-9]+", name) and hasattr(getattr(value, "__self__", None), "format"):
            constants[name] = value.__self__.format
