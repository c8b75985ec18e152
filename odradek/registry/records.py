"""The keys and values of the topic `_schemas`, in the format of Confluent's registry.

Keys and values are JSON. A record without a value removes the item named by its key; Karapace writes an empty value
instead. Unknown fields are ignored, so that the registry can read a topic written by another registry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from odradek.registry.levels import LEVELS
from odradek.registry.schemas import AVRO, Json, Reference, SchemaText

TOPIC: Final = "_schemas"


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A version of a subject. `text` is None if the version has been deleted permanently."""

    subject: str
    version: int
    schema_id: int = 0
    text: SchemaText | None = None
    is_deleted: bool = False  # soft deletion: requests with `deleted=true` still find the version


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """Soft-deletes all versions of the subject up to `last_version`."""

    subject: str
    last_version: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """Removes the subject after all its versions have been deleted."""

    subject: str


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """A subject's compatibility level, or that of all other subjects if `subject` is None. A level of None removes the
    setting."""

    subject: str | None
    level: str | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """A subject's mode, or that of all other subjects if `subject` is None. A mode of None removes the setting."""

    subject: str | None
    mode: str | None


RegistryRecord = SchemaRecord | SubjectDeleted | SubjectCleared | LevelRecord | ModeRecord


def encode(record: RegistryRecord) -> tuple[bytes, bytes | None]:
    """Encodes a record. Returns its key and value."""
    key: dict[str, Json]
    value: dict[str, Json] | None
    if isinstance(record, SchemaRecord):
        key = {"keytype": "SCHEMA", "subject": record.subject, "version": record.version, "magic": 1}
        value = None
        if record.text is not None:
            value = {"subject": record.subject, "version": record.version, "id": record.schema_id}
            value.update(record.text.as_json())
            value["deleted"] = record.is_deleted
    elif isinstance(record, SubjectDeleted):
        key = {"keytype": "DELETE_SUBJECT", "subject": record.subject, "magic": 0}
        value = {"subject": record.subject, "version": record.last_version}
    elif isinstance(record, SubjectCleared):
        key = {"keytype": "CLEAR_SUBJECT", "subject": record.subject, "magic": 0}
        value = {"subject": record.subject}
    elif isinstance(record, LevelRecord):
        key = {"keytype": "CONFIG", "subject": record.subject, "magic": 0}
        value = None if record.level is None else {"compatibilityLevel": record.level}
    else:
        key = {"keytype": "MODE", "subject": record.subject, "magic": 0}
        value = None if record.mode is None else {"mode": record.mode}
    return _dumped(key), None if value is None else _dumped(value)


def decode(key: bytes | None, value: bytes | None) -> RegistryRecord | None:
    """Decodes a record. Returns None for a key that has no effect here, such as NOOP. Raises ValueError for a record
    that cannot be read."""
    if key is None:
        raise ValueError("the record has no key")
    try:
        name = json.loads(key)
        content = json.loads(value) if value else None
        _require_unicode(key, name)
        _require_unicode(value or b"", content)
        return _decoded(name, content)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a field is missing or of a wrong type: {error}") from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _require_unicode(text: bytes, parsed: Json) -> None:
    """Raises ValueError if a string contains half of a surrogate pair, because no response could contain such a
    string."""
    if rb"\u" not in text:
        return
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a string contains half a surrogate pair") from None


def _decoded(key: Json, value: Json) -> RegistryRecord | None:
    kind = key["keytype"]
    if kind == "SCHEMA":
        if value is None:
            return SchemaRecord(str(key["subject"]), int(key["version"]))
        return SchemaRecord(
            str(key["subject"]), int(key["version"]), int(value["id"]), _text(value), bool(value.get("deleted", False))
        )
    if kind == "DELETE_SUBJECT":
        return None if value is None else SubjectDeleted(str(key["subject"]), int(value["version"]))
    if kind == "CLEAR_SUBJECT":
        return None if value is None else SubjectCleared(str(key["subject"]))
    if kind == "CONFIG":
        level = None if value is None else _string_or_none(value, "compatibilityLevel")
        if level is not None and level not in LEVELS:
            raise ValueError(f"the compatibility level {level!r} is unknown")
        return LevelRecord(_string_or_none(key, "subject"), level)
    if kind == "MODE":
        return ModeRecord(_string_or_none(key, "subject"), None if value is None else _string_or_none(value, "mode"))
    return None


def _string_or_none(fields: Json, name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a string or null")
    return value


def _text(value: Json) -> SchemaText:
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in value.get("references") or ()
    )
    return SchemaText(str(value.get("schemaType") or AVRO), str(value["schema"]), references)


def _dumped(document: dict[str, Json]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
