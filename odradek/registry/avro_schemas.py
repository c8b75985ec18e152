"""Avro schemas: canonical text and compatibility checks. Two schemas are compatible if data written with one can be
read with the other.

Apache's `avro` parses and compares the schemas. The canonical text is the one that Avro's Java library produces and
Confluent's registry stores: JSON without white space, in which a type's properties have a fixed order and a named type
is written out only once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from odradek.registry.avro_documents import NAMED, PRIMITIVES, full_name_of, loaded, qualified
from odradek.registry.errors import invalid_schema
from odradek.registry.schemas import Incompatibility, Json, Reference

# Each type's properties, in the order of the canonical text. All other properties follow in their original order.
OWN_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
    "field": ("name", "type", "doc", "default", "order", "aliases"),
}
WHOLE_NUMBERS: Final = {"int": 31, "long": 63}  # number of bits without the sign
MAX_FIELDS: Final = 10_000  # maximum per record, because the library compares each field name with all others


class AvroSchema:
    __slots__ = ("_json", "_known", "canonical", "parsed")

    def __init__(self, parsed: avro.schema.Schema, document: Json, known: Mapping[str, None]) -> None:
        self.parsed = parsed
        self.canonical = _dumped(_Canonical(known).of(document, ""))
        self._json = document
        self._known = known

    def normalized(self) -> str:
        return _dumped(_Canonical(self._known, is_sorted=True).of(self._json, ""))

    def cannot_read(self, writer: AvroSchema) -> list[Incompatibility]:
        result = _AvroComparison().get_compatibility(self.parsed, writer.parsed)
        if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        kinds = [each.name.upper() for each in result.incompatibilities]
        places = sorted(result.locations) or ["/"]
        messages = sorted(result.messages) or [""]
        return [
            Incompatibility(kind, messages[min(index, len(messages) - 1)], places[min(index, len(places) - 1)])
            for index, kind in enumerate(kinds)
        ]


class _WriterFields:
    """A writer's record schema that caches the index of its fields by name. The library's own property rebuilds the
    index on every access."""

    def __init__(self, record: Any) -> None:
        self._record = record
        self.fields_dict = record.fields_dict

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)


class _AvroComparison(avro.compatibility.ReaderWriterCompatibilityChecker):
    """Compares two schemas in time proportional to their size.

    The library stores the pairs that it has compared, but the pairs' hashes collide: `id(a) ^ id(b)` is 0 for every
    pair of a schema with itself. With 2,000 fields, a comparison took 20 s.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], Any] = {}
        self._kept: list[_WriterFields] = []  # keeps these objects alive so that no other object gets the same id

    def get_compatibility(
        self, reader: Any, writer: Any, reference_token: str = "/", location: list[str] | None = None
    ) -> Any:
        pair = id(reader), id(writer)
        if pair not in self._results:
            # assumes that the schemas are compatible while they are being compared, because a schema may contain itself
            self._results[pair] = avro.compatibility.CompatibleResult
            self._results[pair] = self.calculate_compatibility(reader, writer, [*(location or ()), reference_token])
        return self._results[pair]

    def check_reader_writer_record_fields(self, reader: Any, writer: Any, location: list[str]) -> Any:
        self._kept.append(_WriterFields(writer))
        return super().check_reader_writer_record_fields(reader, cast(Any, self._kept[-1]), location)


