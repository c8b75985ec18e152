"""The contents of a seed as values. Each value has a `place` (a file, a line and a field), with which its errors
begin."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.protocol.acls import ANY_HOST, Operation, PatternType, Permission, ResourceType
from odradek.protocol.records import Headers
from odradek.protocol.scram import ScramMechanism
from odradek.registry.schemas import SchemaText

DEFAULT = -1  # CreateTopics: the broker's num.partitions or default.replication.factor


class SeedError(Exception):
    """The seed cannot be read or applied. The message is meant for the author of the seed, and begins with the
    place."""


@dataclass(frozen=True, slots=True)
class SeedSchema:
    subject: str
    text: SchemaText
    place: str = ""


@dataclass(frozen=True, slots=True)
class JsonContent:
    """A key or a value that is encoded by the latest schema of a subject.

    text  the JSON of the key or value
    """

    subject: str
    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """A record to write.

    timestamp_ms  None for the time of the start
    partition     None to choose it by the key or, if there is no key, round robin
    """

    key: bytes | JsonContent | None = None
    value: bytes | JsonContent | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedTopic:
    name: str
    partitions: int = DEFAULT
    replicas: int = DEFAULT
    settings: tuple[tuple[str, str], ...] = ()
    records: tuple[SeedRecord, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedOffset:
    topic: str
    partition: int
    offset: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedGroup:
    name: str
    offsets: tuple[SeedOffset, ...]
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedUser:
    name: str
    password: str
    mechanism: ScramMechanism
    iterations: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedAcl:
    resource_type: ResourceType
    resource: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST
    place: str = ""


@dataclass(frozen=True, slots=True)
class SeedPlan:
    topics: tuple[SeedTopic, ...] = ()
    groups: tuple[SeedGroup, ...] = ()
    users: tuple[SeedUser, ...] = ()
    acls: tuple[SeedAcl, ...] = ()
    schemas: tuple[SeedSchema, ...] = ()

    @property
    def uses_schemas(self) -> str | None:
        """Returns the place of the first part that needs a schema registry, or None."""
        contents = (each for topic in self.topics for record in topic.records for each in (record.key, record.value))
        places = (each.place for each in contents if isinstance(each, JsonContent))
        return self.schemas[0].place if self.schemas else next(places, None)

    def with_topics(self, topics: tuple[SeedTopic, ...]) -> SeedPlan:
        """Returns a plan with more topics. Raises SeedError if a topic would be named twice."""
        named = {topic.name for topic in self.topics}
        for topic in topics:
            if topic.name in named:
                raise SeedError(f"{topic.place}: the topic {topic.name} is seeded twice")
            named.add(topic.name)
        return replace(self, topics=(*self.topics, *topics))
