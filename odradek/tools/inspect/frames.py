"""Reads requests and responses in binary form from files of frames and from recordings.

A file of frames contains either frames that each begin with their length, or a single frame without its length. A
request contains its API and version. For a response, the user must specify the API and version of its request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.decoded.messages import as_tree
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import answer_form
from odradek.protocol.frames import LENGTH, LENGTH_BYTES, REQUEST_START, read_request_header
from odradek.protocol.messages import MODULES, REQUESTS, RESPONSES
from odradek.protocol.recording import Kind, Recording
from odradek.protocol.recording import RecordingEntry as Recorded
from odradek.tools.inspect.entries import Damage, FileEntry, Finding, Note

REQUEST, RESPONSE = "request", "response"


@dataclass(frozen=True, slots=True)
class FrameKind:
    """A frame's kind: a request or a response. For a response, `api_key` and `version` are those of its request. For a
    request, `api_key` is None."""

    api_key: int | None = None
    version: int = 0

    @classmethod
    def parse(cls, text: str) -> FrameKind:
        """Parses `request`, or a text such as `response:Fetch:12`. Raises ValueError."""
        if text == REQUEST:
            return cls()
        word, name, version = (*text.split(":"), "", "")[:3]
        keys = {kind.name.replace("_", ""): kind.value for kind in ApiKey}
        key = keys.get(name.upper().replace("_", ""))
        if word != RESPONSE or key is None or not version.isdecimal():
            raise ValueError(f"{text!r} is neither request nor response:API:VERSION, such as response:Fetch:12")
        return cls(key, int(version))


def read_frames(data: bytes, kind: FrameKind) -> Iterator[Finding]:
    for position, frame in _frames(data):
        try:
            fields = (
                request_fields(frame) if kind.api_key is None else response_fields(frame, kind.api_key, kind.version)
            )
        except MalformedMessage as error:
            yield Damage(position, f"the frame of {len(frame)} bytes cannot be read: {error}")
        else:
            yield FileEntry(REQUEST if kind.api_key is None else RESPONSE, position, fields)


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the position and the bytes of each frame, without its length. If the lengths do not match the file's size,
    yields the complete file as one frame."""
    found = []
    position = 0
    while position + LENGTH_BYTES <= len(data):
        (size,) = LENGTH.unpack_from(data, position)
        start, end = position + LENGTH_BYTES, position + LENGTH_BYTES + size
        if size < 0 or end > len(data):
            break
        found.append((start, data[start:end]))
        position = end
    yield from found if found and position == len(data) else [(0, data)]


def request_fields(frame: bytes) -> dict[str, Any]:
    header, position = read_request_header(frame)
    module = REQUESTS[header.api_key]
    return {
        "api": MODULES[module].removesuffix("Request"),
        "version": header.api_version,
        "correlationId": header.correlation_id,
        "clientId": header.client_id,
        "body": as_tree(module, header.api_version, frame, position),
    }


def response_fields(frame: bytes, api_key: int, version: int) -> dict[str, Any]:
    module = RESPONSES[api_key]
    position = answer_form(api_key, version).body_at(frame, has_length=False)
    return {
        "api": MODULES[module].removesuffix("Response"),
        "version": version,
        "correlationId": LENGTH.unpack_from(frame)[0],
        "body": as_tree(module, version, frame, position),
    }


def read_recording(data: bytes, _: int) -> Iterator[Finding]:
    open_requests: dict[int, tuple[int, int]] = {}  # API and version of each exchange that has no response yet
    try:
        recording = Recording(BytesIO(data).read)
        for entry in recording.entries():
            try:
                fields = _fields(entry, open_requests)
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
            kind = "told" if entry.kind is Kind.EVENT else entry.kind.name.lower()  # scripts expect "told" for events
            yield FileEntry(kind, recording.position, known | fields)
        if recording.is_cut:
            yield Note(
                recording.position, "the recording ends within a block, for example because the broker was killed"
            )
    except MalformedMessage as error:
        yield Damage(0, str(error))


def _fields(entry: Recorded, open_requests: dict[int, tuple[int, int]]) -> dict[str, Any]:
    if entry.kind in (Kind.OPENED, Kind.EVENT):
        fields: dict[str, Any] = json.loads(entry.body)
        return fields
    if entry.kind is Kind.RECEIVED:
        if len(entry.body) < REQUEST_START.size:  # a masked secret, or bytes that are not a request
            return {"bytes": len(entry.body)}
        header, _ = read_request_header(entry.body)
        open_requests[entry.exchange] = header.api_key, header.api_version
        return request_fields(entry.body)
    known = open_requests.pop(entry.exchange, None) if entry.kind is not Kind.WRITTEN else None
    if entry.kind is not Kind.ANSWERED or known is None or len(entry.body) <= LENGTH_BYTES:
        return {}
    return response_fields(entry.body, *known)
