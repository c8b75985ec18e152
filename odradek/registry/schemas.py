"""A schema as clients send it, and the interface of a schema type.

Each schema type is a module with a function `parse` (whose type is `Parse`). The module is imported when the first
schema of that type arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from odradek.registry.errors import RegistryError, invalid_schema

Json = Any  # the result of json.loads

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
MODULES: Final[Mapping[str, str]] = {
    AVRO: "odradek.registry.avro_schemas",
    JSON: "odradek.registry.json_schemas",
    PROTOBUF: "odradek.registry.protobuf_schemas",
}
PACKAGES: Final[Mapping[str, str]] = {AVRO: "avro", JSON: "jsonschema", PROTOBUF: "proto-schema-parser and protobuf"}


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another schema uses under `name`: an Avro full name, the URI of a JSON Schema, or the path of an
    import."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, str | int]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema of one type, with the subjects and versions that it refers to. Equal texts share one schema id."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()

    def as_json(self) -> dict[str, Json]:
        """Returns the schema's fields for responses and records. The type is omitted if it is AVRO, and references are
        omitted if there are none."""
        fields: dict[str, Json] = {}
        if self.schema_type != AVRO:
            fields["schemaType"] = self.schema_type
        if self.references:
            fields["references"] = [each.as_json() for each in self.references]
        fields["schema"] = self.text
        return fields


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A reason that the reader's schema cannot read data written with the writer's schema."""

    kind: str  # for example READER_FIELD_MISSING_DEFAULT_VALUE
    description: str
    place: str = ""

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.description}', additionalInfo:'{self.place}'}}"


class ParsedSchema(Protocol):
    """A valid schema. Two schemas with the same canonical text are the same schema."""

    @property
    def canonical(self) -> str: ...

    def normalized(self) -> str:
        """Returns the text in a form without insignificant differences, such as the order of properties."""

    def cannot_read(self, writer: Any) -> list[Incompatibility]:
        """Returns the reasons that this schema, as the reader's, cannot read data written with a writer's schema of the
        same type."""


Parse = Callable[[str, Sequence[tuple[Reference, str]]], ParsedSchema]


def parse(schema_type: str, text: str, references: Sequence[tuple[Reference, str]] = ()) -> ParsedSchema:
    """Parses a schema. `references` contains all schemas that it refers to, directly or indirectly, with their texts.
    Each schema comes after the schemas that it refers to.

    Raises RegistryError if the type is unknown or not installed, or the schema is invalid.
    """
    module = MODULES.get(schema_type)
    if module is None:
        raise invalid_schema(f"the schema type '{schema_type}' is not one of {', '.join(MODULES)}")
    try:
        function: Parse = import_module(module).parse
    except ModuleNotFoundError as missing:
        raise RegistryError(
            501, f"{schema_type} needs {PACKAGES[schema_type]}: pip install 'odradek[registry]' ({missing})"
        ) from missing
    try:
        return function(text, references)
    except RecursionError:
        raise invalid_schema("it is nested too deeply") from None
