"""The subjects, versions, ids, levels and modes of a registry. Only `replay` changes them.

A soft-deleted version keeps its number: responses omit the version unless the request includes deleted versions, and
the subject's next version gets a higher number. Equal schemas share one id, even in different subjects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from odradek.registry.records import (
    LevelRecord,
    ModeRecord,
    RegistryRecord,
    SchemaRecord,
    SubjectCleared,
    SubjectDeleted,
)
from odradek.registry.schemas import SchemaText

T = TypeVar("T")
Place = tuple[str, int]  # subject and version


@dataclass(slots=True)
class Version:
    number: int
    schema_id: int
    text: SchemaText
    is_deleted: bool = False


@dataclass(slots=True)
class RegistryState:
    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)  # versions in ascending order
    texts: dict[int, SchemaText] = field(default_factory=dict)  # keyed by id
    ids: dict[SchemaText, int] = field(default_factory=dict)
    places: dict[int, dict[Place, None]] = field(default_factory=dict)  # keyed by id
    referenced: dict[Place, dict[Place, None]] = field(default_factory=dict)  # the versions that refer to each version
    levels: dict[str | None, str] = field(default_factory=dict)  # keyed by subject; None stands for all other subjects
    modes: dict[str | None, str] = field(default_factory=dict)
    last_id: int = 0

    def replay(self, record: RegistryRecord) -> None:
        if isinstance(record, SchemaRecord):
            self._replay_schema(record)
        elif isinstance(record, SubjectDeleted):
            for version in self.subjects.get(record.subject, {}).values():
                if version.number <= record.last_version:
                    version.is_deleted = True
        elif isinstance(record, SubjectCleared):
            for number in list(self.subjects.get(record.subject, {})):
                self._remove(record.subject, number)
        elif isinstance(record, LevelRecord):
            _set(self.levels, record.subject, record.level)
        elif isinstance(record, ModeRecord):
            _set(self.modes, record.subject, record.mode)

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """Returns a subject's versions in ascending order. The list is empty if the subject does not exist."""
        found = self.subjects.get(subject, {})
        return [version for version in found.values() if with_deleted or not version.is_deleted]

    def places_of(self, schema_id: int, *, with_deleted: bool = False) -> Iterator[Place]:
        for subject, number in self.places.get(schema_id, ()):
            if with_deleted or not self.subjects[subject][number].is_deleted:
                yield subject, number

    def next_version(self, subject: str) -> int:
        return max(self.subjects.get(subject, {}), default=0) + 1

    def _replay_schema(self, record: SchemaRecord) -> None:
        self._remove(record.subject, record.version)
        self.last_id = max(self.last_id, record.schema_id)
        if record.text is None:
            return
        versions = self.subjects.setdefault(record.subject, {})
        is_last = record.version > max(versions, default=0)
        versions[record.version] = Version(record.version, record.schema_id, record.text, record.is_deleted)
        if not is_last:
            self.subjects[record.subject] = dict(sorted(versions.items()))
        place = record.subject, record.version
        self.texts[record.schema_id] = record.text
        self.ids[record.text] = record.schema_id
        self.places.setdefault(record.schema_id, {})[place] = None
        for reference in record.text.references:
            self.referenced.setdefault((reference.subject, reference.version), {})[place] = None

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        place = subject, number
        self.places[version.schema_id].pop(place, None)
        for reference in version.text.references:
            users = self.referenced.get((reference.subject, reference.version), {})
            users.pop(place, None)
            if not users:
                self.referenced.pop((reference.subject, reference.version), None)
        if not self.places[version.schema_id]:  # no version has this schema any more, and its id is never reused
            del self.places[version.schema_id]
            if self.ids.get(version.text) == version.schema_id:
                del self.ids[version.text]
            self.texts.pop(version.schema_id, None)
        if not versions:
            del self.subjects[subject]


def _set(values: dict[str | None, T], subject: str | None, value: T | None) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value
