"""Tests that a client can log in to secured brokers, renew its login, and use TLS. If one of these steps fails, the
error names the cause."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from odradek.client.common.errors import AuthenticationFailed, ClientError, RetriableError
from odradek.client.network.cluster import Cluster
from odradek.client.network.connection import Connection
from odradek.client.security.settings import NO_SECURITY, Security
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions_response import ApiVersion
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.certificates import Authority
from tests.unit.client.scripted_broker import Answers, Request, ScriptedBroker, scripted, usual, versions

VERSIONS, METADATA = ApiKey.API_VERSIONS.value, ApiKey.METADATA.value
HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE.value, ApiKey.SASL_AUTHENTICATE.value
PLAIN = Security("SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="pw")
RIGHT = b"\0alice\0pw"


def with_sasl(request: Request, *, lifetime_ms: int = 0, is_accepted: Callable[[bytes], bool] = RIGHT.__eq__) -> bytes:
    """Answers like a broker that supports PLAIN and OAUTHBEARER."""
    if request.api_key == VERSIONS:
        answer = versions()
        answer.api_keys += [
            ApiVersion(api_key=HANDSHAKE, min_version=0, max_version=1),
            ApiVersion(api_key=AUTHENTICATE, min_version=0, max_version=2),
        ]
        return request.answer(answer)
    if request.api_key == HANDSHAKE:
        mechanisms = ["PLAIN", "OAUTHBEARER"]
        is_known = request.read(SaslHandshakeRequest).mechanism in mechanisms
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return request.answer(SaslHandshakeResponse(error_code=code.value, mechanisms=mechanisms))
    if request.api_key == AUTHENTICATE:
        if is_accepted(request.read(SaslAuthenticateRequest).auth_bytes):
            return request.answer(SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return request.answer(SaslAuthenticateResponse(error_code=code.value, error_message="not you, alice"))
    return usual(request) or b""


async def connected(broker: ScriptedBroker, security: Security, host: str = "127.0.0.1") -> Connection:
    return await Connection.open(host, broker.port, client_id="test", request_timeout_ms=20_000, security=security)


def keys(broker: ScriptedBroker) -> list[int]:
    return [request.api_key for request in broker.requests]


async def test_the_login_comes_between_the_versions_and_the_first_request() -> None:
    async with scripted(with_sasl) as broker:
        connection = await connected(broker, PLAIN)
        await connection.ask(MetadataRequest(), MetadataResponse)
        assert keys(broker) == [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA]
        assert [request.api_version for request in broker.requests[1:3]] == [1, 2]
        connection.close()


async def test_a_refused_login_is_raised_at_once_with_the_brokers_text() -> None:
    wrong = Security("SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="x")
    async with scripted(with_sasl) as broker:
        cluster = Cluster(f"127.0.0.1:{broker.port}", client_id="test", bootstrap_timeout_ms=60_000, security=wrong)
        with pytest.raises(AuthenticationFailed, match="not you, alice") as refused:
            await cluster.start()
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert keys(broker) == [VERSIONS, HANDSHAKE, AUTHENTICATE]
        await cluster.close()


async def test_an_unsupported_mechanism_raises_an_error_with_the_supported_ones() -> None:
    scram = Security("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username="alice", sasl_password="x")
    async with scripted(with_sasl) as broker:
        with pytest.raises(AuthenticationFailed, match="does not offer SCRAM-SHA-256; it offers OAUTHBEARER, PLAIN"):
            await connected(broker, scram)


async def test_a_listener_without_sasl_is_named() -> None:
    def without_sasl(request: Request) -> bytes:
        if request.api_key == HANDSHAKE:
            return request.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.value))
        return with_sasl(request)

    async with scripted(without_sasl) as broker:
        with pytest.raises(AuthenticationFailed, match=r"has no SASL\. Set security_protocol to PLAINTEXT or SSL"):
            await connected(broker, PLAIN)


async def test_a_broker_that_hangs_up_on_a_client_without_login_may_want_one() -> None:
    def wants_a_login(request: Request) -> bytes | None:
        return None if request.api_key == METADATA else with_sasl(request)

    async with scripted(wants_a_login) as broker:
        connection = await connected(broker, NO_SECURITY)
        with pytest.raises(RetriableError, match=r"may require TLS or SASL \(security_protocol=PLAINTEXT\)"):
            await connection.ask(MetadataRequest(), MetadataResponse)


async def test_a_session_is_renewed_in_time_and_other_requests_wait_meanwhile() -> None:
    async with scripted(partial(with_sasl, lifetime_ms=50)) as broker:
        connection = await connected(broker, PLAIN)
        while keys(broker).count(HANDSHAKE) < 4:
            await asyncio.gather(*(connection.ask(MetadataRequest(), MetadataResponse) for _ in range(5)))
        connection.close()
        after_handshakes = [
            after for key, after in zip(keys(broker), keys(broker)[1:], strict=False) if key == HANDSHAKE
        ]
        assert set(after_handshakes) == {AUTHENTICATE}
        assert keys(broker).count(VERSIONS) == 1


async def test_a_session_that_ends_within_a_throttle_time_is_renewed_before_the_requests_that_wait() -> None:
    throttles = iter([40])

    def busy(request: Request) -> bytes:
        if request.api_key == METADATA:
            return request.answer(MetadataResponse(throttle_time_ms=next(throttles, 0)))
        return with_sasl(request, lifetime_ms=20 if keys(broker).count(HANDSHAKE) == 1 else 0)

    async with scripted(busy) as broker:
        connection = await connected(broker, PLAIN)
        await connection.ask(MetadataRequest(), MetadataResponse)
        await connection.ask(MetadataRequest(), MetadataResponse)
        assert keys(broker) == [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, HANDSHAKE, AUTHENTICATE, METADATA]
        connection.close()


async def test_a_session_that_cannot_be_renewed_ends_the_connection_and_the_next_one_says_why() -> None:
    logins = iter([True, False, False])
    refusing = partial(with_sasl, lifetime_ms=50, is_accepted=lambda _token: next(logins))
    async with scripted(refusing) as broker:
        connection = await connected(broker, PLAIN)
        await connection.closed()
        with pytest.raises(RetriableError, match=r"could not be renewed: .* not you, alice"):
            await connection.ask(MetadataRequest(), MetadataResponse)
        with pytest.raises(AuthenticationFailed, match="not you, alice"):
            await connected(broker, PLAIN)


async def test_each_login_gets_a_token_of_its_own_from_a_function_or_a_coroutine_function() -> None:
    tokens = iter(["first", "second"])

    async def later() -> str:
        await asyncio.sleep(0)
        return "third"

    heard: list[bytes] = []

    def listens(token: bytes) -> bool:
        heard.append(token)
        return True

    async with scripted(partial(with_sasl, is_accepted=listens)) as broker:
        for callback in (lambda: next(tokens), lambda: next(tokens), later):
            bearer = Security("SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token=callback)
            (await connected(broker, bearer)).close()
    assert [token.split(b"Bearer ")[1].strip(b"\x01") for token in heard] == [b"first", b"second", b"third"]


async def test_a_failing_token_function_raises_a_retriable_error() -> None:
    def away() -> str:
        raise OSError("the issuer is away")

    async with scripted(with_sasl) as broker:
        bearer = Security("SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token=away)
        with pytest.raises(RetriableError, match="sasl_token raised OSError: the issuer is away"):
            await connected(broker, bearer)


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make("Test CA")


def serving(authority: Authority, folder: Path, *, hosts: tuple[str, ...] = ("127.0.0.1",)) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker", hosts).write(folder / "broker.pem"))
    return context


async def serve_login(security: Security, answers: Answers, tls: ssl.SSLContext | None) -> ScriptedBroker:
    async with scripted(answers, tls) as broker:
        connection = await connected(broker, security)
        await connection.ask(MetadataRequest(), MetadataResponse)
        connection.close()
        await connection.closed()
    return broker


async def test_tls_to_a_trusted_broker_with_and_without_a_login(authority: Authority, tmp_path: Path) -> None:
    tls = serving(authority, tmp_path)
    broker = await serve_login(Security("SSL", ssl_cadata=authority.pem), usual, tls)
    assert keys(broker) == [VERSIONS, METADATA]
    secured = Security(
        "SASL_SSL", ssl_cadata=authority.pem, sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="pw"
    )
    assert keys(await serve_login(secured, with_sasl, tls)) == [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA]


async def test_a_certificate_of_another_authority_or_another_host_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    tls = serving(authority, tmp_path, hosts=("broker.example",))
    stranger = Authority.make("Another CA")
    with pytest.raises(AuthenticationFailed, match="ssl_cafile must contain the CA"):
        await serve_login(Security("SSL", ssl_cadata=stranger.pem), usual, tls)
    with pytest.raises(AuthenticationFailed, match=r"not valid for '127.0.0.1'.*ssl_check_hostname=False"):
        await serve_login(Security("SSL", ssl_cadata=authority.pem), usual, tls)
    await serve_login(Security("SSL", ssl_cadata=authority.pem, ssl_check_hostname=False), usual, tls)


async def error_of(security: Security, serve: Callable[[socket.socket], None]) -> ClientError:
    """Connects to a server that passes the accepted socket to `serve` and then closes it. Returns the connection's
    error."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            accepted, _ = listening.accept()
            with accepted:
                serve(accepted)

        serving = asyncio.create_task(asyncio.to_thread(accept))
        port = listening.getsockname()[1]
        with pytest.raises(ClientError) as refused:
            await Connection.open("127.0.0.1", port, client_id="t", request_timeout_ms=20_000, security=security)
        await serving
    return refused.value


