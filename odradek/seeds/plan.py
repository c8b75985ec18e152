"""A seed's contents as values. Each value has a `place` in the seed. Error messages about the value begin with its
place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from odradek.protocol.acls import ANY_HOST, Operation, PatternType, Permission, ResourceType
from odradek.protocol.records import Headers
from odradek.protocol.scram import ScramMechanism
from odradek.registry.schemas import SchemaText

DEFAULT = -1  # in CreateTopics, means the broker's num.partitions or default.replication.factor


class SeedError(Exception):
    """The seed cannot be read or applied. The message addresses the seed's author and begins with the place of the
    error."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place


@dataclass(frozen=True, slots=True)
class Place:
    """A value's place in a seed. It is shown as `SOURCE:LINE: FIELD`, without any unknown parts.

    source  the file, option or variable that the value comes from; empty for a request's field
    line    counted from 1; 0 if the seed is not text
    field   path of the field; empty for the complete document
    """

    source: str = ""
    line: int = 0
    field: str = ""

    def __str__(self) -> str:
        if not self.source:
            return f"line {self.line}: {self.field}" if self.line else self.field
        source = f"{self.source}:{self.line}" if self.line else self.source
        return f"{source}: {self.field}" if self.field else source

    def below(self, name: str, line: int | None = None) -> Place:
        """Returns the place of a field of this value. If `line` is None, the field has the same line as this value."""
        return Place(self.source, self.line if line is None else line, f"{self.field}.{name}" if self.field else name)

    def at(self, index: int, line: int) -> Place:
        return Place(self.source, line, f"{self.field}[{index}]")

    @property
    def subject(self) -> str:
        """The subject of the sentences in error messages: the last part of the field, such as `partitions`."""
        return self.field.rpartition(".")[2] or "the document"

    def error(self, reason: str) -> SeedError:
        return SeedError(self, reason)

    def rule_error(self, rule: str) -> SeedError:
        """Returns an error that states a rule for the field. `rule_error("be true")` returns a sentence whose subject
        is the field."""
        return self.error(f"{self.subject} must {rule}")


NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class SeedSchema:
    subject: str
    text: SchemaText
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class JsonContent:
    """A key or a value that is encoded with a subject's latest schema.

    text  the JSON of the key or value
    """

    subject: str
    text: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """A record to write.

    timestamp_ms  None for the time at which the broker starts
    partition     None to choose it by the key, or round-robin if there is no key
    """

    key: bytes | JsonContent | None = None
    value: bytes | JsonContent | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedTopic:
    name: str
    partitions: int = DEFAULT
    replicas: int = DEFAULT
    settings: tuple[tuple[str, str], ...] = ()
    records: tuple[SeedRecord, ...] = ()
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedOffset:
    topic: str
    partition: int
    offset: int
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedGroup:
    name: str
    offsets: tuple[SeedOffset, ...]
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedUser:
    name: str
    password: str
    mechanism: ScramMechanism
    iterations: int
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedAcl:
    resource_type: ResourceType
    resource: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True)
class SeedPlan:
    topics: tuple[SeedTopic, ...] = ()
    groups: tuple[SeedGroup, ...] = ()
    users: tuple[SeedUser, ...] = ()
    acls: tuple[SeedAcl, ...] = ()
    schemas: tuple[SeedSchema, ...] = ()

    @property
    def uses_schemas(self) -> Place | None:
        """The place of the first part that needs a schema registry, or None if no part needs one."""
        contents = (each for topic in self.topics for record in topic.records for each in (record.key, record.value))
        places = (each.place for each in contents if isinstance(each, JsonContent))
        return self.schemas[0].place if self.schemas else next(places, None)

    def with_topics(self, topics: tuple[SeedTopic, ...]) -> SeedPlan:
        """Returns a plan that also contains these topics. Raises SeedError if a topic would be named twice."""
        named = {topic.name for topic in self.topics}
        for topic in topics:
            if topic.name in named:
                raise topic.place.error(f"the topic {topic.name} is seeded twice")
            named.add(topic.name)
        return replace(self, topics=(*self.topics, *topics))
