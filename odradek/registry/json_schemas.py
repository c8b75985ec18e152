"""JSON Schemas: canonical text and compatibility checks. Two schemas are compatible if documents that are valid under
one are valid under the other.

Confluent documents the rules for JSON Schema evolution. A property may be added to a closed content model if the
property is optional or has a default. A property may be removed from an open content model. A keyword that the rules do
not cover may be removed. A schema that adds or changes such a keyword is incompatible, because this module cannot
determine which documents the schema rejects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema.exceptions
import jsonschema.validators

from odradek.registry.errors import invalid_schema
from odradek.registry.schemas import Incompatibility, Json, Reference

ANY_TYPE: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
# Keywords that restrict values of a single type. A schema that has one of them but no `type` is treated as having that
# type.
KEYWORDS_OF_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"}
        | {"dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"}
    ),
    "array": frozenset(
        {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"}
        | {"minContains", "maxContains", "unevaluatedItems"}
    ),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
UPPER_BOUNDS: Final = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
LOWER_BOUNDS: Final = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
NOT_COVERED: Final = (
    *("contains", "minContains", "maxContains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
    *("if", "then", "else", "$dynamicRef", "$recursiveRef"),
)
SUMS: Final = ("anyOf", "oneOf")
# Maximum number of subschema pairs to compare, so that one request cannot occupy a thread for long.
MAX_COMPARISONS: Final = 100_000


class JsonSchema:
    __slots__ = ("canonical", "document", "documents")

    def __init__(self, document: Json, documents: Mapping[str, Json]) -> None:
        """Creates a schema.

        document   the schema
        documents  the schemas that references name, keyed by URI
        """
        self.document = document
        self.documents = documents
        self.canonical = json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    def normalized(self) -> str:
        return json.dumps(self.document, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def cannot_read(self, writer: JsonSchema) -> list[Incompatibility]:
        comparison = _Comparison(_Resolver(writer), _Resolver(self))
        return list(comparison.of(_Place(writer.document, _base(writer)), _Place(self.document, _base(self)), "#/"))


def parse(text: str, references: Sequence[tuple[Reference, str]]) -> JsonSchema:
    try:
        document = json.loads(text)
        documents = {reference.name: json.loads(referenced) for reference, referenced in references}
        if not isinstance(document, dict | bool):
            raise ValueError("a JSON Schema must be an object, true or false")
        validator = jsonschema.validators.validator_for(document, default=jsonschema.validators.Draft7Validator)
        if isinstance(document, dict):
            validator.check_schema(document)
        schema = JsonSchema(document, documents)
        _check_references(schema)
    except (ValueError, jsonschema.exceptions.SchemaError) as error:
        message = error.message if isinstance(error, jsonschema.exceptions.SchemaError) else str(error)
        raise invalid_schema(message) from error
    return schema


def _base(schema: JsonSchema) -> str:
    document = schema.document
    return str(document.get("$id", document.get("id", ""))) if isinstance(document, dict) else ""


def _check_references(schema: JsonSchema) -> None:
    """Raises ValueError if the target of a `$ref` does not exist."""
    resolver = _Resolver(schema)
    waiting: list[tuple[Json, str]] = [(schema.document, _base(schema))]
    while waiting:
        part, base = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$id"), str):
                base = urljoin(base, part["$id"])
            if isinstance(part.get("$ref"), str):
                resolver.target(part["$ref"], base)
            waiting.extend((each, base) for name, each in part.items() if name not in ("enum", "const", "default"))
        elif isinstance(part, list):
            waiting.extend((each, base) for each in part)


class _Place:
    """A subschema and the base URI for its relative references."""

    __slots__ = ("base", "schema")

    def __init__(self, schema: Json, base: str) -> None:
        self.schema = schema
        self.base = base


class _Resolver:
    def __init__(self, schema: JsonSchema) -> None:
        self._documents: dict[str, Json] = dict(schema.documents)
        self._documents[_without_fragment(_base(schema))] = schema.document
        self._documents.setdefault("", schema.document)
        for document in list(self._documents.values()):
            self._find_ids(document)

    def _find_ids(self, document: Json) -> None:
        waiting: list[tuple[Json, str]] = [(document, "")]
        while waiting:
            part, base = waiting.pop()
            if isinstance(part, dict):
                own = part.get("$id")
                if isinstance(own, str) and own:
                    base = urljoin(base, own)
                    self._documents.setdefault(_without_fragment(base) if "#" not in own else base, part)
                waiting.extend((each, base) for name, each in part.items() if name not in ("enum", "const", "default"))
            elif isinstance(part, list):
                waiting.extend((each, base) for each in part)

    def target(self, reference: str, base: str) -> _Place:
        """Returns the schema that a reference points to. Raises ValueError if it does not exist."""
        uri = urljoin(base, reference) if not reference.startswith("#") else base.partition("#")[0] + reference
        if uri in self._documents:
            return _Place(self._documents[uri], uri)
        document_uri, fragment = urldefrag(uri)
        document = self._documents.get(document_uri, self._documents.get(urldefrag(reference)[0]))
        if document is None:
            raise ValueError(f"the reference {reference} cannot be resolved")
        for step in fragment.strip("/").split("/") if fragment else ():
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(document, dict) and name in document:
                document = document[name]
            elif isinstance(document, list) and name.isdigit() and int(name) < len(document):
                document = document[int(name)]
            else:
                raise ValueError(f"the target of the reference {reference} does not exist")
        return _Place(document, document_uri)

    def resolved(self, place: _Place) -> _Place:
        """Follows `$ref` until it reaches a schema that is not a reference."""
        for _ in range(100):
            schema = place.schema
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return place
            siblings = {name: each for name, each in schema.items() if name != "$ref"}
            place = self.target(schema["$ref"], place.base)
            if any(name in siblings for names in KEYWORDS_OF_TYPES.values() for name in names) and isinstance(
                place.schema, dict
            ):
                place = _Place({**place.schema, **siblings}, place.base)
        raise ValueError("a reference refers to itself")


def _without_fragment(uri: str) -> str:
    return urldefrag(uri)[0]


class _Comparison:
    """Finds the reasons that documents written with the writer's schema may be invalid under the reader's schema."""

    def __init__(self, writers: _Resolver, readers: _Resolver) -> None:
        self._writers = writers
        self._readers = readers
        self._running: set[tuple[int, int]] = set()  # pairs being compared
        self._left = MAX_COMPARISONS

    def of(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        writer, reader = self._writers.resolved(writer), self._readers.resolved(reader)
        self._left -= 1
        if self._left < 0:
            yield Incompatibility("TOO_MANY_COMPARISONS", "The schemas are too large to be compared", path)
            return
        pair = id(writer.schema), id(reader.schema)
        if pair in self._running or _accepts_all(reader.schema) or writer.schema is False:
            return
        if reader.schema is False:
            yield Incompatibility("TYPE_NARROWED", "The new schema accepts no value", path)
            return
        if writer.schema is True:
            writer = _Place({}, writer.base)
        if writer.schema == reader.schema and not _has_reference(writer.schema):
            return
        self._running.add(pair)
        try:
            yield from self._schemas(writer, reader, path)
        finally:
            self._running.discard(pair)

    def _fits(self, writer: _Place, reader: _Place, path: str) -> bool:
        return next(self.of(writer, reader, path), None) is None

    def _schemas(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        alternatives = list(_alternatives(writer))
        choices = list(_alternatives(reader))
        if len(alternatives) > 1 or len(choices) > 1:
            for alternative in alternatives:
                if not any(self._fits(alternative, choice, path) for choice in choices):
                    kind = "SUM_TYPE_NARROWED" if len(alternatives) > 1 else "TYPE_CHANGED"
                    yield Incompatibility(
                        kind, "No alternative of the reader's schema accepts one of the writer's", path
                    )
                    return
            return
        writer, reader = alternatives[0], choices[0]
        yield from self._products(writer, reader, path)
        old, new = writer.schema, reader.schema
        yield from _allowed_values(old, new, path)
        types = _types(old)
        if not types <= _types(new):
            kind = "TYPE_NARROWED" if types & _types(new) else "TYPE_CHANGED"
            yield Incompatibility(
                kind, f"The type changes from {_type_names(types)} to {_type_names(_types(new))}", path
            )
            return
        yield from _bounds(old, new, path)
        for keyword in NOT_COVERED:
            if keyword in new and new[keyword] != old.get(keyword):
                yield Incompatibility("KEYWORD_CHANGED", f"The keyword {keyword} is added or changed", path + keyword)
        if "object" in types:
            yield from self._objects(writer, reader, path)
        if "array" in types:
            yield from self._arrays(writer, reader, path)

    def _products(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        parts = [_Place(each, writer.base) for each in writer.schema.get("allOf", ())]
        whole = _Place({name: each for name, each in writer.schema.items() if name != "allOf"}, writer.base)
        for each in reader.schema.get("allOf", ()):
            needed = _Place(each, reader.base)
            if not any(self._fits(part, needed, path) for part in (*parts, whole)):
                yield Incompatibility(
                    "PRODUCT_TYPE_EXTENDED", "A schema in `allOf` is added or accepts less", f"{path}allOf"
                )
        if "not" in reader.schema:
            if "not" not in writer.schema:
                yield Incompatibility("NOT_TYPE_EXTENDED", "A `not` schema is added", f"{path}not")
            else:
                refused = _Comparison(self._readers, self._writers)
                excluded = _Place(reader.schema["not"], reader.base)
                if not refused._fits(excluded, _Place(writer.schema["not"], writer.base), path):
                    yield Incompatibility("NOT_TYPE_EXTENDED", "The `not` schema excludes more", f"{path}not")

    def _objects(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        old, new = writer.schema, reader.schema
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in after:
            place = f"{path}properties/{name}"
            if name in before:
                yield from self.of(_Place(before[name], writer.base), _Place(after[name], reader.base), place + "/")
            else:
                yield from self._added(writer, reader, name, place)
        for name in before.keys() - after.keys():
            yield from self._removed(writer, reader, name, f"{path}properties/{name}")
        for name in set(_required(new)) - set(_required(old)):
            if (name in before or name not in after) and not _has_default(after.get(name)):
                yield Incompatibility(
                    "REQUIRED_ATTRIBUTE_ADDED", f"The property {name} becomes required", path + "required"
                )
        yield from self._others(writer, reader, "additionalProperties", "ADDITIONAL_PROPERTIES", path)
        yield from self._dependencies(writer, reader, path)
        for pattern, each in new.get("patternProperties", {}).items():
            same = old.get("patternProperties", {}).get(pattern)
            for earlier in _unnamed(old) if same is None else [same]:
                place = f"{path}patternProperties/{pattern}/"
                yield from self.of(_Place(earlier, writer.base), _Place(each, reader.base), place)

    def _added(self, writer: _Place, reader: _Place, name: str, place: str) -> Iterator[Incompatibility]:
        added = reader.schema["properties"][name]
        earlier = _unnamed(writer.schema)
        if not _accepts_all(added) and all(_accepts_all(each) for each in earlier):
            yield Incompatibility(
                "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                f"The property {name} is added, but documents of the earlier schema may contain it with any value",
                place,
            )
        elif not all(
            self._fits(_Place(each, writer.base), _Place(added, reader.base), place + "/") for each in earlier
        ):
            yield Incompatibility(
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                f"The property {name} is added, but the earlier schema accepts other values of it",
                place,
            )
        elif name in _required(reader.schema) and not _has_default(added):
            yield Incompatibility(
                "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", f"The required property {name} is added", place
            )

    def _removed(self, writer: _Place, reader: _Place, name: str, place: str) -> Iterator[Incompatibility]:
        removed = writer.schema["properties"][name]
        later = _unnamed(reader.schema)
        if later == [False] and removed is not False:
            yield Incompatibility(
                "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", f"The property {name} is removed and not allowed", place
            )
        elif not all(
            self._fits(_Place(removed, writer.base), _Place(each, reader.base), place + "/") for each in later
        ):
            yield Incompatibility(
                "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
                f"The property {name} is removed, and additional properties accept other values",
                place,
            )

    def _others(self, writer: _Place, reader: _Place, keyword: str, kind: str, path: str) -> Iterator[Incompatibility]:
        before, after = writer.schema.get(keyword, True), reader.schema.get(keyword, True)
        if _accepts_all(after) or before is False:
            return
        if after is False:
            yield Incompatibility(f"{kind}_REMOVED", f"{keyword} are no longer accepted", path + keyword)
        elif not self._fits(_Place(before, writer.base), _Place(after, reader.base), f"{path}{keyword}/"):
            yield Incompatibility(f"{kind}_NARROWED", f"{keyword} accept fewer values", path + keyword)

    def _dependencies(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            before = writer.schema.get(keyword, {})
            for name, needed in reader.schema.get(keyword, {}).items():
                place = f"{path}{keyword}/{name}"
                if isinstance(needed, list):
                    if not set(needed) <= set(before.get(name, ())):
                        yield Incompatibility("DEPENDENCY_ARRAY_EXTENDED", f"{name} requires more properties", place)
                elif name not in before:
                    yield Incompatibility("DEPENDENCY_SCHEMA_ADDED", f"{name} requires a schema", place)
                else:
                    yield from self.of(_Place(before[name], writer.base), _Place(needed, reader.base), place + "/")

    def _arrays(self, writer: _Place, reader: _Place, path: str) -> Iterator[Incompatibility]:
        old, new = writer.schema, reader.schema
        if new.get("uniqueItems") is True and old.get("uniqueItems") is not True:
            yield Incompatibility("UNIQUE_ITEMS_ADDED", "Items must be unique", path + "uniqueItems")
        before, others_before = _items(old)
        after, others_after = _items(new)
        for index in range(max(len(before), len(after))):
            earlier = before[index] if index < len(before) else others_before
            later = after[index] if index < len(after) else others_after
            yield from self.of(_Place(earlier, writer.base), _Place(later, reader.base), f"{path}items/{index}/")
        yield from self.of(_Place(others_before, writer.base), _Place(others_after, reader.base), f"{path}items/")


def _accepts_all(schema: Json) -> bool:
    return schema is True or schema == {}


def _has_reference(schema: Json) -> bool:
    if isinstance(schema, dict):
        return "$ref" in schema or any(_has_reference(each) for each in schema.values())
    return isinstance(schema, list) and any(_has_reference(each) for each in schema)


def _alternatives(place: _Place) -> Iterator[_Place]:
    """Yields the schemas in anyOf or oneOf, each combined with the other keywords. If the schema lists several types
    instead, yields one schema per type."""
    schema = place.schema
    for keyword in SUMS:
        if keyword in schema:
            beside = {name: each for name, each in schema.items() if name != keyword}
            for each in schema[keyword]:
                part = _Place(each, place.base)
                if beside.keys() <= {"title", "description", "default", "$id", "$schema", "definitions", "$defs"}:
                    yield part
                else:
                    yield _Place({"allOf": [each], **beside}, place.base)
            return
    if isinstance(schema.get("type"), list) and len(schema["type"]) > 1:
        for kind in schema["type"]:
            yield _Place({**schema, "type": kind}, place.base)
        return
    yield place


def _types(schema: Json) -> frozenset[str]:
    kind = schema.get("type")
    if kind is None:
        implied = [each for each, keywords in KEYWORDS_OF_TYPES.items() if keywords & schema.keys()]
        if len(implied) != 1:
            return _types_of_values(schema)
        kind = implied[0]
    kinds = frozenset([kind] if isinstance(kind, str) else kind)
    return kinds | {"integer"} if "number" in kinds else kinds


def _types_of_values(schema: Json) -> frozenset[str]:
    """Returns the types of the values that `enum` or `const` allows."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is None:
        return ANY_TYPE
    of_python = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
    return frozenset(of_python.get(type(value), "object" if isinstance(value, dict) else "array") for value in values)


