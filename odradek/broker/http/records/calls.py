"""The calls for records over HTTP, as a table with one row for each call. The HTTP handlers check requests against
these rows, and the OpenAPI document is generated from them."""

from __future__ import annotations

from typing import Any, Final

from odradek.broker.http.records.reading import (
    DEFAULT_RECORDS,
    FORMATS,
    MAX_BYTES,
    MAX_READERS,
    MAX_RECORDS,
    MAX_WAIT_MS,
)
from odradek.control_calls.call import CallField, CallScope, ControlCall, FieldKind, JsonSchema

PATH: Final = "/api/topics/{topic}/records"
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
MAX_WRITTEN_RECORDS: Final = 1000
BODY_BYTES: Final = 1024 * 1024  # aiohttp's size limit for a request body

TEXT: Final[JsonSchema] = {"type": "string"}
WHOLE: Final[JsonSchema] = {"type": "integer", "minimum": 0}
CONTENT: Final[JsonSchema] = {
    "description": "a string, which is written as UTF-8; null; or any other JSON value, which is written as JSON text"
}
HEADERS: Final[JsonSchema] = {
    "oneOf": [
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
    ]
}
RECORD: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "key": CONTENT,
        "key_base64": TEXT,
        "value": CONTENT,
        "value_base64": TEXT,
        "headers": HEADERS,
        "partition": WHOLE,
        "timestamp": {**WHOLE, "description": "milliseconds since 1970"},
    },
    "additionalProperties": False,
}
DECODED_BY: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "id": WHOLE,
        "type": {"enum": [each for each in FORMATS.values() if each is not None]},
        "subject": TEXT,
        "version": WHOLE,
    },
}
NOT_DECODED: Final[JsonSchema] = {**TEXT, "description": "why the bytes could not be decoded"}
READ_RECORD: Final[JsonSchema] = {
    **RECORD,
    "properties": {
        **RECORD["properties"],
        "offset": WHOLE,
        "key_schema": DECODED_BY,
        "value_schema": DECODED_BY,
        "key_error": NOT_DECODED,
        "value_error": NOT_DECODED,
    },
}
READ: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "items": READ_RECORD,
        },
        "next": {**TEXT, "description": "the value of `from` for the next request"},
        "is_at_end": {"type": "boolean", "description": "whether the answer reached the end of all partitions"},
    },
}
RESULTS: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"partition": WHOLE, "offset": WHOLE, "error": TEXT, "code": TEXT},
            },
        },
        "error": TEXT,
        "code": TEXT,
    },
}


def _text(name: str, words: str, schema: JsonSchema = TEXT) -> CallField:
    return CallField(name, FieldKind.TEXT, schema, words)


def _number(name: str, words: str, least: int, most: int) -> CallField:
    return CallField(name, FieldKind.NUMBER, {"type": "integer", "minimum": least, "maximum": most}, words)


