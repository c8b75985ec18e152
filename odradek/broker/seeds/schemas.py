"""Registers a seed's schemas and encodes its records with them. Only imported if the seed uses schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.registry.service import RegistryService
from odradek.broker.registry.topic import SchemaTopic
from odradek.broker.runtime.workers import in_thread
from odradek.registry.core import LATEST, Registration, Registry
from odradek.registry.errors import RegistryError
from odradek.registry.values import SchemaValueError, encode
from odradek.seeds.plan import JsonContent, SeedError, SeedRecord, SeedSchema

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.in_process.client import InProcessClient
    from odradek.broker.runtime.workers import Workers
    from odradek.registry.records import RegistryRecord
    from odradek.registry.schemas import ParsedSchema


async def opened_registry(broker: Broker, client: InProcessClient) -> RegistryService:
    """Reads a broker's schemas before its registry is running. The registry only starts when the broker accepts
    clients, and then replays its topic again. Raises CannotStart if the topic cannot be created or read."""
    registry = Registry(level=broker.config.odradek_schema_registry_compatibility_level)
    topic = SchemaTopic(broker, client, registry.state.replay)
    await topic.open()
    return RegistryService(registry, topic, broker.workers)


@dataclass(frozen=True, slots=True)
class SubjectSchema:
    """The schema of a subject's latest version."""

    schema_id: int
    schema_type: str
    parsed: ParsedSchema


class SchemaEncoder:
    def __init__(self, registry: RegistryService, workers: Workers) -> None:
        self._registry = registry
        self._workers = workers

    async def register(self, schemas: Sequence[SeedSchema]) -> int:
        """Registers the schemas that their subjects do not have yet. Returns the number of new schemas. Raises
        SeedError if a schema is invalid or is not compatible with earlier versions. May also raise KafkaError."""
        count = 0
        for schema in schemas:
            try:
                count += await self._registry.change(partial(_registered, schema))
            except RegistryError as error:
                raise schema.place.error(error.message) from error
        return count

    async def encode_records(self, records: Sequence[SeedRecord]) -> list[SeedRecord]:
        """Returns the records with encoded keys and values. Raises SeedError if a key or a value does not match its
        schema."""
        firsts = await in_thread(self._workers, lambda: _first_contents(records))
        schemas = {content.subject: await self._schema(content) for content in firsts}
        return await in_thread(self._workers, lambda: [_encoded(record, schemas) for record in records])

    async def _schema(self, content: JsonContent) -> SubjectSchema:
        try:
            return await self._registry.parse(partial(_latest, content.subject))
        except RegistryError as error:
            raise content.place.error(error.message) from error


def _registered(schema: SeedSchema, registry: Registry) -> tuple[int, list[RegistryRecord]]:
    """Returns the number of new schemas in the subject, which is 0 or 1, and the records to write."""
    _, records = registry.register(schema.subject, Registration(schema.text))
    return int(bool(records)), records


def _latest(subject: str, registry: Registry) -> SubjectSchema:
    version = registry.version(subject, LATEST)
    return SubjectSchema(version.schema_id, version.text.schema_type, registry.parsed(version.text))


def _first_contents(records: Sequence[SeedRecord]) -> list[JsonContent]:
    """Returns the first key or value that uses each subject."""
    found: dict[str, JsonContent] = {}
    for record in records:
        for content in (record.key, record.value):
            if isinstance(content, JsonContent):
                found.setdefault(content.subject, content)
    return list(found.values())


def _encoded(record: SeedRecord, schemas: Mapping[str, SubjectSchema]) -> SeedRecord:
    return replace(record, key=_content(record.key, schemas), value=_content(record.value, schemas))


def _content(content: bytes | JsonContent | None, schemas: Mapping[str, SubjectSchema]) -> bytes | None:
    if not isinstance(content, JsonContent):
        return content
    schema = schemas[content.subject]
    try:
        return encode(json.loads(content.text), schema.schema_id, schema.schema_type, schema.parsed)
    except SchemaValueError as error:
        raise SeedError(content.place, f"it does not fit the schema of {content.subject}: {error}") from error
