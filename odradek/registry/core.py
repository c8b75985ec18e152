"""Decides requests to the registry. A decision reads the state and returns the response and the records to write.

The caller writes the records to the topic `_schemas` and passes each one to `RegistryState.replay`. No other writing
request may be decided between a decision and its replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from odradek.registry import errors
from odradek.registry.errors import MODES, RegistryError
from odradek.registry.facts import Facts, ParsedImmediately, SchemaSource
from odradek.registry.levels import DEFAULT_LEVEL, LEVELS, incompatibilities
from odradek.registry.records import LevelRecord, ModeRecord, RegistryRecord, SchemaRecord, SubjectDeleted
from odradek.registry.schemas import Incompatibility, ParsedSchema, Reference, SchemaText
from odradek.registry.state import RegistryState, Version

LATEST: Final = "latest"
VersionName = int | Literal["latest"]
DEFAULT_MODE: Final = "READWRITE"
LAST_NUMBER: Final = 2**31 - 1
# Maximum size of a schema. A larger schema would not fit into a `_schemas` record with the default max.message.bytes.
MAX_SCHEMA_BYTES: Final = 1_000_000
MAX_REFERENCES: Final = 1_000  # maximum number, including indirect references
MAX_REFERENCE_DEPTH: Final = 100  # a reference within a reference has depth 2
MAX_REFERENCED_BYTES: Final = 4_000_000  # maximum total size of the referenced schemas


@dataclass(frozen=True, slots=True)
class Registration:
    """A schema to register under a subject. Clients choose the id and the version only in mode IMPORT."""

    text: SchemaText
    schema_id: int | None = None
    version: int | None = None
    normalize: bool = False


@dataclass(slots=True)
class Registry:
    """Decides the outcome of each request.

    level  the compatibility level that applies unless requests have set one for the subject or all subjects
    facts  parses and compares schemas. A decision raises NotGathered if a fact is not yet available
    """

    level: str = DEFAULT_LEVEL
    state: RegistryState = field(default_factory=RegistryState)
    facts: Facts = field(default_factory=ParsedImmediately)

    def using(self, facts: Facts) -> Registry:
        """Returns a registry with the same state that uses different facts for its decisions."""
        return replace(self, facts=facts)

    # Schemas.

    def register(self, subject: str, registration: Registration) -> tuple[int, list[RegistryRecord]]:
        """Registers a schema. Returns the schema's id and the records to write. There are no records if the subject
        already has this schema. Raises RegistryError if the registry rejects the schema."""
        mode = self.mode_of(subject)
        if mode in ("READONLY", "READONLY_OVERRIDE"):
            raise errors.not_permitted(f"Subject {subject} is in read-only mode")
        if registration.schema_id is not None and mode != "IMPORT":
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if registration.schema_id is None and mode == "IMPORT":
            raise errors.not_permitted(f"Subject {subject} is not in read-write mode")
        text, source = self._canonical(registration.text, normalize=registration.normalize)
        versions = self.state.versions(subject)
        for version in versions:
            if version.text == text and registration.schema_id in (None, version.schema_id):
                return version.schema_id, []
        if mode != "IMPORT":
            self._require_compatible(subject, source, versions)
        existing_id = self.state.ids.get(text)
        schema_id = (
            registration.schema_id if registration.schema_id is not None else existing_id or self.state.last_id + 1
        )
        if self.state.texts.get(schema_id, text) != text:
            raise errors.not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
        number = self.state.next_version(subject) if registration.version is None else registration.version
        return schema_id, [SchemaRecord(subject, number, schema_id, text)]

    def lookup(self, subject: str, text: SchemaText, *, normalize: bool = False, with_deleted: bool = False) -> Version:
        """Returns the latest version of a subject that has this schema. Raises RegistryError if there is no such
        version."""
        versions = self.state.versions(subject, with_deleted=with_deleted)
        if not versions:
            raise errors.subject_not_found(subject)
        canonical, _ = self._canonical(text, normalize=normalize)
        for version in reversed(versions):
            if version.text == canonical:
                return version
        raise errors.schema_not_found()

    def version(self, subject: str, number: VersionName, *, with_deleted: bool = False) -> Version:
        versions = self.state.versions(subject, with_deleted=with_deleted)
        if not versions:
            raise errors.subject_not_found(subject)
        if number == LATEST:
            return versions[-1]
        found = self.state.subjects[subject].get(number)
        if found is None or (found.is_deleted and not with_deleted):
            raise errors.version_not_found(number)
        return found

    def text_of_id(self, schema_id: int) -> SchemaText:
        text = self.state.texts.get(schema_id)
        if text is None:
            raise errors.schema_not_found(schema_id)
        return text

    def subjects(self, prefix: str = "", *, with_deleted: bool = False, deleted_only: bool = False) -> list[str]:
        return [
            subject
            for subject in self.state.subjects
            if subject.startswith(prefix) and self.is_listed(subject, with_deleted, deleted_only)
        ]

    def is_listed(self, subject: str, with_deleted: bool = False, deleted_only: bool = False) -> bool:
        """Returns whether a subject appears in the list of subjects."""
        versions = self.state.subjects.get(subject, {}).values()
        if deleted_only:
            return bool(versions) and all(version.is_deleted for version in versions)
        return bool(versions) and (with_deleted or any(not version.is_deleted for version in versions))

    def numbers(self, subject: str, *, with_deleted: bool = False, deleted_only: bool = False) -> list[int]:
        versions = self.state.versions(subject, with_deleted=with_deleted or deleted_only)
        if not versions:
            raise errors.subject_not_found(subject)
        return [version.number for version in versions if version.is_deleted or not deleted_only]

    def referenced_by(self, subject: str, number: VersionName) -> list[int]:
        """Returns the ids of the schemas that refer to this version."""
        version = self.version(subject, number)
        users = self.state.referenced.get((subject, version.number), {})
        found = (self.state.subjects[user][used] for user, used in users)
        return sorted({version.schema_id for version in found if not version.is_deleted})

    def parsed(self, text: SchemaText) -> ParsedSchema:
        return self.facts.parsed(self._source(text))

    # Deletion.

    def delete_version(
        self, subject: str, number: VersionName, *, is_permanent: bool
    ) -> tuple[int, list[RegistryRecord]]:
        self._require_writable(subject)
        version = self.version(subject, number, with_deleted=True)
        self._require_unreferenced(subject, version)
        if is_permanent:
            if not version.is_deleted:
                raise errors.version_not_soft_deleted(subject, version.number)
            return version.number, [SchemaRecord(subject, version.number)]
        if version.is_deleted:
            raise errors.version_soft_deleted(subject, version.number)
        records: list[RegistryRecord] = [
            SchemaRecord(subject, version.number, version.schema_id, version.text, is_deleted=True)
        ]
        if self.state.versions(subject) == [version]:
            records += self._settings_removed(subject)
        return version.number, records

    def delete_subject(self, subject: str, *, is_permanent: bool) -> tuple[list[int], list[RegistryRecord]]:
        self._require_writable(subject)
        versions = self.state.versions(subject, with_deleted=True)
        if not versions:
            raise errors.subject_not_found(subject)
        live = [version for version in versions if not version.is_deleted]
        for version in versions:
            self._require_unreferenced(subject, version)
        if is_permanent:
            if live:
                raise errors.subject_not_soft_deleted(subject)
            return [version.number for version in versions], [
                SchemaRecord(subject, version.number) for version in versions
            ]
        if not live:
            raise errors.subject_soft_deleted(subject)
        records: list[RegistryRecord] = [SubjectDeleted(subject, live[-1].number), *self._settings_removed(subject)]
        return [version.number for version in live], records

    # Compatibility.

    def level_of(self, subject: str | None) -> str:
        return self.state.levels.get(subject) or self.state.levels.get(None) or self.level

    def set_level(self, subject: str | None, level: str) -> list[RegistryRecord]:
        self._require_writable(subject)
        if level.upper() not in LEVELS:
            raise errors.invalid_level()
        return [LevelRecord(subject, level.upper())]

    def remove_level(self, subject: str | None) -> tuple[str, list[RegistryRecord]]:
        """Removes a subject's level, or the level for all other subjects if `subject` is None. Returns the removed
        level."""
        self._require_writable(subject)
        level = self.state.levels.get(subject)
        if level is None:
            if subject is None:
                return self.level, []
            raise errors.subject_not_found(subject)
        return level, [LevelRecord(subject, None)]

    def test(self, subject: str, text: SchemaText, number: VersionName | None, *, normalize: bool = False) -> list[str]:
        """Compares a schema with one version, or, if `number` is None, with the versions that a registration would use.
        Returns the incompatibilities."""
        versions = self.state.versions(subject)
        if number is not None:
            versions = versions[-1:] if number == LATEST else [self.version(subject, number)]
        _, source = self._canonical(text, normalize=normalize)
        return self._incompatible(subject, source, versions)

    # Modes.

    def mode_of(self, subject: str | None) -> str:
        return self.state.modes.get(subject) or self.state.modes.get(None) or DEFAULT_MODE

    def set_mode(self, subject: str | None, mode: str, *, is_forced: bool) -> list[RegistryRecord]:
        if mode not in MODES:
            raise errors.invalid_mode()
        if mode == "IMPORT" and self.mode_of(subject) != mode and not is_forced:
            exists = bool(self.subjects()) if subject is None else bool(self.state.versions(subject))
            if exists:
                raise errors.not_permitted("Cannot import since found existing subjects")
        return [ModeRecord(subject, mode)]

    def remove_mode(self, subject: str) -> tuple[str, list[RegistryRecord]]:
        mode = self.state.modes.get(subject)
        if mode is None:
            raise errors.mode_not_configured(subject)
        return mode, [ModeRecord(subject, None)]

    def _canonical(self, text: SchemaText, *, normalize: bool) -> tuple[SchemaText, SchemaSource]:
        """Returns the schema both as it is stored and as it was sent."""
        size = len(text.text.encode())
        if size > MAX_SCHEMA_BYTES:
            raise errors.invalid_schema(f"it has {size} bytes, but at most {MAX_SCHEMA_BYTES} are allowed")
        text = replace(text, references=tuple(self._numbered(each) for each in text.references))
        source = self._source(text)
        parsed = self.facts.parsed(source)
        return replace(text, text=parsed.normalized() if normalize else parsed.canonical), source

    def _source(self, text: SchemaText) -> SchemaSource:
        return SchemaSource(text, self._resolved(text))

    def _numbered(self, reference: Reference) -> Reference:
        """Replaces the version -1 in a reference with the latest version."""
        if reference.version != -1:
            return reference
        return replace(reference, version=self._referenced(reference).number)

    def _referenced(self, reference: Reference) -> Version:
        try:
            number: VersionName = LATEST if reference.version == -1 else reference.version
            return self.version(reference.subject, number, with_deleted=reference.version != -1)
        except RegistryError:
            raise errors.invalid_schema(
                f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
            ) from None

    def _resolved(self, text: SchemaText) -> tuple[tuple[Reference, str], ...]:
        """Returns all schemas that a schema refers to, directly or indirectly. Each schema comes after the schemas that
        it refers to."""
        found: dict[str, tuple[Reference, str]] = {}
        waiting: list[tuple[Reference, int, bool]] = [(each, 1, False) for each in reversed(text.references)]
        size = 0
        while waiting:
            reference, depth, is_complete = waiting.pop()
            if reference.name in found:
                continue
            if len(found) + len(waiting) > MAX_REFERENCES:
                raise errors.invalid_schema(f"it has more than {MAX_REFERENCES} references")
            if depth > MAX_REFERENCE_DEPTH:
                raise errors.invalid_schema(
                    f"its references are nested more than {MAX_REFERENCE_DEPTH} levels deep, down to {reference.name}"
                )
            version = self._referenced(reference)
            if is_complete:
                found[reference.name] = reference, version.text.text
                size += len(version.text.text)
                if size > MAX_REFERENCED_BYTES:
                    raise errors.invalid_schema(
                        f"the schemas to which it refers have more than {MAX_REFERENCED_BYTES} bytes in total"
                    )
            else:
                waiting.append((reference, depth, True))
                below = reversed(version.text.references)
                waiting.extend((each, depth + 1, False) for each in below if each.name not in found)
        return tuple(found.values())

    def _require_compatible(self, subject: str, source: SchemaSource, versions: list[Version]) -> None:
        details = self._incompatible(subject, source, versions)
        if details:
            raise errors.incompatible(subject, details)

    def _incompatible(self, subject: str, source: SchemaSource, versions: list[Version]) -> list[str]:
        level = self.level_of(subject)

        def differences(reader: Version | None, writer: Version | None) -> list[str]:
            """Compares two schemas. None means the new schema."""
            earlier = reader or writer
            if earlier is not None and earlier.text.schema_type != source.text.schema_type:
                words = f"The earlier schema is {earlier.text.schema_type}"
                return [str(Incompatibility("SCHEMA_TYPE_CHANGED", words))]
            reads = source if reader is None else self._source(reader.text)
            writes = source if writer is None else self._source(writer.text)
            return self.facts.differences(reads, writes)

        found = incompatibilities(LEVELS[level], None, versions, differences)
        if found is None:
            return []
        earlier, details = found
        assert earlier is not None
        return [
            *details,
            f"{{oldSchemaVersion: {earlier.number}}}",
            f"{{oldSchema: '{earlier.text.text}'}}",
            f"{{validateFields: 'false', compatibility: '{level}'}}",
        ]

    def _require_writable(self, subject: str | None) -> None:
        if self.mode_of(subject) in ("READONLY", "READONLY_OVERRIDE"):
            raise errors.not_permitted(
                f"Subject {subject} is in read-only mode" if subject else "The registry is in read-only mode"
            )

    def _require_unreferenced(self, subject: str, version: Version) -> None:
        if self.state.referenced.get((subject, version.number)):
            raise errors.still_referenced(subject, version.number)

    def _settings_removed(self, subject: str) -> list[RegistryRecord]:
        records: list[RegistryRecord] = []
        if subject in self.state.levels:
            records.append(LevelRecord(subject, None))
        if subject in self.state.modes:
            records.append(ModeRecord(subject, None))
        return records