TOPIC = CallField("topic", FieldKind.TEXT, TEXT, is_required=True)
ACKS = ("all", 1, 0)
WRITE: Final = ControlCall(
    "write",
    "POST",
    PATH,
    "write one record, or several",
    CallScope.PROCESS,
    path_fields=(TOPIC,),
    body=(
        CallField(
            "records",
            FieldKind.JSON_LIST,
            {"type": "array", "items": RECORD, "minItems": 1, "maxItems": MAX_WRITTEN_RECORDS},
            "Instead of `records`, the body may have the fields of a single record",
        ),
        _text("acks", "how many replicas must acknowledge the records; default: all", {"enum": [*ACKS]}),
        _text("key_subject", "encode keys with the latest schema of this subject"),
        _text("value_subject", "encode values with the latest schema of this subject"),
    ),
    answer=RESULTS,
    also={202: "acks is 0, so the broker does not report whether the records were written."},
)
READ_CALL: Final = ControlCall(
    "read",
    "GET",
    PATH,
    "read records",
    CallScope.PROCESS,
    path_fields=(TOPIC,),
    query=(
        _text(
            "from",
            "where to start: beginning (the default), end, an offset, or the value of `next` in the previous answer",
        ),
        _number("wait_ms", "how long to wait for a record if there is none; default: 0", 0, MAX_WAIT_MS),
        _number("max", f"the maximum number of records in an answer; default: {DEFAULT_RECORDS}", 1, MAX_RECORDS),
        _text("partition", "the numbers of partitions, separated by commas; default: all partitions"),
        _text("isolation", "default: committed", {"enum": ["committed", "uncommitted"]}),
        _text("timestamp", "the earliest timestamp in ms"),
        _text("until", "the latest timestamp in ms"),
        _text("find", "only records that contain this text"),
        _text("in", "where `find` looks; default: any", {"enum": ["any", "key", "value", "headers"]}),
        _text("path", "only records in whose value this JSONPath selects something"),
        _text("key_format", "decode keys with schemas from the schema registry", {"enum": [*FORMATS]}),
        _text(
            "value_format",
            "decode values with schemas from the schema registry; `schema` accepts every type of schema",
            {"enum": [*FORMATS]},
        ),
        _text("cluster", "the id of a cluster of the control interface; default: the broker itself"),
    ),
    headers=(_text("Last-Event-ID", "replaces `from`; browsers send this header when they resume"),),
    answer=READ,
    media_types=(JSON, LINES, EVENTS),
)
CALLS: Final = (WRITE, READ_CALL)
REFUSALS: Final = {
    400: "The request has a field or parameter that is missing, unknown or invalid.",
    401: "The token, or the user and the password, are missing or wrong.",
    403: "A permission is missing, the setting odradek.http.actions is off, or the request comes from a page of"
    " another site.",
    404: "There is no such topic or partition.",
    413: f"The body is larger than {BODY_BYTES >> 20} MiB, or a record is larger than message.max.bytes.",
    415: f"The body is not {JSON}.",
    503: f"{MAX_READERS} requests are already reading records.",
}
SECURITY: Final = {
    "user": {
        "type": "http",
        "scheme": "basic",
        "description": "A user of the broker with its password, or any name with the token as the password.",
    },
    "token": {"type": "http", "scheme": "bearer", "description": "The value of odradek.http.token."},
}
DESCRIPTION: Final = (
    f"docs/http-records.md describes both calls. An answer has at most {MAX_RECORDS} records and {MAX_BYTES} bytes."
)


def openapi_document() -> dict[str, Any]:
    """Returns the OpenAPI document of CALLS."""
    error = {"type": "object", "properties": {"error": TEXT, "code": TEXT}, "required": ["error"]}
    operations: dict[str, Any] = {}
    for call in CALLS:
        parameters: list[dict[str, Any]] = [{"name": "topic", "in": "path", "required": True, "schema": TEXT}]
        for place, fields in (("query", call.query), ("header", call.headers)):
            parameters += [
                {"name": each.name, "in": place, "schema": each.schema, "description": each.words} for each in fields
            ]
        content = {
            media_type: ({"schema": call.answer} if media_type == JSON else {}) for media_type in call.media_types
        }
        responses: dict[str, Any] = {"200": {"description": "The call succeeded.", "content": content}}
        for status, words in {**(call.also or {}), **REFUSALS}.items():
            schema = call.answer if status in (call.also or {}) else error
            responses[str(status)] = {"description": words, "content": {JSON: {"schema": schema}}}
        operation: dict[str, Any] = {
            "summary": f"{call.words[0].upper()}{call.words[1:]}.",
            "security": [{}, *({name: []} for name in SECURITY)],
            "parameters": parameters,
            "responses": responses,
        }
        if call.reads_body:
            properties = {**RECORD["properties"], **{field.name: field.full_schema for field in call.body or ()}}
            schema = {"type": "object", "properties": properties, "additionalProperties": False}
            operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
        operations[call.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Records over HTTP", "version": "1", "description": DESCRIPTION},
        "paths": {PATH: operations},
        "components": {"securitySchemes": SECURITY},
    }
