"""Facts about schemas that decisions need and that take a long time to compute: parsed schemas, and the results of
comparisons.

A decision requests facts from its `Facts`. `ParsedImmediately` computes them while the decision waits. `GatheredFacts`
computes nothing: if a fact is missing, it raises NotGathered, which describes the necessary work. The caller does this
work in a thread and then tries to decide again. A decision therefore takes little time, however large its schemas are,
and no lock is held while a schema is being parsed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol, cast

from odradek.registry.schemas import ParsedSchema, Reference, SchemaText, parse

MAX_CACHED_SCHEMAS: Final = 1_000  # maximum number of parsed schemas in the cache
MAX_PARSED_BYTES: Final = 8 << 20  # maximum total size of the texts of these schemas and their references


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """A schema with all schemas that it refers to, directly or indirectly. In `references`, each schema comes after the
    schemas that it refers to."""

    text: SchemaText
    references: tuple[tuple[Reference, str], ...] = ()

    @property
    def size(self) -> int:
        return len(self.text.text) + sum(len(text) for _, text in self.references)


class Facts(Protocol):
    def parsed(self, source: SchemaSource) -> ParsedSchema:
        """Returns the parsed schema. Raises RegistryError if the schema is invalid, or NotGathered if it has not yet
        been parsed."""

    def differences(self, reader: SchemaSource, writer: SchemaSource) -> list[str]:
        """Returns the reasons that the reader's schema cannot read data written with the writer's schema, which has the
        same type. Raises NotGathered if the schemas have not yet been compared."""


@dataclass(slots=True)
class ParsedSchemas:
    """Parses schemas and caches the most recently used ones. Thread-safe."""

    _parsed: OrderedDict[SchemaSource, ParsedSchema] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def of(self, source: SchemaSource) -> ParsedSchema:
        """Returns the parsed schema. Raises RegistryError if the schema is invalid."""
        with self._lock:
            found = self._parsed.get(source)
            if found is not None:
                self._parsed.move_to_end(source)
                return found
        found = parse(source.text.schema_type, source.text.text, source.references)
        with self._lock:
            if source not in self._parsed:
                self._parsed[source] = found
                self._bytes += source.size
            while len(self._parsed) > MAX_CACHED_SCHEMAS or self._bytes > MAX_PARSED_BYTES:
                oldest, _ = self._parsed.popitem(last=False)
                self._bytes -= oldest.size
        return found

    def compare(self, reader: SchemaSource, writer: SchemaSource) -> list[str]:
        return [str(each) for each in self.of(reader).cannot_read(self.of(writer))]


@dataclass(frozen=True, slots=True)
class ParsedImmediately:
    schemas: ParsedSchemas = field(default_factory=ParsedSchemas)

    def parsed(self, source: SchemaSource) -> ParsedSchema:
        return self.schemas.of(source)

    def differences(self, reader: SchemaSource, writer: SchemaSource) -> list[str]:
        return self.schemas.compare(reader, writer)


Question = tuple[SchemaSource, ...]  # a schema to parse, or a reader's and a writer's schema to compare


class NotGathered(Exception):
    """Raised if a fact that a decision needs is missing. `work` computes the fact, in any thread. Pass the result to
    `GatheredFacts.add`.

    size  number of characters in the texts that `work` parses or compares
    """

    def __init__(self, question: Question, work: Callable[[ParsedSchemas], Any]) -> None:
        super().__init__("a fact about a schema is missing")
        self.question = question
        self.work = work
        self.size = sum(each.size for each in question)


@dataclass(slots=True)
class GatheredFacts:
    """The facts gathered for one request. A fact remains available, so every attempt to decide the request makes
    progress."""

    _found: dict[Question, Any] = field(default_factory=dict)

    def add(self, missing: NotGathered, result: Any) -> None:
        self._found[missing.question] = result

    def parsed(self, source: SchemaSource) -> ParsedSchema:
        if (source,) not in self._found:
            raise NotGathered((source,), lambda schemas: schemas.of(source))
        return cast(ParsedSchema, self._found[source,])

    def differences(self, reader: SchemaSource, writer: SchemaSource) -> list[str]:
        if (reader, writer) not in self._found:
            raise NotGathered((reader, writer), lambda schemas: schemas.compare(reader, writer))
        return cast("list[str]", self._found[reader, writer])
