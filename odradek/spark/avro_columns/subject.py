"""Requests a subject's versions and prepares their schemas for Spark's `from_avro`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.schema_registry.address import VARIABLE
from odradek.client.schema_registry.client import (
    RegistryFailure,
    SchemaRegistryClient,
    SchemaRegistryError,
    StoredSchema,
)
from odradek.registry.avro_documents import self_contained
from odradek.registry.schemas import AVRO, Json

# The field of the record in which `wrapped` wraps a schema.
FIELD: Final = "value"
ADVICE: Final[Mapping[RegistryFailure, str]] = {
    RegistryFailure.UNREACHABLE: f" Give the URL of the registry with registry=URL, or in {VARIABLE}.",
    RegistryFailure.NO_REGISTRY: " registry=URL must be the URL of a schema registry, not of a broker or its page.",
    RegistryFailure.LOGIN: " Give the login with user= and password=.",
    RegistryFailure.FORBIDDEN: " The user needs READ, WRITE or DESCRIBE on the topic that the subject is named after.",
}


class SubjectError(ValueError):
    """A column cannot be decoded with the subject's versions."""


@dataclass(frozen=True, slots=True)
class AvroSubject:
    """The schemas of a subject, each wrapped in a record with one field.

    writers  the schemas by their ids, including those of soft-deleted versions, whose records may still exist
    reader   the schema that determines the type of the decoded column
    """

    name: str
    writers: Mapping[int, str]
    reader: str


def read_subject(registry: SchemaRegistryClient, name: str, version: int | None = None) -> AvroSubject:
    """Requests all versions of a subject. Raises SubjectError.

    version  the version of the reader schema; default: the latest
    """
    try:
        reader = registry.version(name, version)
        numbers = registry.version_numbers(name, with_deleted=True)
        stored = [registry.version(name, number, with_deleted=True) for number in numbers]
        schemas = {each.schema_id: _schema(each, registry) for each in (*stored, reader)}
    except SchemaRegistryError as error:
        advice = ADVICE.get(error.failure, "")
        raise SubjectError(f"the subject {name} cannot be read: {str(error).rstrip('.')}.{advice}") from error
    return AvroSubject(name, schemas, schemas[reader.schema_id])


def _schema(stored: StoredSchema, registry: SchemaRegistryClient) -> str:
    place = f"version {stored.version} of {stored.subject}"
    if stored.text.schema_type != AVRO:
        raise SubjectError(f"{place} has the type {stored.text.schema_type}, but only Avro can be decoded")
    try:
        document = self_contained(stored.text.text, [text for _, text in registry.resolved(stored.text)])
    except (ValueError, KeyError, TypeError) as error:
        raise SubjectError(f"{place} is not an Avro schema: {error}") from error
    if is_only_bytes(document):
        raise SubjectError(
            f'{place} is the schema "bytes". Confluent\'s serializers write its values without the length that'
            " from_avro expects. Take the bytes from the column instead: substring(value, 6)"
        )
    return wrapped(document)


def is_only_bytes(document: Json) -> bool:
    return document == "bytes" or (
        isinstance(document, dict) and document.get("type") == "bytes" and "logicalType" not in document
    )


def wrapped(document: Json) -> str:
    """Returns the JSON text of a record schema whose only field has the given schema.

    Avro encodes a value in the same way as a record whose only field has that value. In PERMISSIVE mode, `from_avro`
    returns a record whose fields are all null if the bytes do not match the schema. With the wrapper, the value is the
    only field and becomes null, so it differs from a valid value whose own fields are all null.
    """
    return json.dumps({"type": "record", "name": "OdradekValue", "fields": [{"name": FIELD, "type": document}]})
