"""Recordings of `odradek serve --record`: one entry for each thing that happened, requests and answers decoded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.frames import LENGTH_BYTES, REQUEST_START, read_request_header
from odradek.protocol.recording import Entry as Recorded
from odradek.protocol.recording import Kind, Recording
from odradek.tools.inspect.entries import Damage, Entry, Finding, Note
from odradek.tools.inspect.frames import request_fields, response_fields


def read_recording(data: bytes, _: int) -> Iterator[Finding]:
    asked: dict[int, tuple[int, int]] = {}  # API and version of the exchanges that are not answered yet
    try:
        recording = Recording(BytesIO(data).read)
        for entry in recording.entries():
            try:
                fields = _fields(entry, asked)
            except (MalformedMessage, KeyError, ValueError) as error:
                fields = {"unreadable": str(error), "bytes": len(entry.body)}
            about = {
                "timeUs": entry.time_us,
                "connection": entry.connection,
                "exchange": entry.exchange,
                "waitedUs": entry.waited_us,
                "isMasked": entry.is_masked,
            }
            known = {name: value for name, value in about.items() if value}
            yield Entry(entry.kind.name.lower(), recording.position, known | fields)
        if recording.is_cut:
            yield Note(recording.position, "it ends within a block, as a killed broker leaves it")
    except MalformedMessage as error:
        yield Damage(0, str(error))


def _fields(entry: Recorded, asked: dict[int, tuple[int, int]]) -> dict[str, Any]:
    if entry.kind in (Kind.OPENED, Kind.STARTED):
        told: dict[str, Any] = json.loads(entry.body)
        return told
    if entry.kind is Kind.RECEIVED:
        if len(entry.body) < REQUEST_START.size:  # a secret, or no request
            return {"bytes": len(entry.body)}
        header, _ = read_request_header(entry.body)
        asked[entry.exchange] = header.api_key, header.api_version
        return request_fields(entry.body)
    known = asked.pop(entry.exchange, None) if entry.kind is not Kind.WRITTEN else None
    if entry.kind is not Kind.ANSWERED or known is None or len(entry.body) <= LENGTH_BYTES:
        return {}
    return response_fields(entry.body, *known)
