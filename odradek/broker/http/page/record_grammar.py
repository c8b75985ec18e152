"""The JSON form of a record, which clients send and receive.

    {"key": "7", "value": {"total": 12}, "headers": {"source": "shop"}, "partition": 0, "timestamp": 1767225600000}

If a key or value is a string, its bytes are the string in UTF-8. If it is null or missing, it is null in the record. If
it is any other JSON value, its bytes are the JSON text of that value. Bytes that are not text are in `key_base64` or
`value_base64`. `headers` is an object, or a list of pairs if a name occurs twice. All functions in this module are
pure.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.records import Headers, NewRecord, Record

if TYPE_CHECKING:
    from odradek.broker.api.schema_values import DecodedContent
    from odradek.broker.http.page.served import JsonValue

BASE64: Final = "_base64"
FIELDS: Final = frozenset({"key", "value", f"key{BASE64}", f"value{BASE64}", "headers", "partition", "timestamp"})
NO_TIMESTAMP: Final = -1
LAST_PARTITION: Final = 2**31 - 1
LAST_TIMESTAMP: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SentContent:
    """A key or value as sent by the client.

    data   its bytes
    value  the JSON value, which a schema may encode
    """

    data: bytes | None
    value: object


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record as sent by the client. `partition` is None if the client leaves the choice to the broker."""

    key: SentContent
    value: SentContent
    headers: Headers
    partition: int | None
    timestamp: int | None

    def with_bytes(self, key: bytes | None, value: bytes | None, now_ms: int = NO_TIMESTAMP) -> NewRecord:
        """Returns the record to produce. `now_ms` becomes its timestamp if the client sent none."""
        return NewRecord(key, value, now_ms if self.timestamp is None else self.timestamp, self.headers)


def parse_record(body: object, place: str = "") -> SentRecord:
    """Parses a record. Raises KafkaError (INVALID_REQUEST) if the record is invalid.

    place  the position of the record in the body, such as `records[2].`; error messages begin with it
    """
    if not isinstance(body, Mapping):
        raise invalid(f"{place.rstrip('.') or 'the body'} must be a JSON object")
    if unknown := sorted(set(body) - FIELDS):
        raise invalid(f"{place}{unknown[0]} is not a field of a record; the fields are {', '.join(sorted(FIELDS))}")
    return SentRecord(
        _content(body, "key", place),
        _content(body, "value", place),
        _headers(body.get("headers"), f"{place}headers"),
        _whole_number(body.get("partition"), f"{place}partition", LAST_PARTITION),
        _whole_number(body.get("timestamp"), f"{place}timestamp", LAST_TIMESTAMP),
    )


def _content(body: Mapping[str, object], name: str, place: str) -> SentContent:
    value, encoded = body.get(name), body.get(name + BASE64)
    if encoded is not None:
        if value is not None:
            raise invalid(f"{place}{name} and {place}{name}{BASE64} cannot both be given")
        return SentContent(_bytes_of_base64(encoded, f"{place}{name}{BASE64}"), None)
    if value is None or isinstance(value, str):
        return SentContent(None if value is None else value.encode(), value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return SentContent(text.encode(), value)


def _bytes_of_base64(text: object, place: str) -> bytes:
    try:
        if not isinstance(text, str):
            raise ValueError
        return b64decode(text, validate=True)
    except ValueError:
        raise invalid(f"{place} must be text in base64") from None


def _headers(given: object, place: str) -> Headers:
    if given is None:
        return ()
    pairs: Sequence[object] = [None]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, list):
        pairs = given
    found: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        match pair:
            case [str(name), None]:
                found.append((name, None))
            case [str(name), str(text)]:
                found.append((name, text.encode()))
            case [str(name), {"base64": text}]:
                found.append((name, _bytes_of_base64(text, place)))
            case _:
                raise invalid(f"{place} must be an object whose values are strings, or a list of pairs [name, value]")
    return tuple(found)


def _whole_number(given: object, place: str, most: int) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= most:
        raise invalid(f"{place} must be a whole number from 0 to {most}")
    return given


def invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{words[0].upper()}{words[1:]}.")


def record_json(partition: int, record: Record, decoded: Mapping[str, DecodedContent | str] | None = None) -> str:
    """Returns a record as JSON on one line. `parse_record` can parse all of its fields except the offset.

    decoded  the results of decoding `key` and `value`, or the reasons why they could not be decoded. Decoded JSON is
             copied into the record unchanged, because parsing it would change numbers
    """
    fields = {
        "partition": json.dumps(partition),
        "offset": json.dumps(record.offset),
        "timestamp": json.dumps(record.timestamp),
    }
    for part, data in (("key", record.key), ("value", record.value)):
        found = None if decoded is None else decoded.get(part)
        if found is None or isinstance(found, str) or found.json is None:
            fields |= {name: json.dumps(value) for name, value in _content_view(part, data).items()}
        else:
            fields[part] = found.json
            names = {"id": found.schema_id, "type": found.kind, "subject": found.subject, "version": found.version}
            fields[f"{part}_schema"] = json.dumps(names)
        if found is not None and (isinstance(found, str) or found.json is None):
            fields[f"{part}_error"] = json.dumps(found if isinstance(found, str) else found.error)
    if record.headers:
        fields["headers"] = json.dumps([[name, _shown_header(value)] for name, value in record.headers])
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}"


def _content_view(name: str, data: bytes | None) -> dict[str, JsonValue]:
    try:
        return {name: None if data is None else bytes(data).decode()}
    except UnicodeDecodeError:
        return {name + BASE64: b64encode(data or b"").decode()}


def _shown_header(data: bytes | None) -> JsonValue:
    try:
        return None if data is None else bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data or b"").decode()}