def parse(text: str, references: Sequence[tuple[Reference, str]]) -> AvroSchema:
    names = avro.name.Names()
    known: dict[str, None] = {}
    try:
        for _, referenced in references:
            document = json.loads(referenced)
            _check_sizes(document)
            avro.schema.make_avsc_object(document, names)
        known.update(dict.fromkeys(names.names))
        document = loaded(text)
        _check_sizes(document)
        parsed = avro.schema.make_avsc_object(document, names)
        _check_defaults(parsed, set())
    except (avro.errors.AvroException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise invalid_schema(str(error)) from error
    return AvroSchema(parsed, document, known)


def _check_sizes(document: Json) -> None:
    """Raises ValueError if a record has too many fields. A schema of the maximum size can have 28,000 fields, for which
    the library takes 9 s."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            fields = each.get("fields")
            if isinstance(fields, list) and len(fields) > MAX_FIELDS:
                raise ValueError(f"the record {each.get('name')} has {len(fields)} fields; the limit is {MAX_FIELDS}")
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _dumped(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


class _Canonical:
    """Rewrites one schema's JSON in canonical form.

    known      full names of types defined by references, which are not written out
    is_sorted  whether to also sort properties that have no meaning for Avro
    """

    def __init__(self, known: Mapping[str, None], *, is_sorted: bool = False) -> None:
        self._written = set(known)
        self._is_sorted = is_sorted

    def of(self, schema: Json, space: str) -> Json:
        """Returns the canonical form of a schema that is used inside the namespace `space`."""
        if isinstance(schema, list):
            return [self.of(branch, space) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else _shortened(qualified(schema, space), space)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, space)
        if kind in NAMED:
            return self._named(schema, kind, space)
        if kind == "array":
            return {"type": kind, "items": self.of(schema["items"], space), **self._others(schema, kind)}
        if kind == "map":
            return {"type": kind, "values": self.of(schema["values"], space), **self._others(schema, kind)}
        others = self._others(schema, kind)
        if kind in PRIMITIVES:
            return {"type": kind, **others} if others else kind
        return self.of(kind, space)

    def _named(self, schema: Json, kind: str, space: str) -> Json:
        full_name = full_name_of(schema, space)
        if full_name in self._written:
            return _shortened(full_name, space)
        self._written.add(full_name)
        own_space, _, name = full_name.rpartition(".")
        found: dict[str, Json] = {"type": kind, "name": name}
        if own_space != space:
            found["namespace"] = own_space
        if schema.get("doc") is not None:
            found["doc"] = schema["doc"]
        if kind in ("record", "error"):
            found["fields"] = [self._field(field, own_space) for field in schema.get("fields", ())]
        elif kind == "enum":
            found["symbols"] = schema["symbols"]
            if "default" in schema:
                found["default"] = schema["default"]
        else:
            found["size"] = schema["size"]
        found.update(self._others(schema, kind))
        if schema.get("aliases"):
            aliases = [qualified(alias, own_space) for alias in schema["aliases"]]
            found["aliases"] = [_shortened(alias, own_space) for alias in aliases]
        return found

    def _field(self, field: Json, space: str) -> Json:
        found: dict[str, Json] = {"name": field["name"], "type": self.of(field["type"], space)}
        if field.get("doc") is not None:
            found["doc"] = field["doc"]
        if "default" in field:
            found["default"] = field["default"]
        if field.get("order", "ascending") != "ascending":
            found["order"] = field["order"]
        if field.get("aliases"):
            found["aliases"] = field["aliases"]
        found.update(self._others(field, "field"))
        return found

    def _others(self, schema: Json, kind: str) -> Json:
        own = OWN_PROPERTIES.get(kind, ("type",))
        names = [name for name in schema if name not in own]
        return {name: schema[name] for name in (sorted(names) if self._is_sorted else names)}


def _shortened(full_name: str, space: str) -> str:
    """Returns a type name as written inside a namespace. A type with the name of a primitive type keeps its
    namespace."""
    own_space, _, name = full_name.rpartition(".")
    return name if own_space == space and name not in PRIMITIVES else full_name


def _check_defaults(schema: Any, checked: set[int]) -> None:
    """Raises ValueError if a field's default is not a value of the field's type. Confluent's registry also rejects new
    schemas with such defaults."""
    if id(schema) in checked:
        return
    checked.add(id(schema))
    if isinstance(schema, avro.schema.RecordSchema):
        for field in schema.fields:
            if field.has_default and not _is_value(field.default, field.type):
                raise ValueError(
                    f"Invalid default for field {field.name}: {json.dumps(field.default)} not a {field.type}"
                )
            _check_defaults(field.type, checked)
    elif isinstance(schema, avro.schema.UnionSchema):
        for branch in schema.schemas:
            _check_defaults(branch, checked)
    elif isinstance(schema, avro.schema.ArraySchema):
        _check_defaults(schema.items, checked)
    elif isinstance(schema, avro.schema.MapSchema):
        _check_defaults(schema.values, checked)


def _is_value(value: Json, schema: Any) -> bool:
    """Returns whether a JSON value is a valid default for this type. A union accepts a value of any of its branches, as
    in Avro 1.12."""
    kind = schema.type
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in WHOLE_NUMBERS:
        bits = WHOLE_NUMBERS[kind]
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("string", "bytes", "fixed"):
        return isinstance(value, str)
    if kind == "enum":
        return value in schema.symbols
    if kind == "array":
        return isinstance(value, list) and all(_is_value(each, schema.items) for each in value)
    if kind == "map":
        return isinstance(value, dict) and all(_is_value(each, schema.values) for each in value.values())
    if kind in ("union", "error_union"):
        return any(_is_value(value, branch) for branch in schema.schemas)
    return isinstance(value, dict) and all(
        _is_value(value[field.name], field.type) if field.name in value else field.has_default
        for field in schema.fields
    )
