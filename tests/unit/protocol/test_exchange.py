"""Tests that a complete frame of a request or response is decoded to the encoded values, and that an invalid frame
raises an error."""

from __future__ import annotations

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import (
    MASKED_BYTES,
    answer_chunks,
    api_and_version,
    read_answer,
    read_request,
    request_form,
)
from odradek.protocol.file_slice import in_memory
from odradek.protocol.frames import LENGTH_BYTES, request_bytes
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.recording_masks import safe_answer, safe_request, sasl_answer
from odradek.protocol.struct import Message
from odradek.testing.advertised import addresses_in

HEARTBEAT = ApiKey.HEARTBEAT.value
SASL_AUTHENTICATE = ApiKey.SASL_AUTHENTICATE.value
REQUEST = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
UNKNOWN_VERSION = 99


def request_frame(version: int, client_id: str | None = "me") -> bytes:
    return request_bytes(REQUEST, version, 7, client_id)[LENGTH_BYTES:]


def answer_frame(key: int, version: int, message: Message) -> bytes:
    return b"".join(in_memory(answer_chunks(key, version, 7, message)))


def of_a_version_that_never_was(frame: bytes) -> memoryview:
    return memoryview(frame[:2] + UNKNOWN_VERSION.to_bytes(2) + frame[4:])


@pytest.mark.parametrize("version", [0, 4], ids=["without tags", "with tags"])
@pytest.mark.parametrize("client_id", ["me", "", None])
def test_a_request_is_read_with_its_header(version: int, client_id: str | None) -> None:
    frame = request_frame(version, client_id)
    read = read_request(frame)
    header = read.header
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
        HEARTBEAT,
        version,
        7,
        client_id,
    )
    assert read.message == REQUEST


@pytest.mark.parametrize("version", [0, 4], ids=["without tags", "with tags"])
def test_a_request_that_was_changed_is_written_behind_the_header_that_it_had(version: int) -> None:
    frame = request_frame(version)
    read = read_request(frame)
    assert read.encoded(frame) == frame
    assert isinstance(read.message, HeartbeatRequest)
    read.message.member_id = "another"
    again = read_request(read.encoded(frame))
    assert (again.header, again.message) == (read.header, read.message)


@pytest.mark.parametrize("version", [0, 4], ids=["without tags", "with tags"])
def test_an_answer_is_read_with_its_length_and_without(version: int) -> None:
    answer = HeartbeatResponse(error_code=27)
    frame = answer_frame(HEARTBEAT, version, answer)
    whole = read_answer(HEARTBEAT, version, frame)
    assert (whole.correlation_id, whole.message, whole.end) == (7, answer, len(frame))
    bare = read_answer(HEARTBEAT, version, frame[LENGTH_BYTES:], has_length=False)
    assert (bare.correlation_id, bare.message, bare.end) == (7, answer, len(frame) - LENGTH_BYTES)


def test_tags_of_an_answers_header_are_read_over() -> None:
    answer = HeartbeatResponse(error_code=27)
    frame = answer_frame(HEARTBEAT, 4, answer)
    at = LENGTH_BYTES + 4
    tagged = frame[:at] + b"\1\5\2ab" + frame[at + 1 :]
    assert read_answer(HEARTBEAT, 4, tagged).message == answer


def test_an_answer_to_api_versions_has_no_tags_in_its_header() -> None:
    frame = answer_frame(ApiKey.API_VERSIONS.value, 3, ApiVersionsResponse(error_code=35))
    read = read_answer(ApiKey.API_VERSIONS.value, 3, frame).message
    assert isinstance(read, ApiVersionsResponse)
    assert read.error_code == 35


@pytest.mark.parametrize("version", [0, 4], ids=["without tags", "with tags"])
def test_frames_that_are_cut_anywhere_cannot_be_read(version: int) -> None:
    frame = request_frame(version)
    for size in range(len(frame)):
        with pytest.raises(MalformedMessage):
            read_request(frame[:size])
    answer = answer_frame(HEARTBEAT, version, HeartbeatResponse(error_code=27))
    for size in range(len(answer)):
        with pytest.raises(MalformedMessage):
            read_answer(HEARTBEAT, version, answer[:size])


def test_unknown_apis_and_versions_cannot_be_read() -> None:
    for key, version in ((999, 0), (-1, 0), (HEARTBEAT, UNKNOWN_VERSION), (HEARTBEAT, -1)):
        with pytest.raises(MalformedMessage):
            request_form(key, version)
        with pytest.raises(MalformedMessage):
            read_answer(key, version, bytes(100))


def test_api_and_version_are_read_from_frames_that_are_long_enough() -> None:
    frame = request_frame(4)
    assert api_and_version(frame) == (HEARTBEAT, 4)
    assert api_and_version(frame[:9]) is None
    assert api_and_version(frame[:4], 4) == (HEARTBEAT, 4)


def test_a_login_of_an_unknown_version_is_recorded_without_its_secret() -> None:
    frame = request_bytes(SaslAuthenticateRequest(auth_bytes=b"secret"), 2, 7, "me")[LENGTH_BYTES:]
    strange = of_a_version_that_never_was(frame)
    safe = safe_request(strange, is_authenticated=False, sends_tokens=False)
    assert (safe.version, safe.body, safe.is_masked) == (UNKNOWN_VERSION, bytes(strange[:MASKED_BYTES]), True)
    answer = memoryview(bytes(LENGTH_BYTES) + b"\0\0\0\7" + b"secret")
    assert sasl_answer(answer, UNKNOWN_VERSION) is None
    assert safe_answer(answer, ApiKey.SASL_AUTHENTICATE, UNKNOWN_VERSION) == (b"\0\0\0\7", True)


def test_a_response_of_an_unknown_version_advertises_no_broker() -> None:
    assert addresses_in(bytes(100), ApiKey.METADATA, UNKNOWN_VERSION) == []
