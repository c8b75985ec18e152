"""Tests the states of a connection to a SASL listener (docs/spec/security.md#s2-1)."""

import logging

import pytest

from odradek.broker.security.sasl.tables import KINDS, NEXT, TABLE, SaslAction, State, action_for
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.peer import Handler, Peer, server_with
from tests.support.sasl_scene import ALICE, API_VERSIONS, AUTHENTICATION_TIMEOUT_MS, MAX_RECEIVE_BYTES, Client, Listener

HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
AUTHENTICATE = SaslAuthenticateRequest(auth_bytes=ALICE)
ILLEGAL_STATE = 34


@pytest.fixture
async def listener() -> Listener:
    return Listener()


@pytest.fixture
async def client(listener: Listener) -> Client:
    return listener.connect()


@pytest.mark.parametrize("version", range(5))
def test_scenario_033_api_versions_comes_first_and_once(client: Client, version: int) -> None:
    answer = client.api_versions(version)
    assert answer.error_code == 0
    assert {17, 36} <= {row.api_key for row in answer.api_keys}
    client.peer.ask(API_VERSIONS, version)
    assert client.is_closed_at_once()


def test_scenario_034_an_api_versions_that_is_refused_may_be_followed_by_another(client: Client) -> None:
    unknown_version = bytearray(request_bytes(API_VERSIONS, 3, 0, "test"))
    unknown_version[6:8] = (99).to_bytes(2, "big")
    client.peer.send(bytes(unknown_version))
    answer = client.peer.answer(ApiKey.API_VERSIONS, 0)
    assert answer.error_code == 35
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 5)]
    bad_name = ApiVersionsRequest(client_software_name="bad name", client_software_version="1")
    assert client.ask(bad_name, 3).error_code == 42
    assert client.api_versions().error_code == 0


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("after_api_versions", [False, True])
def test_scenario_035_a_handshake_is_answered_with_the_mechanisms(
    client: Client, version: int, after_api_versions: bool
) -> None:
    if after_api_versions:
        client.api_versions()
    answer = client.handshake(version=version)
    assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN"])