def _type_names(types: frozenset[str]) -> str:
    return "any type" if types == ANY_TYPE else ", ".join(sorted(types))


def _allowed_values(old: Json, new: Json, path: str) -> Iterator[Incompatibility]:
    values = _values(new)
    if values is None:
        return
    before = _values(old)
    if before is None:
        yield Incompatibility("ENUM_ARRAY_ADDED", "Only certain values are accepted", path + "enum")
    elif not before <= values:
        yield Incompatibility(
            "ENUM_ARRAY_NARROWED", f"No longer accepted: {', '.join(sorted(before - values))}", path + "enum"
        )


def _values(schema: Json) -> set[str] | None:
    if "const" in schema:
        return {json.dumps(schema["const"], sort_keys=True)}
    if "enum" in schema:
        return {json.dumps(value, sort_keys=True) for value in schema["enum"]}
    return None


def _bounds(old: Json, new: Json, path: str) -> Iterator[Incompatibility]:
    for keyword in (*UPPER_BOUNDS, *LOWER_BOUNDS):
        later, earlier = new.get(keyword), old.get(keyword)
        if later is None or later == earlier:
            continue
        name = "".join(f"_{letter}" if letter.isupper() else letter for letter in keyword).upper()
        if isinstance(later, bool) or isinstance(earlier, bool):  # exclusiveMinimum or exclusiveMaximum as in draft 4
            if later is True and earlier is not True:
                yield Incompatibility(f"{name}_ADDED", f"{keyword} is added", path + keyword)
        elif earlier is None:
            yield Incompatibility(f"{name}_ADDED", f"{keyword} {later} is added", path + keyword)
        elif keyword in UPPER_BOUNDS and later < earlier:
            yield Incompatibility(f"{name}_DECREASED", f"{keyword} decreases from {earlier} to {later}", path + keyword)
        elif keyword in LOWER_BOUNDS and later > earlier:
            yield Incompatibility(f"{name}_INCREASED", f"{keyword} increases from {earlier} to {later}", path + keyword)
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        kind = "PATTERN_CHANGED" if "pattern" in old else "PATTERN_ADDED"
        yield Incompatibility(kind, "The pattern of a string is added or changed", path + "pattern")
    step, earlier_step = new.get("multipleOf"), old.get("multipleOf")
    if step is not None and step != earlier_step:
        if earlier_step is None:
            yield Incompatibility("MULTIPLE_OF_ADDED", f"multipleOf {step} is added", path + "multipleOf")
        elif earlier_step % step != 0:
            yield Incompatibility(
                "MULTIPLE_OF_CHANGED",
                f"multipleOf changes from {earlier_step} to {step}, which does not divide {earlier_step}",
                path + "multipleOf",
            )


def _required(schema: Json) -> Sequence[str]:
    required = schema.get("required", ())
    return required if isinstance(required, list) else ()


def _has_default(schema: Json) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _unnamed(schema: Json) -> list[Json]:
    """Returns the schemas that may apply to a property that `properties` does not name.

    This function does not determine which patterns match a name. Instead, a value has to satisfy the schemas for all
    patterns. More schemas than necessary are rejected as a result, but a client's pattern is never executed.
    """
    return [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", True)]


def _items(schema: Json) -> tuple[list[Json], Json]:
    """Returns the schemas for the first items, and the schema for all other items."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    if isinstance(schema.get("items"), list):
        return schema["items"], schema.get("additionalItems", True)
    return [], schema.get("items", True)
