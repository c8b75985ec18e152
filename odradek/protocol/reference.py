"""A second codec for the same schemas, built with construct. It is slow but independent of the compiled codec.

Tests compare the compiled codec with this one, and `odradek inspect` prints its results as a tree. It reads and writes
plain dictionaries whose keys are the attribute names of the message classes. Code that serves requests never imports
it.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import construct as c

from odradek.protocol.schema import FIXED, Field, Schema, load

TAGS = "_tags"
NUMBERS: Mapping[str, Any] = {
    "bool": c.Flag,
    "int8": c.Int8sb,
    "int16": c.Int16sb,
    "uint16": c.Int16ub,
    "int32": c.Int32sb,
    "uint32": c.Int32ub,
    "int64": c.Int64sb,
    "float64": c.Float64b,
    "uuid": c.Bytes(16),
}
MAX_STRING_LENGTH = 0x7FFF


@cache
def structure(module: str, version: int) -> Any:
    """Returns a construct that reads and writes one version of a message."""
    schema = load(module)
    return _Structures(schema, version).struct(schema.fields)


class _Structures:
    def __init__(self, schema: Schema, version: int) -> None:
        self._schema = schema
        self._version = version
        self._is_flexible = version in schema.flexible

    def struct(self, fields: tuple[Field, ...]) -> Any:
        present = [field for field in fields if self._version in field.versions]
        absent = [field for field in fields if self._version not in field.versions]
        tagged = {field.tag: field for field in present if field.tag is not None}
        members = {field.attribute: self.field(field) for field in present if field.tag is None}
        if self._is_flexible:
            members[TAGS] = self.tags(tagged)

        def decode(found: Mapping[str, Any], _: Any) -> dict[str, Any]:
            values = {field.attribute: self.default(field) for field in [*absent, *tagged.values()]}
            values |= {name: found[name] for name in members if name != TAGS}
            known_tags = [item for item in found.get(TAGS, ()) if item["tag"] in tagged]
            return values | {tagged[item["tag"]].attribute: item["value"] for item in known_tags}

        def encode(values: Mapping[str, Any], _: Any) -> dict[str, Any]:
            found = {name: values[name] for name in members if name != TAGS}
            if self._is_flexible:
                items = [(tag, field, values[field.attribute]) for tag, field in sorted(tagged.items())]
                found[TAGS] = [
                    {"tag": tag, "value": value}
                    for tag, field, value in items
                    if value not in (self.default(field), self.written_default(field))
                ]
            return found

        return c.ExprAdapter(c.Struct(**members), decode, encode)

    def tags(self, tagged: Mapping[int, Field]) -> Any:
        values = {tag: self.field(field) for tag, field in tagged.items()}
        one = c.Struct(tag=c.VarInt, value=c.Prefixed(c.VarInt, c.Switch(c.this.tag, values, c.GreedyBytes)))
        return c.PrefixedArray(c.VarInt, one)

    def default(self, field: Field) -> Any:
        if not field.default_is_empty:
            return field.default
        if field.is_array:
            return []
        if field.is_null_when_absent:
            return None
        return {inner.attribute: self.default(inner) for inner in self._schema.structs[field.type]}

    def written_default(self, field: Field) -> Any:
        """Returns the value for which a tagged field is omitted. A tagged struct is omitted if all its fields have
        their defaults, although the decoded value of an omitted struct is None."""
        if not field.is_null_when_absent:
            return self.default(field)
        return {inner.attribute: self.default(inner) for inner in self._schema.structs[field.type]}

    def field(self, field: Field) -> Any:
        is_nullable = self._version in field.nullable
        if field.is_array:
            length = COMPACT_LENGTH if self.is_compact(field) else c.Int32sb
            return counted(length, is_nullable, c.Array(c.this.length, self.element(field)))
        if field.is_struct and is_nullable:
            null = -1 if field.tag is None else 0
            return c.FocusedSeq(
                "value",
                "marker" / c.Rebuild(c.Int8sb, lambda context: null if context.value is None else 1),
                "value" / c.IfThenElse(c.this.marker == null, c.Computed(None), self.element(field)),
            )
        if field.is_struct or field.type in FIXED:
            return self.element(field)
        return self.sized(field, is_nullable)

    def element(self, field: Field) -> Any:
        if field.is_struct:
            return self.struct(self._schema.structs[field.type])
        return NUMBERS[field.type] if field.type in FIXED else self.sized(field, False)

    def sized(self, field: Field, is_nullable: bool) -> Any:
        """Returns the construct for a string, bytes or records."""
        if field.type != "string":
            return counted(COMPACT_LENGTH if self.is_compact(field) else c.Int32sb, is_nullable, c.Bytes(c.this.length))
        return c.ExprAdapter(
            counted(COMPACT_LENGTH if self.is_compact(field) else c.Int16sb, is_nullable, c.Bytes(string_size)),
            lambda found, _: None if found is None else found.decode(),
            lambda value, _: None if value is None else value.encode(),
        )

    def is_compact(self, field: Field) -> bool:
        return self._is_flexible and field.flexible


COMPACT_LENGTH = c.ExprAdapter(c.VarInt, lambda found, _: found - 1, lambda value, _: value + 1)


def string_size(context: Any) -> int:
    if context.length > MAX_STRING_LENGTH:
        raise c.RangeError(f"a string has {context.length} bytes; the limit is {MAX_STRING_LENGTH}")
    return int(context.length)


def counted(length: Any, is_nullable: bool, body: Any) -> Any:
    """Returns the construct for a length (-1 for null) followed by content of that length."""
    return c.FocusedSeq(
        "value",
        "length" / c.Rebuild(length, lambda context: -1 if context.value is None else len(context.value)),
        "value" / c.IfThenElse(c.this.length < 0, c.Computed(None) if is_nullable else c.Error, body),
    )
