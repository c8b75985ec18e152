"""Builds requests with very many entries. Each array of each API is filled with unknown, known or repeated entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from odradek.broker.api.served import SERVED
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import request_class
from odradek.protocol.schema import Field, Schema, load
from odradek.protocol.struct import Message, Struct

UNKNOWN, KNOWN, REPEATED = KINDS = ("unknown", "known", "repeated")
KNOWN_TOPIC = "known"  # a topic with KNOWN_PARTITIONS partitions
KNOWN_PARTITIONS = 50


@dataclass(frozen=True, slots=True)
class LongArray:
    """An array of a request. `path` names the arrays that contain it, from the outside in, and then the array
    itself."""

    api_key: ApiKey
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.api_key.name}-{'.'.join(self.path)}"


def long_arrays() -> Iterator[LongArray]:
    """Yields all arrays of all served APIs, each at the newest version that has the array."""
    for api_key, served in SERVED.items():
        schema = load(request_class(api_key.value).__module__.rpartition(".")[2])
        found: dict[tuple[str, ...], int] = {}
        for version in range(max(served.min_version, served.served_from), served.max_version + 1):
            for path in _arrays(schema, schema.fields, version):
                found[path] = version
        yield from (LongArray(api_key, version, path) for path, version in found.items())


def _arrays(schema: Schema, fields: tuple[Field, ...], version: int) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (field.attribute,)
        if field.is_struct:
            for below in _arrays(schema, schema.structs[field.type], version):
                yield (field.attribute, *below)


def long_request(array: LongArray, entries: int, kind: str) -> Message:
    """Returns a request with `entries` entries in the array, and one entry in each array that contains it."""
    request = request_class(array.api_key.value)()
    schema = load(type(request).__module__.rpartition(".")[2])
    _fill(request, schema, schema.fields, array, array.path, entries, kind)
    assert isinstance(request, Message)
    return request


def _fill(
    struct: Struct,
    schema: Schema,
    fields: tuple[Field, ...],
    array: LongArray,
    path: tuple[str, ...],
    entries: int,
    kind: str,
) -> None:
    """Gives each containing array one known entry, and the last array of `path` all entries. Leaves other arrays
    empty."""
    module = import_module(f"odradek.protocol.messages.{schema.module}")
    for field in fields:
        if array.version not in field.versions or (field.tag is not None and field.attribute not in path):
            continue
        if field.attribute not in path[:1] or not (field.is_array or field.is_struct):
            if not field.is_array and not field.is_struct:
                setattr(struct, field.attribute, _plain(field, 0, KNOWN))
            continue
        is_last = len(path) == 1
        elements: list[Any] = []
        for number in range(entries if is_last else 1):
            if field.is_struct:
                element = getattr(module, field.type)()
                below = schema.structs[field.type]
                _fill(element, schema, below, array, () if is_last else path[1:], entries, kind)
                if is_last:
                    for each in below:
                        if array.version in each.versions and not each.is_array and not each.is_struct:
                            setattr(element, each.attribute, _plain(each, number, kind))
            else:
                element = _plain(field, number, kind)
            elements.append(element)
        setattr(struct, field.attribute, elements if field.is_array else elements[0])


def _plain(field: Field, number: int, kind: str) -> Any:
    own = 0 if kind == REPEATED else number
    match field.type:
        case "string":
            return KNOWN_TOPIC if kind == KNOWN else f"name-{own}"
        case "uuid":
            return own.to_bytes(16, "big") if kind != KNOWN else bytes(16)
        case "bytes":
            return b""
        case "records":
            return None
        case "bool":
            return False
        case "float64":
            return 0.0
        case "int8":
            return 2 if "type" in field.attribute else 0
        case "int16" | "uint16":
            return 1 if field.attribute == "acks" else own % 100
        case _:
            if "partition" in field.attribute or field.attribute == "index":
                return number % KNOWN_PARTITIONS if kind == KNOWN else own
            return own if field.is_array else (0 if field.default == 0 else field.default)
