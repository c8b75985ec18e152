"""Tests sessions that expire, and re-authentication on an open connection (docs/spec/security.md#s2-5)."""

from __future__ import annotations

import pytest

from odradek.broker.security.sasl.mechanism import Offer, TokenAccepted, Verdict
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.sasl_scene import ALICE, API_VERSIONS, BOB, NOW_MS, Client, Listener, plain_offer

LIFETIME_MS = 3_000
TOKEN_LIFETIME_MS = 2_000


class Ticket:
    """A mechanism that accepts every token as a user name. The user's session expires."""

    def judge(self, token: bytes, now_ms: int) -> Verdict:
        return TokenAccepted(token.decode(), expires_at_ms=NOW_MS + TOKEN_LIFETIME_MS)


@pytest.fixture
async def listener() -> Listener:
    return Listener({"PLAIN": plain_offer(LIFETIME_MS), "TICKET": Offer(Ticket), "SHORT": Offer(Ticket, 500)})


@pytest.fixture
async def client(listener: Listener) -> Client:
    return listener.logged_in()


def wait(listener: Listener, ms: int) -> None:
    listener.timers.advance(ms)


@pytest.mark.parametrize(("version", "lifetime_ms"), [(0, 0), (1, LIFETIME_MS), (2, LIFETIME_MS)])
def test_scenario_085_the_last_response_has_the_lifetime_of_the_session(
    listener: Listener, version: int, lifetime_ms: int
) -> None:
    client = listener.connect()
    client.handshake()
    assert client.authenticate(ALICE, version).session_lifetime_ms == lifetime_ms


@pytest.mark.parametrize(("mechanism", "lifetime_ms"), [("TICKET", TOKEN_LIFETIME_MS), ("SHORT", 500)])
def test_scenario_085_the_earlier_of_two_ends_counts(listener: Listener, mechanism: str, lifetime_ms: int) -> None:
    client = listener.connect()
    client.handshake(mechanism)
    assert client.authenticate(b"alice").session_lifetime_ms == lifetime_ms


def test_scenario_086_authenticating_again_renews_the_session(listener: Listener, client: Client) -> None:
    for _ in range(3):
        wait(listener, LIFETIME_MS - 1)
        assert client.handshake().error_code == 0
        assert client.authenticate(ALICE).session_lifetime_ms == LIFETIME_MS
    wait(listener, LIFETIME_MS - 1)
    assert client.is_served()
    assert listener.requests.logins.succeeded_again == 3


@pytest.mark.parametrize("ahead_ms", [-3 * 3_600_000, 3_600_000])
def test_a_session_neither_ends_nor_lasts_when_somebody_sets_the_clock(
    listener: Listener, client: Client, ahead_ms: int
) -> None:
    """Checks that changes to the system clock do not affect a session, because the broker, like Kafka, measures
    sessions with a monotonic clock."""
    client.handshake()
    client.authenticate(ALICE)
    listener.clock.set(listener.clock.now_ms() + ahead_ms)
    wait(listener, LIFETIME_MS - 1)
    assert client.is_served()
    assert client.handshake().error_code == 0
    assert client.authenticate(ALICE).session_lifetime_ms == LIFETIME_MS
    wait(listener, LIFETIME_MS)
    client.peer.ask(API_VERSIONS, 3)
    assert client.is_closed_at_once()


def test_scenario_087_another_request_in_between_closes(client: Client) -> None:
    client.handshake()
    client.peer.ask(API_VERSIONS, 3)
    assert client.is_closed_at_once()


def test_scenario_088_a_wrong_password_is_refused_after_the_delay(listener: Listener, client: Client) -> None:
    client.handshake()
    assert "Invalid username or password" in client.refused(b"\0alice\0wrong")
    assert listener.requests.logins.failed_again == 1


def test_scenario_089_another_user_is_refused_after_the_delay(client: Client) -> None:
    client.handshake()
    message = client.refused(BOB)
    assert "alice" in message
    assert "bob" in message
    assert client.info.principal == "User:alice"


def test_scenario_090_another_mechanism_closes_at_the_next_token(client: Client) -> None:
    assert client.handshake("TICKET").error_code == 0
    client.peer.ask(SaslAuthenticateRequest(auth_bytes=b"alice"), 2)
    assert client.is_closed_at_once()


def test_scenario_090_a_mechanism_that_is_not_enabled_closes_at_once(client: Client) -> None:
    client.peer.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert client.is_closed_at_once()


def test_scenario_091_after_handshake_v0_tokens_have_no_header(listener: Listener) -> None:
    client = listener.logged_in()
    client.handshake(version=0)
    client.send_raw(ALICE)
    assert client.peer.frames() == [b""]
    assert client.is_served()
    other = listener.logged_in()
    other.handshake(version=0)
    other.peer.ask(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert other.is_closed_after_the_delay()


def test_scenario_092_a_second_reauthentication_within_a_second_is_refused_and_the_connection_continues(
    listener: Listener, client: Client
) -> None:
    for token in (ALICE, ALICE):
        client.handshake()
        client.authenticate(token)
        assert client.handshake().error_code == 34
        assert client.is_served()
        wait(listener, 1_000)


def test_scenario_093_the_first_request_after_the_end_closes(listener: Listener) -> None:
    for late_ms, message in ((0, API_VERSIONS), (60_000, API_VERSIONS), (1, SaslAuthenticateRequest(auth_bytes=ALICE))):
        client = listener.logged_in()
        wait(listener, LIFETIME_MS + late_ms)
        client.peer.ask(message, 2)
        assert client.is_closed_at_once()
    assert listener.requests.logins.expired == 3


def test_scenario_094_a_connection_that_asks_for_nothing_stays(listener: Listener, client: Client) -> None:
    wait(listener, 100 * LIFETIME_MS)
    assert not client.peer.is_disconnected


def test_scenario_095_a_late_handshake_is_accepted(listener: Listener, client: Client) -> None:
    wait(listener, 2 * LIFETIME_MS)
    assert client.handshake().error_code == 0
    assert client.authenticate(ALICE).error_code == 0
    assert client.is_served()


@pytest.mark.parametrize("is_raw", [False, True])
def test_scenario_096_a_client_whose_protocol_has_no_session_lifetime_is_closed_too(
    listener: Listener, is_raw: bool
) -> None:
    client = listener.connect()
    client.handshake(version=0 if is_raw else 1)
    if is_raw:
        client.send_raw(ALICE)
        client.peer.frames()
    else:
        client.authenticate(ALICE, 0)
    wait(listener, LIFETIME_MS)
    client.peer.ask(API_VERSIONS, 3)
    assert client.is_closed_at_once()


def test_a_new_credential_of_the_same_user_renews_the_session_too(listener: Listener) -> None:
    client = listener.logged_in(b"alice", "TICKET")
    wait(listener, TOKEN_LIFETIME_MS + 1)
    client.handshake("TICKET")
    assert client.authenticate(b"alice").session_lifetime_ms == 1
