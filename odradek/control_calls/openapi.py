"""Creates the control interface's OpenAPI document from the table of calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from odradek.control_calls.call import CallField, CallScope, ControlCall, JsonSchema
from odradek.control_calls.table import ACCESS_REFUSALS, BASE, REFUSALS

DESCRIPTION: Final = (
    "docs/testing.md describes every call. A path without a cluster refers to the cluster default. A refused call"
    " returns a problem document (RFC 9457). A method that the path does not support is refused with status 405."
)
PROBLEM: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
        "allowed": {"type": "string"},
    },
    "required": ["type", "status", "detail"],
}
ID_PARAMETER: Final[JsonSchema] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def openapi_document(calls: Iterable[ControlCall]) -> dict[str, Any]:
    """Returns the OpenAPI document for these calls, including every path at which a call is available."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        for path, names_cluster in call.paths():
            paths.setdefault(path or "/", {})[call.method.lower()] = _operation(call, path, names_cluster)
    refusals = {
        f"Refused{status}": _problem(_sentence(words)) for status, words in {**REFUSALS, **ACCESS_REFUSALS}.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Odradek's control interface", "version": "1", "description": DESCRIPTION},
        "servers": [{"url": BASE}],
        "paths": paths,
        "components": {
            "responses": {
                "Problem": _problem("The call is refused and changes nothing; the body explains why (RFC 9457)."),
                **refusals,
            },
        },
    }


def _operation(call: ControlCall, path: str, names_cluster: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": _sentence(call.words)}
    parameters = [ID_PARAMETER] if names_cluster else []
    parameters += [_parameter(each, "path") for each in call.path_fields if f"{{{each.name}}}" in path]
    parameters += [_parameter(each, "query") for each in call.query]
    parameters += [_parameter(each, "header") for each in call.headers]
    if parameters:
        operation["parameters"] = parameters
    if call.reads_body:
        operation["requestBody"] = _body(call)
    operation["responses"] = _responses(call)
    return operation


def _parameter(field: CallField, place: str) -> dict[str, Any]:
    operation: dict[str, Any] = {"name": field.name, "in": place, "schema": field.schema}
    if place == "path":
        operation["required"] = True
    if field.words:
        operation["description"] = field.words
    return operation


def _body(call: ControlCall) -> dict[str, Any]:
    if call.document is not None:
        return {"required": True, "content": {"application/json": {"schema": call.document.schema}}}
    fields = call.body or ()
    required = [field.name for field in fields if field.is_required]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: field.full_schema for field in fields},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(call: ControlCall) -> dict[str, Any]:
    content: dict[str, Any] = {media_type: {} for media_type in call.media_types}
    if call.answer is not None:
        content["application/json"] = {"schema": call.answer}
    operation: dict[str, Any] = {str(call.status): {"description": "The call succeeded.", "content": content}}
    if call.path_fields or call.scope is not CallScope.PROCESS:
        operation["404"] = {"$ref": "#/components/responses/Problem"}
    for status in (*ACCESS_REFUSALS, *((408, 413) if call.reads_body else ())):
        operation[str(status)] = {"$ref": f"#/components/responses/Refused{status}"}
    for status, words in (call.also or {}).items():
        facts = {"application/json": {"schema": call.answer}}
        operation[str(status)] = {"description": words, "content": {**facts, **_problem("")["content"]}}
    operation["default"] = {"$ref": "#/components/responses/Problem"}
    return operation


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/problem+json": {"schema": PROBLEM}}}


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
