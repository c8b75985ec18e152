"""How the HTTP port encodes and decodes keys and values with the schema registry.

The registry is optional, and only `odradek.broker.registry` imports it. `Broker.schema_values` is None unless it is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo


class StoredContent(NamedTuple):
    """The bytes of a key or value.

    part  `key` or `value`
    """

    part: str
    data: bytes


class DecodingLimits(NamedTuple):
    """The work for one request: how many values inside keys and values are decoded, and how long their JSON may be; all
    together, and in each key or value."""

    values: int
    characters: int
    values_each: int
    characters_each: int


@dataclass(frozen=True, slots=True)
class DecodedContent:
    """A key or value whose bytes name a schema.

    kind      AVRO, JSON or PROTOBUF; None if the schema is not known, or the client may not see it
    subject   a subject that has the schema: that of the topic if possible. None like `kind`
    version   the version of the schema in that subject
    json      the value as JSON on one line; None if it cannot be decoded
    error     why it cannot be decoded
    is_large  whether it cannot be decoded within the limits
    """

    schema_id: int
    kind: str | None = None
    subject: str | None = None
    version: int | None = None
    json: str | None = None
    error: str = ""
    is_large: bool = False


class SchemaValues(Protocol):
    """The client of each call is that of an HTTP request. Its ACLs decide which schemas it may use. None stands for a
    client that may see everything."""

    async def encode(self, subject: str, value: object, client: ConnectionInfo) -> bytes:
        """Encodes a JSON value by the latest schema of a subject. Raises KafkaError."""

    async def decode(
        self, topic: str, contents: Sequence[StoredContent], client: ConnectionInfo | None, limits: DecodingLimits
    ) -> Sequence[DecodedContent | None]:
        """Decodes keys and values of a topic, beside the loop. Returns None for bytes that do not name a schema."""
