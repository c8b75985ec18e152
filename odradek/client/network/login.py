"""Logs a connection in with SASL. A connection also calls `log_in` again to renew its session before it expires
(KIP-368)."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.client.common.errors import AuthenticationFailed, ClientError, RetriableError, code_of
from odradek.client.security.sasl import SaslError, SaslExchange
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.client.security.settings import Security, TokenCallback

M = TypeVar("M", bound=Message)

NONCE_BYTES = 24
WITH_SASL_AUTHENTICATE = 1  # version of SaslHandshake that is followed by SaslAuthenticate requests


class LoginConnection(Protocol):
    """The part of `odradek.client.network.connection.Connection` that a login uses."""

    @property
    def name(self) -> str: ...

    def version(self, request: type[Message], max_version: int | None = None, min_version: int = 0) -> int: ...

    def hold_requests(self) -> None: ...

    def send(self, request: Message, version: int, answer: type[M], *, is_login: bool = False) -> asyncio.Future[M]: ...

    def release_requests(self) -> None: ...


async def log_in(connection: LoginConnection, security: Security) -> int:
    """Logs the connection in. Returns the session's lifetime in ms, or 0 if it is unlimited.

    Raises AuthenticationFailed, after which retrying is pointless, or RetriableError. The caller must not send anything
    else between the handshake and this function's return.
    """
    mechanism = security.sasl_mechanism or ""
    exchange = await _exchange(connection, security)
    version = connection.version(SaslHandshakeRequest, WITH_SASL_AUTHENTICATE, WITH_SASL_AUTHENTICATE)
    connection.hold_requests()
    offered = await connection.send(
        SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse, is_login=True
    )
    _check_handshake(connection.name, mechanism, offered)
    version = connection.version(SaslAuthenticateRequest)
    token: bytes | None = exchange.initial_response()
    lifetime_ms = 0
    while token is not None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await connection.send(request, version, SaslAuthenticateResponse, is_login=True)
        if answer.error_code != 0:
            code = code_of(answer.error_code)
            raise AuthenticationFailed(
                f"{connection.name} refused the login: {answer.error_message or code.name}", code
            )
        lifetime_ms = answer.session_lifetime_ms
        try:
            # Runs in a thread, because salting a password takes several milliseconds, or more if the server requires
            # it.
            token = await asyncio.to_thread(exchange.answer, answer.auth_bytes)
        except SaslError as error:
            raise AuthenticationFailed(
                f"{connection.name}, {mechanism}: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED
            ) from None
    connection.release_requests()
    return lifetime_ms


async def _exchange(connection: LoginConnection, security: Security) -> SaslExchange:
    token = None if security.sasl_token is None else await _token(connection.name, security.sasl_token)
    try:
        return security.exchange(secrets.token_urlsafe(NONCE_BYTES), token)
    except ValueError as error:  # only the token can be invalid here: all other settings have already been checked
        raise AuthenticationFailed(f"sasl_token returned {error}") from None


async def _token(name: str, callback: TokenCallback) -> str:
    try:
        if inspect.iscoroutinefunction(callback):
            return str(await callback())
        found = await asyncio.to_thread(callback)
        return found if isinstance(found, str) else str(await found)
    except ClientError:
        raise
    except Exception as error:
        raise RetriableError(f"cannot log in at {name}: sasl_token raised {type(error).__name__}: {error}") from error


def _check_handshake(name: str, mechanism: str, offered: SaslHandshakeResponse) -> None:
    match code_of(offered.error_code):
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM as code:
            known = ", ".join(sorted(offered.mechanisms))
            raise AuthenticationFailed(f"{name} does not offer {mechanism}; it offers {known or 'nothing'}", code)
        case ErrorCode.ILLEGAL_SASL_STATE as code:
            what = (
                f"{name} does not accept logins, because its listener has no SASL. Set security_protocol to"
                " PLAINTEXT or SSL"
            )
            raise AuthenticationFailed(what, code)
        case code:
            raise AuthenticationFailed(f"{name} refused the login: {code.name}", code)
