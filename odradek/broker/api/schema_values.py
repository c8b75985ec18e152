"""The interface through which the HTTP port encodes and decodes keys and values with the schema registry.

The registry is optional, and only `odradek.broker.registry` imports it. `Broker.schema_values` is None unless the
registry is enabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo


class StoredContent(NamedTuple):
    """The stored bytes of a key or value.

    part  `key` or `value`
    """

    part: str
    data: bytes


class DecodingLimits(NamedTuple):
    """Limits on decoding the keys and values of one request.

    values      total number of values inside the keys and values
    characters  total length of the decoded JSON
    values_each, characters_each
                the same limits for a single key or value
    """

    values: int
    characters: int
    values_each: int
    characters_each: int


@dataclass(frozen=True, slots=True)
class DecodedContent:
    """The decoded form of a key or value whose bytes name a schema.

    kind      AVRO, JSON or PROTOBUF; None if the schema is unknown or the client may not see it
    subject   a subject that has the schema, preferably the topic's own subject; None under the same conditions as
              `kind`
    version   the version of the schema in that subject
    json      the key or value as JSON on one line; None if it cannot be decoded
    error     the reason the key or value cannot be decoded
    is_large  whether decoding the key or value would exceed the limits
    """

    schema_id: int
    kind: str | None = None
    subject: str | None = None
    version: int | None = None
    json: str | None = None
    error: str = ""
    is_large: bool = False


class SchemaValues(Protocol):
    """Encodes and decodes values for the client of an HTTP request. The client's ACLs determine which schemas it can
    use. If the client is None, every schema can be used."""

    async def encode(self, subject: str, value: object, client: ConnectionInfo) -> bytes:
        """Encodes a JSON value with the latest schema of a subject. Raises KafkaError."""

    async def decode(
        self, topic: str, contents: Sequence[StoredContent], client: ConnectionInfo | None, limits: DecodingLimits
    ) -> Sequence[DecodedContent | None]:
        """Decodes keys and values of a topic without blocking the event loop. The result is None for bytes that do not
        name a schema."""
