"""Tests whether a new schema can read data that was written with an earlier schema.

Level BACKWARD accepts the change from the earlier to the new schema if the pair has no `refusal`. Other levels combine
the two directions (`odradek.registry.levels`). Sources: "Schema Resolution" of the Avro specification, and "Schema
Evolution and Compatibility" of Confluent's documentation, for JSON Schema and Protobuf.
"""

import json
from typing import Any, NamedTuple

import pytest

from odradek.registry.schemas import parse

Json = Any


class Pair(NamedTuple):
    """A change from an earlier to a new schema. `refusal` is the kind of the first incompatibility, or None if there is
    none."""

    change: str
    earlier: Json
    new: Json
    refusal: str | None = None


def rec(*fields: Json, name: str = "R", **others: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def f(name: str, kind: Json, **others: Json) -> Json:
    return {"name": name, "type": kind, **others}


def enum(*symbols: str, **others: Json) -> Json:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **others}


def fixed(size: int, name: str = "F", **others: Json) -> Json:
    return {"type": "fixed", "name": name, "size": size, **others}


TYPE, UNION, DEFAULT = "TYPE_MISMATCH", "MISSING_UNION_BRANCH", "READER_FIELD_MISSING_DEFAULT_VALUE"
NAME, SYMBOLS, SIZE = "NAME_MISMATCH", "MISSING_ENUM_SYMBOLS", "FIXED_SIZE_MISMATCH"
LIST_OF = "array"
NODE = rec(f("next", ["null", "Node"], default=None), name="Node")

