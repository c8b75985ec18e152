"""Reads the bodies of control calls. The types and limits of the fields are in the call's row of
`odradek/control_calls/table.py`."""

from __future__ import annotations

import asyncio
import json
import json.scanner
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from odradek.broker.control.problems import Problem, check_known_fields, mapping, text, whole_number
from odradek.control_calls.call import CallField, ControlCall

NO_LIMIT: Final = 2**63 - 1
LARGE_CHARS: Final = 64 * 1024  # longer bodies, such as those with a seed, are parsed in a thread


class PatientDecoder(json.JSONDecoder):
    """Parses JSON in Python, so that other threads can run during the parsing. The C decoder blocks the interpreter
    until it has finished: decoding a megabyte of small objects kept all clusters in the process from responding for
    more than 50 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]  # missing in typeshed


async def read_json(request: web.Request) -> object:
    """Returns the JSON body of a request, or an empty object if the body is empty. Raises Problem."""
    try:
        body = await request.text()
        if len(body) > LARGE_CHARS:
            return await asyncio.to_thread(PatientDecoder().decode, body)
        return json.loads(body) if body.strip() else {}
    except (ValueError, LookupError, RecursionError):
        raise Problem(400, "the body must be JSON, in UTF-8") from None


async def read_fields(call: ControlCall, request: web.Request) -> SentFields:
    """Returns the fields of the body. Returns no fields for a call whose body is not an object with fields.

    Raises Problem if the body is invalid, or if the body or the query has a field that the call does not define.
    """
    if call.query:
        check_known_fields(request.query, call.query_names)
    if call.body is None:
        return SentFields(call, {})
    values = mapping(await read_json(request), "the body")
    if not call.has_any_field:
        check_known_fields(values, call.body_names)
    return SentFields(call, values)


class SentFields:
    """The fields in the body of a call. The methods that return a value raise Problem if the call's row does not allow
    the value.

    values  all fields, unchecked
    """

    def __init__(self, call: ControlCall, values: Mapping[str, object]) -> None:
        self.values = values
        self._described = {} if call.body is None else {each.name: each for each in call.body}

    def get(self, name: str) -> object:
        """Returns the value of a field as it was sent, or None if the field is missing or null."""
        return self.values.get(name)

    def text(self, name: str) -> str:
        return text(self.values.get(name), name)

    def text_or_none(self, name: str) -> str | None:
        return None if self._is_left_out(name) else self.text(name)

    def number(self, name: str) -> int:
        schema = self._described[name].schema
        return whole_number(self.values.get(name), name, schema["minimum"], schema.get("maximum", NO_LIMIT))

    def number_or_none(self, name: str) -> int | None:
        return None if self._is_left_out(name) else self.number(name)

    def is_set(self, name: str, *, default: bool) -> bool:
        """Returns the value of a Boolean field."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise Problem(400, f"{name} must be true or false", field=name)
        return value

    def _is_left_out(self, name: str) -> bool:
        described: CallField = self._described[name]
        return self.values.get(name) is None and (described.is_nullable or name not in self.values)
