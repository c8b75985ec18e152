"""What a seed asks for, as values. Each of them has a `place`, with which errors begin: a file, a line and a field."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.protocol.acls import ANY_HOST, Operation, PatternType, Permission, ResourceType
from odradek.protocol.records import Headers
from odradek.protocol.scram import ScramMechanism

DEFAULT = -1  # CreateTopics: the broker's num.partitions or default.replication.factor


class SeedError(Exception):
    """The seed cannot be read, or cannot be applied; worded for its author, and begins with the place."""


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """A record to write.

    timestamp_ms  None for the time of the start
    partition     None for the partition of the key, or if there is no key, for one partition after the other
    """

    key: bytes | None = None
    value: bytes | None = None
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

    def with_topics(self, topics: tuple[SeedTopic, ...]) -> SeedPlan:
        """Returns a plan with more topics. Raises SeedError if a topic would be named twice."""
        named = {topic.name for topic in self.topics}
        for topic in topics:
            if topic.name in named:
                raise SeedError(f"{topic.place}: the topic {topic.name} is seeded twice")
            named.add(topic.name)
        return SeedPlan((*self.topics, *topics), self.groups, self.users, self.acls)
