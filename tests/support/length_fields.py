"""Finds the lengths and counts in an encoded message by following its schema, for tests that corrupt them."""

from dataclasses import dataclass

from odradek.protocol.schema import FIXED, Field, Schema


@dataclass(frozen=True, slots=True)
class LengthField:
    """A length, a count, or the marker of a nullable struct, at `position`. It has `size` bytes, or is a varint if
    `is_varint`."""

    name: str
    position: int
    size: int
    is_varint: bool


def length_fields(schema: Schema, version: int, data: bytes, position: int) -> tuple[list[LengthField], int]:
    """Returns all length fields in order of position, and the end position of the message. The bytes must be valid."""
    walk = _Walk(schema, version, data, position)
    walk.struct(schema.fields)
    return walk.found, walk.position


class _Walk:
    def __init__(self, schema: Schema, version: int, data: bytes, position: int) -> None:
        self._schema = schema
        self._version = version
        self._data = data
        self._is_flexible = version in schema.flexible
        self.position = position
        self.found: list[LengthField] = []

    def integer(self, name: str, size: int) -> int:
        self.found.append(LengthField(name, self.position, size, False))
        self.position += size
        return int.from_bytes(self._data[self.position - size : self.position], "big", signed=True)

    def varint(self, name: str) -> int:
        start, value = self.position, 0
        while True:
            byte = self._data[self.position]
            value |= (byte & 0x7F) << 7 * (self.position - start)
            self.position += 1
            if byte < 0x80:
                self.found.append(LengthField(name, start, self.position - start, True))
                return value

    def struct(self, fields: tuple[Field, ...]) -> None:
        present = [field for field in fields if self._version in field.versions]
        for field in present:
            if field.tag is None:
                self.field(field)
        if self._is_flexible:
            tagged = {field.tag: field for field in present if field.tag is not None}
            for _ in range(self.varint("tags")):
                tag, size = self.varint("tag"), self.varint("size of a tag")
                if tag in tagged:
                    self.field(tagged[tag])
                else:
                    self.position += size

    def field(self, field: Field) -> None:
        if field.is_array:
            for _ in range(max(0, self.length(field, 4))):
                self.element(field)
        elif not (field.is_struct and self._version in field.nullable) or self.integer(field.name, 1) >= 0:
            self.element(field)

    def element(self, field: Field) -> None:
        if field.is_struct:
            self.struct(self._schema.structs[field.type])
        elif field.type in FIXED:
            self.position += FIXED[field.type][0]
        else:
            size = self.length(field, 2 if field.type == "string" else 4)
            self.position += max(0, size)

    def length(self, field: Field, size: int) -> int:
        return self.varint(field.name) - 1 if self._is_flexible and field.flexible else self.integer(field.name, size)
