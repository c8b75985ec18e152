"""Decodes and encodes records' keys and values with a schema registry, for `odradek consume` and `produce`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.tools.commands.errors import CommandError
from odradek.tools.commands.registry_client import RegistryClient, registry_client
from odradek.tools.commands.schema_options import TYPES, formats_of

if TYPE_CHECKING:
    from odradek.client.common.values import ConsumerRecord
    from odradek.registry.schemas import ParsedSchema, SchemaText


@dataclass(frozen=True, slots=True)
class _Schema:
    schema_id: int
    kind: str
    parsed: ParsedSchema


@dataclass(slots=True)
class RecordDecoder:
    """Replaces keys and values in the registry's wire format with JSON."""

    registry: RegistryClient
    formats: Mapping[str, str]  # keyed by part of the record: key, value
    _schemas: dict[int, _Schema] = field(default_factory=dict)

    async def decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Returns the record with its key, its value or both decoded to JSON. Raises CommandError with a message that
        identifies the record."""
        key = await self._part(record, "key", record.key)
        return record._replace(key=key, value=await self._part(record, "value", record.value))

    async def _part(self, record: ConsumerRecord, part: str, content: bytes | None) -> bytes | None:
        from odradek.registry.values import SchemaValueError, decode, schema_id_of

        if part not in self.formats or content is None:
            return content
        try:
            schema_id = schema_id_of(content)
            schema = self._schemas.get(schema_id)
            if schema is None:  # requested in a thread, so that a group member does not miss heartbeats
                schema = self._schemas[schema_id] = await asyncio.to_thread(_of_id, self.registry, schema_id)
            _require_type(schema, part, self.formats[part])
            text = decode(content, schema.kind, schema.parsed)
        except (SchemaValueError, CommandError) as error:
            status = {"status": error.status} if isinstance(error, CommandError) else {}
            raise CommandError(
                f"the {part} of the record at offset {record.offset} of {record.topic}-{record.partition} cannot be"
                f" decoded: {error}\nOmit --{part}-format to print the bytes unchanged.",
                **status,
            ) from error
        return text.encode("utf-8", "backslashreplace")


@dataclass(slots=True)
class RecordEncoder:
    """Replaces JSON keys and values with bytes in the registry's wire format."""

    schemas: Mapping[str, _Schema]  # keyed by part of the record: key, value

    def encoded(self, part: str, content: bytes | None) -> bytes | None:
        """Encodes a key or a value. Raises CommandError if the content is not JSON or does not match the schema."""
        from odradek.registry.values import SchemaValueError, encode_text

        schema = self.schemas.get(part)
        if schema is None or content is None:
            return content
        try:
            return encode_text(content, schema.schema_id, schema.kind, schema.parsed)
        except SchemaValueError as error:
            raise CommandError(f"the {part} does not fit the schema {schema.schema_id}: {error}") from error
        except ValueError as error:
            raise CommandError(
                f"the {part} is not JSON: {error}\n--{part}-format expects JSON, in which a string needs double quotes."
            ) from error


def decoder_of(options: argparse.Namespace) -> RecordDecoder:
    return RecordDecoder(registry_client(options), formats_of(options))


async def encoder_of(options: argparse.Namespace) -> RecordEncoder:
    """Returns an encoder for the schemas in the options, which are requested from the registry. Raises CommandError."""
    registry = registry_client(options)
    found: dict[str, _Schema] = {}
    for part, expected in formats_of(options).items():
        if part == "value" and options.schema_id is not None:
            schema = await asyncio.to_thread(_of_id, registry, options.schema_id)
        else:
            subject = options.subject if part == "value" and options.subject else f"{options.topic}-{part}"
            schema = await asyncio.to_thread(_of_subject, registry, subject)
        _require_type(schema, part, expected)
        found[part] = schema
    return RecordEncoder(found)


def _require_type(schema: _Schema, part: str, expected: str) -> None:
    if TYPES[expected] not in (None, schema.kind):
        right = next(name for name, kind in TYPES.items() if kind == schema.kind)
        raise CommandError(
            f"the schema {schema.schema_id} is {schema.kind}, not {TYPES[expected]}: give --{part}-format {right}"
        )


def _of_id(registry: RegistryClient, schema_id: int) -> _Schema:
    return _parsed(registry, schema_id, registry.text_of_id(schema_id))


def _of_subject(registry: RegistryClient, subject: str) -> _Schema:
    found = registry.version(subject)
    return _parsed(registry, found.schema_id, found.text)


def _parsed(registry: RegistryClient, schema_id: int, text: SchemaText) -> _Schema:
    from odradek.registry.errors import RegistryError
    from odradek.registry.schemas import parse

    try:
        return _Schema(schema_id, text.schema_type, parse(text.schema_type, text.text, registry.resolved(text)))
    except RegistryError as error:
        raise CommandError(f"the schema {schema_id} cannot be used: {error}") from error
