"""Frames without their secrets, as recordings keep them: those of logins, and of APIs that carry passwords or tokens.

docs/formats/recording.md says what is left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.protocol.api_facts import API_OF_KEY, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import decode, reader
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.frames import (
    LENGTH_BYTES,
    REQUEST_START,
    RESPONSE_START,
    read_request_header,
    request_bytes,
    response_chunks,
    response_has_tags,
)
from odradek.protocol.messages import request_class, response_class
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse

SECRET_KEYS: Final = frozenset(api.value for api in ApiKey if facts_of(api).has_secrets)
# By the second byte of an API key whose first one is 0: no secret is in requests of a client that is logged in, nor in
# answers to them.
HARMLESS: Final = bytes(
    number in API_OF_KEY and number not in SECRET_KEYS and not facts_of(API_OF_KEY[number]).is_login
    for number in range(256)
)


class SafeRequest(NamedTuple):
    """`api` is None for bytes that are no request; `body` holds no secret, and `is_masked` tells that it is cut."""

    api: ApiKey | None
    version: int
    body: bytes
    is_masked: bool


def safe_request(frame: memoryview, *, is_authenticated: bool, sends_tokens: bool) -> SafeRequest:
    """frame: without its length. sends_tokens: SaslHandshake v0 came, after which bare tokens follow."""
    if len(frame) < REQUEST_START.size or (sends_tokens and not is_authenticated):
        return SafeRequest(None, 0, b"", True)
    key, version, _, _ = REQUEST_START.unpack_from(frame)
    api = API_OF_KEY.get(key)
    if api is not None and is_authenticated and key not in SECRET_KEYS:
        return SafeRequest(api, version, bytes(frame), False)
    if api is None:
        return SafeRequest(None, version, bytes(frame) if is_authenticated else b"", not is_authenticated)
    if api is ApiKey.SASL_AUTHENTICATE:
        return SafeRequest(api, version, _blank_request(frame, version), True)
    facts = facts_of(api)
    if facts.has_secrets or not (facts.is_login or api is ApiKey.API_VERSIONS):
        return SafeRequest(api, version, bytes(frame[: REQUEST_START.size - 2]), True)
    return SafeRequest(api, version, bytes(frame), False)


def safe_answer(frame: memoryview, api: ApiKey | None, version: int) -> tuple[bytes, bool]:
    """Returns what of the answer holds no secret, and whether it is masked. frame: with its length."""
    if api is None:
        return b"", True
    if api.value not in SECRET_KEYS:
        return bytes(frame[LENGTH_BYTES:]), False
    if api is not ApiKey.SASL_AUTHENTICATE:
        return bytes(frame[LENGTH_BYTES : RESPONSE_START.size]), True
    message = sasl_answer(frame, version)
    if message is None:
        return bytes(frame[LENGTH_BYTES : RESPONSE_START.size]), True
    message.auth_bytes = b""
    _, correlation_id = RESPONSE_START.unpack_from(frame)
    chunks = response_chunks(api.value, version, correlation_id, message)
    return b"".join(chunks)[LENGTH_BYTES:], True


def sasl_answer(frame: memoryview, version: int) -> SaslAuthenticateResponse | None:
    """None where it cannot be read. frame: with its length."""
    key = ApiKey.SASL_AUTHENTICATE.value
    position = RESPONSE_START.size + response_has_tags(key, response_class(key), version)
    try:
        return decode(SaslAuthenticateResponse, version, frame, position)
    except (MalformedMessage, ValueError, IndexError):
        return None


def _blank_request(frame: memoryview, version: int) -> bytes:
    try:
        header, position = read_request_header(frame)
        reader(request_class(ApiKey.SASL_AUTHENTICATE.value), version)(frame, position)
    except (MalformedMessage, ValueError, IndexError):
        return bytes(frame[: REQUEST_START.size - 2])
    blank = SaslAuthenticateRequest(auth_bytes=b"")
    return request_bytes(blank, version, header.correlation_id, header.client_id)[LENGTH_BYTES:]