async def test_a_broker_that_requires_a_certificate_gets_one_or_the_client_reports_it(
    authority: Authority, tmp_path: Path
) -> None:
    tls = serving(authority, tmp_path)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=authority.pem)

    def shake_hands(accepted: socket.socket) -> None:
        """Performs a TLS handshake as asyncio does, but also sends the alert if the handshake fails."""
        with suppress(ssl.SSLError):
            tls.wrap_socket(accepted.dup(), server_side=True)
        accepted.shutdown(socket.SHUT_WR)
        while accepted.recv(1 << 16):
            pass

    refused = await error_of(Security("SSL", ssl_cadata=authority.pem), shake_hands)
    assert isinstance(refused, AuthenticationFailed)
    assert "may require a client certificate (ssl_certfile)" in str(refused)
    foreign = Authority.make("Another CA").issue("kate")
    refused = await error_of(Security("SSL", ssl_cadata=authority.pem, ssl_certdata=foreign.pem), shake_hands)
    assert isinstance(refused, AuthenticationFailed)
    assert "does not trust the certificate of this client" in str(refused)
    own = authority.issue("kate")
    await serve_login(Security("SSL", ssl_cadata=authority.pem, ssl_certdata=own.pem), usual, tls)


async def test_tls_to_a_listener_without_tls_is_reported(authority: Authority) -> None:
    """Checks that the error states that the listener does not, or may not, use TLS. One listener answers the handshake,
    and the other closes the connection because the frame seems too long."""
    security = Security("SSL", ssl_cadata=authority.pem)

    def answer(accepted: socket.socket) -> None:
        accepted.recv(1 << 16)
        accepted.sendall(b"\0\0\0\x0a\0\0\0\1\0\x23")

    def hang_up(accepted: socket.socket) -> None:
        accepted.recv(1 << 16)

    answering = await error_of(security, answer)
    assert isinstance(answering, AuthenticationFailed)
    assert "its listener does not use TLS" in str(answering)
    silent = await error_of(security, hang_up)
    assert isinstance(silent, RetriableError)
    assert "closed the connection during the TLS handshake: its listener may not use TLS" in str(silent)


async def test_plain_text_to_a_tls_listener_is_named(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(RetriableError, match="security_protocol"):
        await serve_login(NO_SECURITY, usual, serving(authority, tmp_path))
