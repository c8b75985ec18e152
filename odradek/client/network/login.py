"""Logins: by SASL, also anew on an open connection before its session ends (KIP-368); and the reasons why a TLS
handshake fails, in words for the person who set it up.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import ssl
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
WITH_SASL_AUTHENTICATE = 1  # the version of SaslHandshake after which tokens travel in SaslAuthenticate requests


class Connection(Protocol):
    """What a login does with a connection: `odradek.client.network.connection.Connection`."""

    @property
    def name(self) -> str: ...

    def version(self, request: type[Message], max_version: int | None = None, min_version: int = 0) -> int: ...

    def hold(self) -> None: ...

    def send(self, request: Message, version: int, answer: type[M], *, is_login: bool = False) -> asyncio.Future[M]: ...

    def release(self) -> None: ...


async def log_in(connection: Connection, security: Security) -> int:
    """How long the session lasts in ms, 0 without a limit. Raises AuthenticationFailed, which no repetition helps, and
    RetriableError. From the handshake on, until it returns, the caller must send nothing else."""
    mechanism = security.sasl_mechanism or ""
    exchange = await _exchange(connection, security)
    version = connection.version(SaslHandshakeRequest, WITH_SASL_AUTHENTICATE, WITH_SASL_AUTHENTICATE)
    connection.hold()
    offered = await connection.send(
        SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse, is_login=True
    )
    _check_handshake(connection.name, mechanism, offered)
    version = connection.version(SaslAuthenticateRequest)
    token: bytes | None = exchange.first()
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
            # Salting a password takes milliseconds, or as long as the server asks for.
            token = await asyncio.to_thread(exchange.answer, answer.auth_bytes)
        except SaslError as error:
            raise AuthenticationFailed(
                f"{connection.name}, {mechanism}: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED
            ) from None
    connection.release()
    return lifetime_ms


async def _exchange(connection: Connection, security: Security) -> SaslExchange:
    token = None if security.sasl_token is None else await _token(connection.name, security.sasl_token)
    try:
        return security.exchange(secrets.token_urlsafe(NONCE_BYTES), token)
    except ValueError as error:  # the other settings were checked before
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
        raise RetriableError(f"no login at {name}: sasl_token raised {type(error).__name__}: {error}") from error


def _check_handshake(name: str, mechanism: str, offered: SaslHandshakeResponse) -> None:
    match code_of(offered.error_code):
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM as code:
            known = ", ".join(sorted(offered.mechanisms))
            raise AuthenticationFailed(f"{name} does not offer {mechanism}, but {known or 'nothing'}", code)
        case ErrorCode.ILLEGAL_SASL_STATE as code:
            what = f"{name} takes no login: its listener is without SASL. Set security_protocol to PLAINTEXT or SSL"
            raise AuthenticationFailed(what, code)
        case code:
            raise AuthenticationFailed(f"{name} refused the login: {code.name}", code)


NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
WANTS_A_CERTIFICATE = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE"})
REFUSES_THE_CERTIFICATE = frozenset(
    {"SSLV3_ALERT_CERTIFICATE_UNKNOWN", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"}
)
EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
WRONG_NAME = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def tls_failure(name: str, error: OSError) -> ClientError:
    """AuthenticationFailed for what stays as it is until somebody changes the settings of one side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"the certificate of {name} is refused: {_why(error)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return _of_reason(name, error.reason)
    return RetriableError(
        f"{name} hung up during the TLS handshake: its listener may be one without TLS (PLAINTEXT, SASL_PLAINTEXT)",
        ErrorCode.NETWORK_EXCEPTION,
    )


def _why(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message
    if error.verify_code in WRONG_NAME:
        return f"{text}. Connect by a name that it has, or set ssl_check_hostname=False"
    if error.verify_code == EXPIRED:
        return text
    return f"{text}. ssl_cafile has to hold the CA that issued it"


def _of_reason(name: str, reason: str) -> ClientError:
    words = reason.lower().replace("_", " ")
    if reason in NO_TLS:
        return AuthenticationFailed(
            f"{name} does not answer with TLS ({words}): its listener is one without TLS. Set security_protocol to"
            " PLAINTEXT or SASL_PLAINTEXT"
        )
    if reason in WANTS_A_CERTIFICATE:
        return AuthenticationFailed(
            f"{name} refuses the connection ({words}): it may require a certificate of the client, ssl_certfile"
        )
    if reason in REFUSES_THE_CERTIFICATE:
        return AuthenticationFailed(f"{name} does not trust the certificate of this client, ssl_certfile ({words})")
    if "ALERT" in reason:
        return AuthenticationFailed(f"{name} refuses the TLS handshake: {words}")
    return RetriableError(f"TLS with {name} failed: {words}", ErrorCode.NETWORK_EXCEPTION)
