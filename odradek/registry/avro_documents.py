"""Reads Avro schemas as JSON documents, and inlines the types that a schema references.

This module uses no library, so that Spark can use a registry's schemas without `odradek[registry]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.registry.schemas import Json

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
RECORDS: Final = ("record", "error")


def loaded(text: str) -> Json:
    """Parses a schema's text. Raises ValueError if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        if text.strip() in PRIMITIVES:  # a primitive type may be written without quotes
            return text.strip()
        raise


def qualified(name: str, space: str) -> str:
    """Returns the full name of a type that is referred to inside the namespace `space`. An empty `space` means no
    namespace."""
    return name if "." in name or not space else f"{space}.{name}"


def full_name_of(schema: Json, space: str) -> str:
    """Returns the full name of a type defined inside the namespace `space`. In a definition, the namespace "" means no
    namespace, and a definition without a namespace property is in `space`."""
    namespace = schema.get("namespace")
    return qualified(schema["name"], space if namespace is None else namespace)


def self_contained(text: str, references: Iterable[str]) -> Json:
    """Returns a schema as a document that needs no references. Where the document first uses a type defined by a
    reference, it contains the type's definition.

    references  the texts of the schemas that the schema uses, directly or indirectly

    Raises ValueError if a text is not JSON.
    """
    definitions: dict[str, tuple[Json, str]] = {}
    for each in references:
        _collect(loaded(each), "", definitions)
    return _Inlining(definitions).of(loaded(text), "")


def _collect(schema: Json, space: str, definitions: dict[str, tuple[Json, str]]) -> None:
    """Adds the named types that a schema defines, each with the namespace enclosing its definition."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, space, definitions)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and kind in NAMED:
            name = full_name_of(schema, space)
            definitions.setdefault(name, (schema, space))
            own_space = name.rpartition(".")[0]
            for field in schema.get("fields", ()):
                _collect(field["type"], own_space, definitions)
        else:
            for part in ("type", "items", "values"):
                _collect(schema.get(part), space, definitions)


class _Inlining:
    """Copies a document. Writes out a definition where its type is first used, and only the type's name afterwards."""

    def __init__(self, definitions: Mapping[str, tuple[Json, str]]) -> None:
        self._definitions = definitions
        self._written: set[str] = set()

    def of(self, schema: Json, space: str) -> Json:
        """Returns a copy of a schema that is used inside the namespace `space`."""
        if isinstance(schema, list):
            return [self.of(branch, space) for branch in schema]
        if isinstance(schema, str):
            return self._of_name(schema, space)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, space)
        if kind in NAMED:
            return self._of_definition(schema, space)
        copied = dict(schema)
        if kind == "array":
            copied["items"] = self.of(schema["items"], space)
        elif kind == "map":
            copied["values"] = self.of(schema["values"], space)
        elif kind not in PRIMITIVES:
            return self._of_name(kind, space)
        return copied

    def _of_name(self, name: str, space: str) -> Json:
        if name in PRIMITIVES:
            return name
        full = qualified(name, space)
        if full not in self._written and full not in self._definitions:
            full = name  # a type without a namespace may be used inside a namespace
        if full in self._written or full not in self._definitions:
            return full
        return self._of_definition(*self._definitions[full])

    def _of_definition(self, schema: Json, space: str) -> Json:
        full = full_name_of(schema, space)
        if full in self._written:
            return full
        self._written.add(full)
        own_space, _, name = full.rpartition(".")
        copied = {**schema, "name": name, "namespace": own_space}
        if schema["type"] in RECORDS:
            copied["fields"] = [{**each, "type": self.of(each["type"], own_space)} for each in schema["fields"]]
        return copied
