"""Encodes and decodes keys and values for the HTTP port. A client can only use schemas that it may read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from odradek.broker.api.schema_values import DecodedContent
from odradek.broker.registry.access import rights_of
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.registry.errors import RegistryError
from odradek.registry.values import (
    DecodingBudget,
    NotInWireFormat,
    SchemaValueError,
    TooMuchToDecode,
    decode,
    encode,
    schema_id_of,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import Authorizer, ConnectionInfo
    from odradek.broker.api.schema_values import DecodingLimits, StoredContent
    from odradek.broker.registry.access import Rights
    from odradek.broker.registry.service import RegistryService
    from odradek.broker.runtime.clock import Clock
    from odradek.registry.core import Registry
    from odradek.registry.schemas import ParsedSchema

FORBIDDEN: Final = 403
MAX_SCHEMAS: Final = 100  # maximum number of schemas parsed per call
# Maximum number of subjects with the same schema that are searched for one that the client is allowed to read.
MAX_SUBJECTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _UsableSchema:
    """A schema that a key or value refers to. `content` describes it to the client. If `parsed` is None, the schema
    cannot be used, and `content` contains the reason."""

    content: DecodedContent
    parsed: ParsedSchema | None = None


class RegistryValues:
    def __init__(self, service: RegistryService, authorizer: Authorizer, clock: Clock) -> None:
        self._service = service
        self._authorizer = authorizer
        self._clock = clock

    async def encode(self, subject: str, value: object, client: ConnectionInfo) -> bytes:
        """Encodes a JSON value in the wire format, using the latest schema of a subject. Raises KafkaError."""
        try:
            self._rights(client).require_read(subject)
            return await self._service.parse(lambda registry: encoded(registry, subject, value))
        except RegistryError as error:
            is_denied = error.status == FORBIDDEN
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.INVALID_RECORD
            raise KafkaError(code, error.message) from None
        except SchemaValueError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"The value does not fit {subject}: {error}.") from None

    async def decode(
        self, topic: str, contents: Sequence[StoredContent], client: ConnectionInfo | None, limits: DecodingLimits
    ) -> Sequence[DecodedContent | None]:
        """Decodes keys and values in one of the registry's threads. The list contains None for bytes that do not refer
        to a schema."""
        ids = [_schema_id(each.data) for each in contents]
        rights = None if client is None else self._rights(client)
        schemas: dict[tuple[int, str], _UsableSchema] = {}
        for schema_id, content in zip(ids, contents, strict=True):
            if schema_id is not None and (schema_id, content.part) not in schemas:
                is_one_more = len(schemas) < MAX_SCHEMAS
                subject = f"{topic}-{content.part}"
                schemas[schema_id, content.part] = (
                    await self._schema(schema_id, subject, rights)
                    if is_one_more
                    else _UsableSchema(DecodedContent(schema_id, error="too many schemas at once", is_large=True))
                )
        if not schemas:
            return [None] * len(contents)

        def job() -> list[DecodedContent | None]:
            left = DecodingBudget(limits.values, limits.characters)
            return [
                None if schema_id is None else _decoded(content.data, schemas[schema_id, content.part], left, limits)
                for schema_id, content in zip(ids, contents, strict=True)
            ]

        return await self._service.in_thread(job)

    async def _schema(self, schema_id: int, subject: str, rights: Rights | None) -> _UsableSchema:
        """Finds and parses a schema.

        subject  the subject to report if it has the schema and the client may read it; otherwise, any other subject
                 that has the schema and that the client may read is reported
        """
        unknown = DecodedContent(schema_id)
        registry = self._service.registry
        try:
            text = registry.text_of_id(schema_id)
            place = next(
                (each for each in _places(registry, schema_id, subject) if rights is None or rights.may_read(each[0])),
                None,
            )
            if place is None:
                return _UsableSchema(replace(unknown, error="the client may not read any subject of the schema"))
            content = DecodedContent(schema_id, text.schema_type, *place)
        except RegistryError as error:
            return _UsableSchema(replace(unknown, error=error.message))
        try:
            return _UsableSchema(content, await self._service.parse(lambda registry: registry.parsed(text)))
        except RegistryError as error:
            return _UsableSchema(replace(content, error=f"its schema cannot be used: {error.message}"))

    def _rights(self, client: ConnectionInfo) -> Rights:
        return rights_of(self._authorizer, client, self._clock.now_ms())


def encoded(registry: Registry, subject: str, value: object) -> bytes:
    """Encodes a JSON value in the wire format, using the latest schema of a subject. Raises RegistryError or
    SchemaValueError."""
    version = registry.version(subject, "latest")
    return encode(value, version.schema_id, version.text.schema_type, registry.parsed(version.text))


def _schema_id(data: bytes) -> int | None:
    try:
        return schema_id_of(data)
    except NotInWireFormat:
        return None


def _places(registry: Registry, schema_id: int, subject: str) -> Iterator[tuple[str, int]]:
    """Yields the subjects and versions that have a schema. `subject` comes first if it has the schema."""
    for version in reversed(registry.state.versions(subject, with_deleted=True)):
        if version.schema_id == schema_id:
            yield subject, version.number
            break
    yield from islice(registry.state.places_of(schema_id, with_deleted=True), MAX_SUBJECTS)


def _decoded(data: bytes, schema: _UsableSchema, left: DecodingBudget, limits: DecodingLimits) -> DecodedContent:
    """Decodes one key or value and deducts its cost from the budget `left`, which all keys and values of the call
    share."""
    content = schema.content
    if schema.parsed is None:
        return content
    assert content.kind is not None
    values, characters = min(left.values, limits.values_each), min(left.characters, limits.characters_each)
    budget = DecodingBudget(values, characters)
    try:
        return replace(content, json=decode(data, content.kind, schema.parsed, budget))
    except TooMuchToDecode as error:
        return replace(content, error=str(error), is_large=True)
    except SchemaValueError as error:
        return replace(content, error=str(error))
    finally:
        left.values -= values - max(budget.values, 0)
        left.characters -= characters - max(budget.characters, 0)