@pytest.mark.parametrize("mechanism", ["plain", "GSSAPI", "", "SCRAM-SHA-256"])
def test_scenario_036_another_mechanism_is_refused_after_the_delay(client: Client, mechanism: str) -> None:
    answer = client.failure(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN"])


@pytest.mark.parametrize("after_api_versions", [False, True])
@pytest.mark.parametrize(
    "frame",
    [
        request_bytes(MetadataRequest(topics=[]), 12, 0, "test"),
        request_bytes(AUTHENTICATE, 2, 0, "test"),
        bytes(4),
        b"\0\0\0\1\0",
        b"\0\0\0\x0a\x7f\0\0\0\0\0\0\0\xff\xff",  # an unknown API key
        b"\0\0\0\x0a\0\x11\0\x09\0\0\0\0\xff\xff",  # SaslHandshake v9
        b"\0\0\0\x0a\0\x11\0\x01\0\0\0\0\xff\xff",  # SaslHandshake v1 without a body
    ],
    ids=["Metadata", "SaslAuthenticate", "empty", "one byte", "unknown key", "unknown version", "no body"],
)
def test_scenario_037_anything_else_before_the_handshake_closes_at_once(
    client: Client, frame: bytes, after_api_versions: bool
) -> None:
    if after_api_versions:
        client.api_versions()
    client.peer.send(frame)
    assert client.is_closed_at_once()


@pytest.mark.parametrize("version", range(3))
def test_scenario_038_the_last_token_is_answered_without_an_error_and_without_null(
    client: Client, version: int
) -> None:
    client.handshake()
    answer = client.authenticate(ALICE, version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert client.info.principal == "User:alice"
    assert client.is_served()


def test_scenario_039_another_request_during_the_exchange_gets_an_error_in_its_own_form(listener: Listener) -> None:
    for message, version in ((API_VERSIONS, 3), (HANDSHAKE, 1), (ListGroupsRequest(), 4)):
        client = listener.connect()
        client.handshake()
        assert client.failure(message, version).error_code == ILLEGAL_STATE
    client = listener.connect()
    client.handshake()
    topics = client.failure(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [("t", ILLEGAL_STATE)]


def test_scenario_040_a_token_without_a_header_after_handshake_v1_closes_at_once(client: Client) -> None:
    client.handshake()
    client.send_raw(ALICE)
    assert client.is_closed_at_once()


def test_scenario_041_after_handshake_v0_tokens_have_no_header(listener: Listener) -> None:
    client = listener.connect()
    client.handshake(version=0)
    client.send_raw(ALICE)
    assert client.peer.frames() == [b""]
    assert client.info.principal == "User:alice"
    assert client.is_served()


@pytest.mark.parametrize("token", [b"\0alice\0wrong", request_bytes(AUTHENTICATE, 1, 0, "test")[4:], b""])
def test_scenario_041_a_token_without_a_header_that_fails_is_answered_with_nothing(
    client: Client, token: bytes
) -> None:
    client.handshake(version=0)
    client.send_raw(token)
    assert client.is_closed_after_the_delay()
    assert client.info.principal == "User:ANONYMOUS"


@pytest.mark.parametrize("size", [-1, MAX_RECEIVE_BYTES + 1, 0x16030102])
def test_scenario_042_a_frame_that_is_too_long_closes_after_the_delay(client: Client, size: int) -> None:
    client.peer.send(size.to_bytes(4, "big", signed=True) + bytes(100))
    assert client.is_closed_after_the_delay()


def test_scenario_042_a_frame_of_the_largest_size_is_read_before_authentication_and_larger_ones_after_it(
    client: Client,
) -> None:
    client.handshake(version=0)
    client.send_raw(bytes(MAX_RECEIVE_BYTES))
    assert client.is_closed_after_the_delay()


def test_scenario_042_after_authentication_frames_may_be_larger(listener: Listener) -> None:
    client = listener.logged_in()
    client.peer.send((MAX_RECEIVE_BYTES + 1).to_bytes(4, "big") + bytes(100))
    assert not client.peer.is_disconnected


async def test_scenario_043_sasl_requests_on_a_listener_without_sasl_are_refused_and_the_connection_goes_on() -> None:
    served = {
        ApiKey.SASL_HANDSHAKE: Handler(0, 1),
        ApiKey.SASL_AUTHENTICATE: Handler(0, 2),
    }
    peer = Peer(server_with(served))
    for version in (0, 1):
        peer.ask(HANDSHAKE, version)
        answer = peer.answer(ApiKey.SASL_HANDSHAKE, version)
        assert (answer.error_code, answer.mechanisms) == (ILLEGAL_STATE, [])
    for version in range(3):
        peer.ask(AUTHENTICATE, version)
        answer = peer.answer(ApiKey.SASL_AUTHENTICATE, version)
        assert (answer.error_code, answer.auth_bytes) == (ILLEGAL_STATE, b"")
    assert not peer.is_disconnected


def test_scenario_043_a_token_after_authentication_is_refused_and_the_connection_goes_on(listener: Listener) -> None:
    client = listener.logged_in()
    assert client.authenticate(ALICE).error_code == ILLEGAL_STATE
    assert client.is_served()


def test_scenario_044_a_token_after_a_failed_one_is_not_read(client: Client) -> None:
    client.handshake()
    wrong = request_bytes(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2, 1, "test")
    right = request_bytes(AUTHENTICATE, 2, 2, "test")
    client.peer.send(wrong + right)
    assert client.peer.correlation_ids() == []
    client.let_the_delay_pass()
    assert client.peer.correlation_ids() == [1]
    assert client.peer.is_disconnected
    assert client.info.principal == "User:ANONYMOUS"


def test_a_client_that_disconnects_during_the_delay_leaves_no_timer(listener: Listener) -> None:
    client = listener.connect()
    client.handshake()
    client.peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.peer.hang_up()
    assert listener.timers.armed() == []


def test_a_client_that_does_not_authenticate_is_disconnected(listener: Listener) -> None:
    idle, busy = listener.connect(), listener.logged_in()
    listener.timers.advance(AUTHENTICATION_TIMEOUT_MS)
    assert idle.peer.is_disconnected
    assert not busy.peer.is_disconnected


def test_a_failure_is_logged_with_its_reason_and_without_the_user(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.handshake()
    with caplog.at_level(logging.DEBUG):
        client.refused(b"\0alice\0secret guess")
    (line,) = caplog.messages
    assert "authentication failed (Authentication failed: Invalid username or password)" in line
    assert "127.0.0.1" in line
    assert "alice" not in line
    assert "secret guess" not in line


def test_logins_are_counted(listener: Listener) -> None:
    listener.logged_in()
    client = listener.connect()
    client.handshake()
    client.refused(b"\0alice\0wrong")
    counts = listener.requests.logins
    assert (counts.succeeded, counts.failed) == (1, 1)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_row_and_a_way_out(state: State) -> None:
    assert len(TABLE[state]) == len(KINDS)
    assert (NEXT[state] == frozenset()) == (state is State.FAILED)
    authenticated = {State.COMPLETE}
    for kind in KINDS:
        if action_for(state, kind) is SaslAction.SERVE:
            assert state in authenticated or (state, kind.name) == (State.INITIAL, "API_VERSIONS")
