"""Registers the schemas of a seed, and encodes its records by them. Imported only if the seed uses schemas.

The registry of the broker does not run yet, because it starts when the broker accepts clients. Its topic is opened here
in the same way, and the registry replays it once more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.broker.registry.topic import SchemaTopic
from odradek.broker.runtime.workers import in_thread
from odradek.registry.core import LATEST, Registration, Registry
from odradek.registry.errors import RegistryError
from odradek.registry.values import SchemaValueError, encode
from odradek.seeds.plan import JsonContent, SeedError, SeedRecord, SeedSchema

if TYPE_CHECKING:
    from odradek.broker.broker import Broker
    from odradek.broker.in_process.client import InProcessClient


class SchemaEncoder:
    def __init__(self, broker: Broker, client: InProcessClient) -> None:
        self._workers = broker.workers
        self._registry = Registry(level=broker.config.odradek_schema_registry_compatibility_level)
        self._topic = SchemaTopic(broker, client, self._registry.state.replay)

    @classmethod
    async def opened(cls, broker: Broker, client: InProcessClient) -> SchemaEncoder:
        """Reads the schemas of the broker. Raises CannotStart if its topic cannot be created or read."""
        found = cls(broker, client)
        await found._topic.open()
        return found

    async def register(self, schemas: Sequence[SeedSchema]) -> int:
        """Registers the schemas that their subjects do not have. Returns their number. Raises SeedError if a schema is
        invalid or not compatible with earlier versions, and KafkaError."""
        count = 0
        for schema in schemas:
            asked = Registration(schema.text)
            try:
                _, records = await in_thread(
                    self._workers,
                    lambda: self._registry.register(schema.subject, asked),  # noqa: B023
                )
            except RegistryError as error:
                raise SeedError(f"{schema.place}: {error.message}") from error
            if records:
                await self._topic.write(records)
                count += 1
        return count

    async def encode_records(self, records: Sequence[SeedRecord]) -> list[SeedRecord]:
        """Returns the records with bytes as keys and values. Raises SeedError if one of them does not fit its
        schema."""
        return await in_thread(self._workers, lambda: [self._encoded(record) for record in records])

    def _encoded(self, record: SeedRecord) -> SeedRecord:
        return replace(record, key=self._content(record.key), value=self._content(record.value))

    def _content(self, content: bytes | JsonContent | None) -> bytes | None:
        if not isinstance(content, JsonContent):
            return content
        try:
            version = self._registry.version(content.subject, LATEST)
            schema = self._registry.parsed(version.text)
            return encode(json.loads(content.text), version.schema_id, version.text.schema_type, schema)
        except RegistryError as error:
            raise SeedError(f"{content.place}: {error.message}") from error
        except SchemaValueError as error:
            raise SeedError(f"{content.place}: it does not fit the schema of {content.subject}: {error}") from error
