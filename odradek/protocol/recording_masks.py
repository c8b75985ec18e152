"""Removes secrets from recorded frames, both of logins and of other APIs that carry passwords or tokens.

docs/formats/recording.md lists the parts that are left out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.protocol.api_facts import API_OF_KEY, facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.exchange import MASKED_BYTES, answer_chunks, api_and_version, read_answer, read_request
from odradek.protocol.file_slice import in_memory
from odradek.protocol.frames import LENGTH_BYTES, RESPONSE_START, request_bytes
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse

SECRET_KEYS: Final = frozenset(api.value for api in ApiKey if facts_of(api).has_secrets)
# Indexed by the second byte of an API key whose first byte is 0. The value is 1 if neither the requests nor the
# responses of this API contain secrets once the client is authenticated.
HARMLESS: Final = bytes(
    number in API_OF_KEY and number not in SECRET_KEYS and not facts_of(API_OF_KEY[number]).is_login
    for number in range(256)
)


class SafeRequest(NamedTuple):
    """A request without its secrets. `api` is None if the bytes are not a request. `is_masked` is true if `body` has
    been shortened."""

    api: ApiKey | None
    version: int
    body: bytes
    is_masked: bool


def safe_request(frame: memoryview, *, is_authenticated: bool, sends_tokens: bool) -> SafeRequest:
    """Removes the secrets from a request.

    frame         without its length
    sends_tokens  whether the client has sent SaslHandshake v0, after which tokens are sent without a header
    """
    head = api_and_version(frame)
    if head is None or (sends_tokens and not is_authenticated):
        return SafeRequest(None, 0, b"", True)
    key, version = head
    api = API_OF_KEY.get(key)
    if api is not None and is_authenticated and key not in SECRET_KEYS:
        return SafeRequest(api, version, bytes(frame), False)
    if api is None:
        return SafeRequest(None, version, bytes(frame) if is_authenticated else b"", not is_authenticated)
    if api is ApiKey.SASL_AUTHENTICATE:
        return SafeRequest(api, version, _blank_request(frame, version), True)
    facts = facts_of(api)
    if facts.has_secrets or not (facts.is_login or api is ApiKey.API_VERSIONS):
        return SafeRequest(api, version, bytes(frame[:MASKED_BYTES]), True)
    return SafeRequest(api, version, bytes(frame), False)


def safe_answer(frame: memoryview, api: ApiKey | None, version: int) -> tuple[bytes, bool]:
    """Returns the part of the response that contains no secrets, and whether anything has been removed.

    frame   including its length
    """
    if api is None:
        return b"", True
    if api.value not in SECRET_KEYS:
        return bytes(frame[LENGTH_BYTES:]), False
    if api is not ApiKey.SASL_AUTHENTICATE:
        return bytes(frame[LENGTH_BYTES : RESPONSE_START.size]), True
    try:
        decoded = read_answer(api.value, version, frame)
    except (MalformedMessage, ValueError, IndexError):
        return bytes(frame[LENGTH_BYTES : RESPONSE_START.size]), True
    assert isinstance(decoded.message, SaslAuthenticateResponse)
    decoded.message.auth_bytes = b""
    chunks = answer_chunks(api.value, version, decoded.correlation_id, decoded.message)
    return b"".join(in_memory(chunks))[LENGTH_BYTES:], True


def sasl_answer(frame: memoryview, version: int) -> SaslAuthenticateResponse | None:
    """Decodes a SaslAuthenticate response. Returns None if it cannot be decoded.

    frame   including its length
    """
    try:
        message = read_answer(ApiKey.SASL_AUTHENTICATE.value, version, frame).message
    except (MalformedMessage, ValueError, IndexError):
        return None
    assert isinstance(message, SaslAuthenticateResponse)
    return message


def _blank_request(frame: memoryview, version: int) -> bytes:
    try:
        header = read_request(frame).header
    except (MalformedMessage, ValueError, IndexError):
        return bytes(frame[:MASKED_BYTES])
    blank = SaslAuthenticateRequest(auth_bytes=b"")
    return request_bytes(blank, version, header.correlation_id, header.client_id)[LENGTH_BYTES:]