AVRO = [
    Pair("nothing", "int", "int"),
    *(Pair(f"{old} to {new}", old, new) for old, new in (("int", "long"), ("int", "float"), ("int", "double"))),
    *(Pair(f"{old} to {new}", old, new) for old, new in (("long", "float"), ("long", "double"), ("float", "double"))),
    Pair("string to bytes", "string", "bytes"),
    Pair("bytes to string", "bytes", "string"),
    *(
        Pair(f"{old} to {new}", old, new, TYPE)
        for old, new in (("long", "int"), ("float", "long"), ("double", "float"))
    ),
    *(Pair(f"{old} to {new}", old, new, TYPE) for old, new in (("int", "string"), ("string", "int"), ("null", "int"))),
    *(Pair(f"{old} to {new}", old, new, TYPE) for old, new in (("boolean", "int"), ("int", "boolean"))),
    Pair("a field with a default is added", rec(f("a", "int")), rec(f("a", "int"), f("b", "int", default=0))),
    Pair("a field without a default is added", rec(f("a", "int")), rec(f("a", "int"), f("b", "int")), DEFAULT),
    Pair("an optional field without a default is added", rec(), rec(f("b", ["null", "int"])), DEFAULT),
    Pair("a field is removed", rec(f("a", "int"), f("b", "int")), rec(f("a", "int"))),
    Pair("a field is renamed", rec(f("a", "int")), rec(f("b", "int")), DEFAULT),
    Pair("a field is renamed with an alias", rec(f("a", "int")), rec(f("b", "int", aliases=["a"]))),
    Pair("the type of a field is promoted", rec(f("a", "int")), rec(f("a", "double"))),
    Pair("the type of a field is narrowed", rec(f("a", "long")), rec(f("a", "int")), TYPE),
    Pair("fields change places", rec(f("a", "int"), f("b", "int")), rec(f("b", "int"), f("a", "int"))),
    Pair("a default changes", rec(f("a", "int", default=1)), rec(f("a", "int", default=2))),
    Pair("a default is removed", rec(f("a", "int", default=1)), rec(f("a", "int"))),
    Pair("a doc changes", rec(f("a", "int")), rec(f("a", "int", doc="d"), doc="e")),
    Pair("a record is renamed", rec(f("a", "int")), rec(f("a", "int"), name="S"), NAME),
    Pair("a record is renamed with an alias", rec(f("a", "int")), rec(f("a", "int"), name="S", aliases=["R"])),
    Pair("a record gets a namespace", rec(f("a", "int")), rec(f("a", "int"), namespace="x")),
    Pair("a record becomes a map", rec(f("a", "int")), {"type": "map", "values": "int"}, TYPE),
    Pair(
        "a field of a nested record is added",
        rec(f("r", rec(name="S"))),
        rec(f("r", rec(f("a", "int"), name="S"))),
        DEFAULT,
    ),
    Pair("a recursive record is unchanged", NODE, NODE),
    Pair("a recursive record gets a field", NODE, rec(*NODE["fields"], f("v", "int"), name="Node"), DEFAULT),
    Pair("a symbol is added", enum("A"), enum("A", "B")),
    Pair("a symbol is removed", enum("A", "B"), enum("A"), SYMBOLS),
    Pair("a symbol is removed, and there is a default", enum("A", "B"), enum("A", default="A")),
    Pair("symbols change places", enum("A", "B"), enum("B", "A")),
    Pair("an enum is renamed", enum("A"), {**enum("A"), "name": "X"}, NAME),
    Pair("an enum becomes a string", enum("A"), "string", TYPE),
    Pair("a fixed is unchanged", fixed(4), fixed(4)),
    Pair("a fixed grows", fixed(4), fixed(8), SIZE),
    Pair("a fixed is renamed", fixed(4), fixed(4, "G"), NAME),
    Pair("a fixed becomes bytes", fixed(4), "bytes", TYPE),
    Pair("items are promoted", {"type": LIST_OF, "items": "int"}, {"type": LIST_OF, "items": "long"}),
    Pair("items are narrowed", {"type": LIST_OF, "items": "long"}, {"type": LIST_OF, "items": "int"}, TYPE),
    Pair("values are promoted", {"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
    Pair("values are narrowed", {"type": "map", "values": "long"}, {"type": "map", "values": "int"}, TYPE),
    Pair("an array becomes a map", {"type": LIST_OF, "items": "int"}, {"type": "map", "values": "int"}, TYPE),
    Pair("a branch is added", ["int"], ["int", "string"]),
    Pair("a branch is removed", ["int", "string"], ["int"], UNION),
    Pair("branches change places", ["int", "string"], ["string", "int"]),
    Pair("a type becomes a branch", "int", ["null", "int"]),
    Pair("a type becomes a branch that it is promoted to", "int", ["null", "long"]),
    Pair("a type is no branch", "boolean", ["null", "int"], UNION),
    Pair("the only branch becomes the type", ["int"], "int"),
    Pair("one of several branches becomes the type", ["null", "int"], "int", TYPE),
    Pair("all branches are promoted", ["int", "float"], "double"),
    Pair("a field becomes optional", rec(f("a", "int")), rec(f("a", ["null", "int"], default=None))),
    Pair("a field is no longer optional", rec(f("a", ["null", "int"])), rec(f("a", "int")), TYPE),
    Pair("a logical type is added", "long", {"type": "long", "logicalType": "timestamp-millis"}),
]

OBJECT = "object"


def obj(properties: Json, **others: Json) -> Json:
    return {"type": OBJECT, "properties": properties, **others}


def closed(properties: Json, **others: Json) -> Json:
    return obj(properties, additionalProperties=False, **others)


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
A, AB = {"a": TEXT}, {"a": TEXT, "b": WHOLE}
OPEN_ADDED, REMOVED = "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
NOT_COVERED = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
REQUIRED, REQUIRED_ADDED = "REQUIRED_ATTRIBUTE_ADDED", "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"

JSON_SCHEMA = [
    Pair("nothing", obj(A), obj(A)),
    Pair("a title and a description change", obj(A), obj(A, title="t", description="d")),
    Pair("a property is added to an open model", obj(A), obj(AB), OPEN_ADDED),
    Pair("a property that accepts all is added to an open model", obj(A), obj({"a": TEXT, "b": {}})),
    Pair("a property is added to a closed model", closed(A), closed(AB)),
    Pair("a closed model opens and gets a property", closed(A), obj(AB)),
    Pair("a required property is added to a closed model", closed(A), closed(AB, required=["b"]), REQUIRED_ADDED),
    Pair("the same, with a default", closed(A), closed({"a": TEXT, "b": {**WHOLE, "default": 0}}, required=["b"])),
    Pair("a property is removed from an open model", obj(AB), obj(A)),
    Pair("a property is removed from a closed model", closed(AB), closed(A), REMOVED),
    Pair("a property that accepts nothing is removed from a closed model", closed({"a": TEXT, "b": False}), closed(A)),
    Pair("a model opens", closed(A), obj(A)),
    Pair("a model closes", obj(A), closed(A), "ADDITIONAL_PROPERTIES_REMOVED"),
    Pair(
        "additional properties get a type", obj(A), obj(A, additionalProperties=TEXT), "ADDITIONAL_PROPERTIES_NARROWED"
    ),
    Pair("additional properties may be more", obj(A, additionalProperties=WHOLE), obj(A, additionalProperties=NUMBER)),
    Pair("an added property is covered", obj(A, additionalProperties=WHOLE), obj(AB, additionalProperties=WHOLE)),
    Pair(
        "an added property is not covered",
        obj(A, additionalProperties=TEXT),
        obj(AB, additionalProperties=TEXT),
        NOT_COVERED,
    ),
    Pair("a removed property is covered", obj(AB, additionalProperties=WHOLE), obj(A, additionalProperties=WHOLE)),
    Pair(
        "a removed property is not covered",
        obj(AB, additionalProperties=TEXT),
        obj(A, additionalProperties=TEXT),
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    Pair("a property becomes required", obj(A), obj(A, required=["a"]), REQUIRED),
    Pair(
        "a property with a default becomes required",
        obj({"a": {**TEXT, "default": ""}}),
        obj({"a": {**TEXT, "default": ""}}, required=["a"]),
    ),
    Pair("a property is no longer required", obj(A, required=["a"]), obj(A)),
    Pair("a property's type is extended", obj({"a": WHOLE}), obj({"a": NUMBER})),
    Pair("a property's type is narrowed", obj({"a": NUMBER}), obj({"a": WHOLE}), "TYPE_NARROWED"),
    Pair("integer to number", WHOLE, NUMBER),
    Pair("number to integer", NUMBER, WHOLE, "TYPE_NARROWED"),
    Pair("string to integer", TEXT, WHOLE, "TYPE_CHANGED"),
    Pair("a type is added", TEXT, {"type": ["string", "null"]}),
    Pair("a type is removed", {"type": ["string", "null"]}, TEXT, "SUM_TYPE_NARROWED"),
    Pair("anything becomes a string", {}, TEXT, "TYPE_NARROWED"),
    Pair("a string becomes anything", TEXT, {}),
    Pair("a string becomes true", TEXT, True),
    Pair("a string becomes false", TEXT, False, "TYPE_NARROWED"),
    Pair("false becomes a string", False, TEXT),
    *(
        pair
        for kind, low, high in (("string", "minLength", "maxLength"), ("array", "minItems", "maxItems"))
        for pair in (
            Pair(f"{high} is added", {"type": kind}, {"type": kind, high: 5}, f"MAX_{high[3:].upper()}_ADDED"),
            Pair(f"{high} is removed", {"type": kind, high: 5}, {"type": kind}),
            Pair(f"{high} increases", {"type": kind, high: 5}, {"type": kind, high: 6}),
            Pair(
                f"{high} decreases",
                {"type": kind, high: 5},
                {"type": kind, high: 4},
                f"MAX_{high[3:].upper()}_DECREASED",
            ),
            Pair(f"{low} is added", {"type": kind}, {"type": kind, low: 5}, f"MIN_{low[3:].upper()}_ADDED"),
            Pair(f"{low} is removed", {"type": kind, low: 5}, {"type": kind}),
            Pair(f"{low} decreases", {"type": kind, low: 5}, {"type": kind, low: 4}),
            Pair(
                f"{low} increases", {"type": kind, low: 5}, {"type": kind, low: 6}, f"MIN_{low[3:].upper()}_INCREASED"
            ),
        )
    ),
    Pair("maximum increases", {**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 6}),
    Pair("maximum decreases", {**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 4}, "MAXIMUM_DECREASED"),
    Pair("minimum decreases", {**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 4}),
    Pair("minimum increases", {**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 6}, "MINIMUM_INCREASED"),
    Pair("an exclusive maximum is added", NUMBER, {**NUMBER, "exclusiveMaximum": 4}, "EXCLUSIVE_MAXIMUM_ADDED"),
    Pair("an exclusive minimum is removed", {**NUMBER, "exclusiveMinimum": 4}, NUMBER),
    Pair("multipleOf becomes a divisor", {**WHOLE, "multipleOf": 6}, {**WHOLE, "multipleOf": 3}),
    Pair(
        "multipleOf becomes no divisor", {**WHOLE, "multipleOf": 6}, {**WHOLE, "multipleOf": 4}, "MULTIPLE_OF_CHANGED"
    ),
    Pair("multipleOf is added", WHOLE, {**WHOLE, "multipleOf": 4}, "MULTIPLE_OF_ADDED"),
    Pair("a pattern is added", TEXT, {**TEXT, "pattern": "a"}, "PATTERN_ADDED"),
    Pair("a pattern changes", {**TEXT, "pattern": "b"}, {**TEXT, "pattern": "a"}, "PATTERN_CHANGED"),
    Pair("a pattern is removed", {**TEXT, "pattern": "b"}, TEXT),
    Pair("a value is added to an enum", {"enum": [1]}, {"enum": [1, 2]}),
    Pair("a value is removed from an enum", {"enum": [1, 2]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED"),
    Pair("an enum is added", WHOLE, {**WHOLE, "enum": [1]}, "ENUM_ARRAY_ADDED"),
    Pair("an enum is removed", {**WHOLE, "enum": [1]}, WHOLE),
    Pair("a const becomes an enum with it", {"const": "x"}, {"enum": ["x", "y"]}),
    Pair("an enum becomes a const", {"enum": ["x", "y"]}, {"const": "x"}, "ENUM_ARRAY_NARROWED"),
    Pair("items are extended", {"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}),
    Pair("items are narrowed", {"type": "array", "items": NUMBER}, {"type": "array", "items": WHOLE}, "TYPE_NARROWED"),
    Pair("items must be unique", {"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
    Pair("items need not be unique", {"type": "array", "uniqueItems": True}, {"type": "array"}),
    Pair(
        "an item is added to a closed tuple",
        {"items": [TEXT], "additionalItems": False},
        {"items": [TEXT, WHOLE], "additionalItems": False},
    ),
    Pair(
        "an item is removed from a closed tuple",
        {"items": [TEXT, WHOLE], "additionalItems": False},
        {"items": [TEXT], "additionalItems": False},
        "TYPE_NARROWED",
    ),
    Pair("an item is removed from an open tuple", {"items": [TEXT, WHOLE]}, {"items": [TEXT]}),
    Pair("a choice is added", {"oneOf": [TEXT]}, {"oneOf": [TEXT, WHOLE]}),
    Pair("a choice is removed", {"oneOf": [TEXT, WHOLE]}, {"oneOf": [TEXT]}, "SUM_TYPE_NARROWED"),
    Pair("choices change places", {"anyOf": [TEXT, WHOLE]}, {"anyOf": [WHOLE, TEXT]}),
    Pair("a schema becomes a choice", TEXT, {"oneOf": [WHOLE, TEXT]}),
    Pair("a schema is no choice", {"type": "boolean"}, {"oneOf": [WHOLE, TEXT]}, "TYPE_CHANGED"),
    Pair("a part of allOf is removed", {"allOf": [obj(A), obj({"b": WHOLE})]}, {"allOf": [obj(A)]}),
    Pair(
        "a part of allOf is added", {"allOf": [obj(A)]}, {"allOf": [obj(A), obj({"b": WHOLE})]}, "PRODUCT_TYPE_EXTENDED"
    ),
    Pair("not excludes less", {"not": NUMBER}, {"not": WHOLE}),
    Pair("not excludes more", {"not": WHOLE}, {"not": NUMBER}, "NOT_TYPE_EXTENDED"),
    Pair("not is removed", {"not": WHOLE}, {}),
    Pair("a dependency is added", obj(AB), obj(AB, dependencies={"a": ["b"]}), "DEPENDENCY_ARRAY_EXTENDED"),
    Pair("a dependency is removed", obj(AB, dependencies={"a": ["b"]}), obj(AB)),
    Pair("a condition is added", obj(A), obj(A, **{"if": obj(A), "then": obj(AB)}), "KEYWORD_CHANGED"),
    Pair("a condition is removed", obj(A, **{"if": obj(A), "then": obj(AB)}), obj(A)),
    Pair("property names get a rule", obj(A), obj(A, propertyNames={"maxLength": 3}), "KEYWORD_CHANGED"),
    Pair("a reference is written out", {"$ref": "#/definitions/t", "definitions": {"t": TEXT}}, TEXT),
    Pair(
        "the target of a reference is narrowed",
        {"$ref": "#/definitions/t", "definitions": {"t": NUMBER}},
        {"$ref": "#/definitions/t", "definitions": {"t": WHOLE}},
        "TYPE_NARROWED",
    ),
    Pair("a recursive schema", closed({"next": {"$ref": "#"}}), closed({"next": {"$ref": "#"}, "v": WHOLE})),
    Pair(
        "a closed recursive schema loses a property",
        closed({"next": {"$ref": "#"}, "v": WHOLE}),
        closed({"next": {"$ref": "#"}}),
        REMOVED,
    ),
]

SCALAR, KIND, LABEL = "FIELD_SCALAR_KIND_CHANGED", "FIELD_KIND_CHANGED", "FIELD_NUMERIC_LABEL_CHANGED"
NAMED = "FIELD_NAMED_TYPE_CHANGED"


def message(*fields: str, before: str = "", after: str = "") -> str:
    """Returns a proto3 file with the message M. `before` contains additional declarations inside M, and `after`
    contains declarations that follow M."""
    return f'syntax = "proto3"; message M {{ {before} {" ".join(fields)} }} {after}'


ONE, TWO = "string a = 1;", "int32 b = 2;"
OTHER = "message N { int32 x = 1; }"


def proto2(*fields: str) -> str:
    return f'syntax = "proto2"; message M {{ {" ".join(fields)} }}'


PROTOBUF = [
    Pair("nothing", message(ONE), message(ONE)),
    Pair("a field is added", message(ONE), message(ONE, TWO)),
    Pair("a field is removed", message(ONE, TWO), message(ONE)),
    Pair("a field is renamed", message(ONE), message("string z = 1;")),
    Pair("a field gets another number", message(ONE), message("string a = 2;")),
    Pair("fields change places", message(ONE, TWO), message(TWO, ONE)),
    *(
        Pair(f"{old} to {new}", message(f"{old} a = 1;"), message(f"{new} a = 1;"))
        for old, new in (
            *(("int32", "int64"), ("int64", "int32"), ("int32", "uint32"), ("uint64", "bool"), ("sint32", "sint64")),
            *(("fixed32", "sfixed32"), ("sfixed64", "fixed64"), ("string", "bytes"), ("bytes", "string")),
        )
    ),
    *(
        Pair(f"{old} to {new}", message(f"{old} a = 1;"), message(f"{new} a = 1;"), SCALAR)
        for old, new in (
            *(("int32", "sint32"), ("int32", "fixed32"), ("fixed32", "fixed64"), ("float", "double")),
            *(("string", "int32"), ("int32", "string"), ("double", "int64"), ("float", "fixed32")),
        )
    ),
    Pair("an enum becomes a number", message("E a = 1;", after="enum E { Z = 0; }"), message("int32 a = 1;")),
    Pair("a string becomes a message", message(ONE), message("N a = 1;", after=OTHER), KIND),
    Pair(
        "a message becomes another one",
        message("N a = 1;", after=OTHER),
        message("O a = 1;", after=OTHER + "message O { }"),
        NAMED,
    ),
    Pair(
        "a constant is added to an enum",
        message("E a = 1;", after="enum E { Z = 0; }"),
        message("E a = 1;", after="enum E { Z = 0; Y = 1; }"),
    ),
    Pair(
        "a constant is removed from an enum",
        message("E a = 1;", after="enum E { Z = 0; Y = 1; }"),
        message("E a = 1;", after="enum E { Z = 0; }"),
    ),
    Pair("a number becomes repeated", message(TWO), message("repeated int32 b = 2;"), LABEL),
    Pair("a string becomes repeated", message(ONE), message("repeated string a = 1;")),
    Pair("a field becomes optional", message(ONE), message("optional string a = 1;")),
    Pair("a message is added", message(ONE), message(ONE, after=OTHER)),
    Pair("a message is removed", message(ONE, after=OTHER), message(ONE), "MESSAGE_REMOVED"),
    Pair("messages change places", message(ONE, after=OTHER), f'syntax = "proto3"; {OTHER} message M {{ {ONE} }}'),
    Pair("a nested message is removed", message(ONE, before=OTHER), message(ONE), "MESSAGE_REMOVED"),
    Pair("the package changes", message(ONE), 'syntax = "proto3"; package p; message M { string a = 1; }'),
    Pair(
        "a field of a nested message changes",
        message("N n = 3;", before=OTHER),
        message("N n = 3;", before="message N { string x = 1; }"),
        SCALAR,
    ),
    Pair("a oneof is added", message(ONE), message(ONE, "oneof x { int32 c = 3; }")),
    Pair("a field joins a new oneof", message(ONE), message("oneof x { string a = 1; }")),
    Pair(
        "two fields join a new oneof",
        message(ONE, TWO),
        message("oneof x { string a = 1; int32 b = 2; }"),
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    ),
    Pair(
        "a field joins an existing oneof",
        message(ONE, "oneof x { int32 b = 2; }"),
        message("oneof x { string a = 1; int32 b = 2; }"),
        "FIELD_MOVED_TO_EXISTING_ONEOF",
    ),
    Pair(
        "a field is added to a oneof",
        message("oneof x { string a = 1; }"),
        message("oneof x { string a = 1; int32 b = 2; }"),
    ),
    Pair(
        "a field is removed from a oneof",
        message("oneof x { string a = 1; int32 b = 2; }"),
        message("oneof x { string a = 1; }"),
        "ONEOF_FIELD_REMOVED",
    ),
    Pair(
        "the values of a map change",
        message("map<string, int32> m = 1;"),
        message("map<string, string> m = 1;"),
        SCALAR,
    ),
    Pair(
        "the values of a map are promoted", message("map<string, int32> m = 1;"), message("map<string, int64> m = 1;")
    ),
    Pair(
        "a required field is added",
        proto2("optional string a = 1;"),
        proto2("optional string a = 1;", "required int32 b = 2;"),
        "REQUIRED_FIELD_ADDED",
    ),
    Pair(
        "a required field is removed",
        proto2("optional string a = 1;", "required int32 b = 2;"),
        proto2("optional string a = 1;"),
        "REQUIRED_FIELD_REMOVED",
    ),
    Pair(
        "a field becomes required",
        proto2("optional int32 b = 2;"),
        proto2("required int32 b = 2;"),
        "REQUIRED_FIELD_ADDED",
    ),
    Pair("a service is removed", message(ONE, after="service S { rpc G (M) returns (M); }"), message(ONE)),
    Pair("a reserved number is added", message(ONE, TWO), message(ONE, before="reserved 2;")),
]


def kinds(schema_type: str, new: str, earlier: str) -> list[str]:
    return [found.kind for found in parse(schema_type, new).cannot_read(parse(schema_type, earlier))]


def by_change(pair: Pair) -> str:
    return pair.change


@pytest.mark.parametrize("pair", AVRO, ids=by_change)
def test_a_change_of_an_avro_schema_is_compatible_or_refused_by_kind(pair: Pair) -> None:
    found = kinds("AVRO", json.dumps(pair.new), json.dumps(pair.earlier))
    assert found[:1] == ([] if pair.refusal is None else [pair.refusal])


@pytest.mark.parametrize("pair", JSON_SCHEMA, ids=by_change)
def test_a_change_of_a_json_schema_is_compatible_or_refused_by_kind(pair: Pair) -> None:
    found = kinds("JSON", json.dumps(pair.new), json.dumps(pair.earlier))
    assert found[:1] == ([] if pair.refusal is None else [pair.refusal])


@pytest.mark.parametrize("pair", PROTOBUF, ids=by_change)
def test_a_change_of_a_protobuf_schema_is_compatible_or_refused_by_kind(pair: Pair) -> None:
    found = kinds("PROTOBUF", pair.new, pair.earlier)
    assert found[:1] == ([] if pair.refusal is None else [pair.refusal])


def test_the_table_has_at_least_150_pairs() -> None:
    assert len(AVRO) + len(JSON_SCHEMA) + len(PROTOBUF) >= 150
