"""Parses and checks the schemas in `odradek/schemas/*.json` and fills in all defaults.

A schema describes one message in all its versions. A field's JSON contains its name (in Kafka's spelling), its type and
the versions that have the field. If applicable, it also contains the versions in which the field can be null, its tag,
its default, whether a version without the field may drop a value (`ignorable`), whether the field is part of the key of
its list (`map_key`), and `flexible: null` for the one field that keeps its old encoding in flexible versions. See
docs/formats/wire.md.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"

INTEGERS: Mapping[str, tuple[int, str]] = {  # type → (bytes, struct code)
    "int8": (1, "b"),
    "int16": (2, "h"),
    "uint16": (2, "H"),
    "int32": (4, "i"),
    "uint32": (4, "I"),
    "int64": (8, "q"),
}
FIXED: Mapping[str, tuple[int, str]] = {**INTEGERS, "bool": (1, "b"), "float64": (8, "d"), "uuid": (16, "16s")}
SIZED = frozenset({"string", "bytes", "records"})  # encoded as a length followed by that many bytes
ZERO_UUID = bytes(16)


def snake_case(name: str) -> str:
    """Converts a name such as Kafka's `TransactionalId` to `transactional_id`. `KRaft` is treated as one word."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, including both ends. `highest` is None if the range is open-ended."""

    lowest: int
    highest: int | None

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version and (self.highest is None or version <= self.highest)

    @classmethod
    def parse(cls, text: str | None) -> "Versions":
        """Parses a range such as `3+`, `0-7` or `2`. None means an empty range."""
        if text is None:
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))


NO_VERSIONS = Versions(0, -1)


class Field(NamedTuple):
    """A field of a struct. `default` is its value in versions that do not have the field. If this value is an empty
    list or a struct with default values, `default` is None and `default_is_empty` is true."""

    name: str
    attribute: str
    type: str  # the type of the elements if `is_array`
    is_array: bool
    is_struct: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    default_is_empty: bool
    ignorable: bool
    map_key: bool
    flexible: bool  # False if not even flexible versions use the compact form

    @property
    def type_name(self) -> str:
        return f"[]{self.type}" if self.is_array else self.type

    @property
    def is_null_when_absent(self) -> bool:
        """True if the value is None when the field is absent. This applies only to tagged structs that cannot be null,
        and saves memory in messages with many of them."""
        return self.tag is not None and self.is_struct and not self.is_array and self.nullable == NO_VERSIONS


class Schema(NamedTuple):
    """The schema of one message in all its versions."""

    name: str
    kind: str  # one of request, response, header, data, metadata, coordinator-key, coordinator-value
    key: int | None  # the API key, or the type that precedes a stored record
    versions: Versions
    flexible: Versions
    latest_version_unstable: bool
    fields: tuple[Field, ...]
    structs: Mapping[str, tuple[Field, ...]]

    @property
    def module(self) -> str:
        return snake_case(self.name)

    def version_range(self) -> range:
        assert self.versions.highest is not None
        return range(self.versions.lowest, self.versions.highest + 1)


def _field(data: Mapping[str, Any], structs: Mapping[str, Any]) -> Field:
    is_array = data["type"].startswith("[]")
    type_name = data["type"].removeprefix("[]")
    is_struct = type_name in structs
    if not (is_struct or type_name in FIXED or type_name in SIZED):
        raise ValueError(f"unknown type {data['type']} of field {data['name']}")
    default_is_empty = "default" not in data and (is_array or is_struct)
    if "default" in data:
        default = data["default"]
    elif default_is_empty or type_name == "records":
        default = None
    elif type_name in INTEGERS:
        default = 0
    else:
        default = {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": "", "bytes": b""}[type_name]
    return Field(
        name=data["name"],
        attribute=snake_case(data["name"]),
        type=type_name,
        is_array=is_array,
        is_struct=is_struct,
        versions=Versions.parse(data["versions"]),
        nullable=Versions.parse(data.get("nullable")),
        tag=data.get("tag"),
        default=default,
        default_is_empty=default_is_empty,
        ignorable=data.get("ignorable", False),
        map_key=data.get("map_key", False),
        flexible="flexible" not in data,
    )


def parse(data: Mapping[str, Any]) -> Schema:
    """Builds a schema from its JSON document."""
    structs = data.get("structs", {})
    return Schema(
        name=data["name"],
        kind=data["kind"],
        key=data.get("key"),
        versions=Versions.parse(data["versions"]),
        flexible=Versions.parse(data["flexible"]),
        latest_version_unstable=data.get("latest_version_unstable", False),
        fields=tuple(_field(field, structs) for field in data["fields"]),
        structs={name: tuple(_field(field, structs) for field in fields) for name, fields in structs.items()},
    )


@cache
def load(module: str) -> Schema:
    """Returns one message's schema, given the name of its module, such as `produce_request`."""
    return parse(json.loads((SCHEMAS / f"{module}.json").read_bytes()))


def all_modules() -> list[str]:
    """Returns the module names of all schemas, sorted."""
    return sorted(path.stem for path in SCHEMAS.glob("*.json"))
