"""Tests logins with SCRAM (docs/spec/security.md#s2-3)."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, replace

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.security.sasl.credential_changes import CredentialUpsertion, alter_credentials
from odradek.broker.security.sasl.credentials import ScramCredentials
from odradek.broker.security.sasl.mechanism import Challenge, Mechanism, Offer, TokenAccepted, TokenRefused
from odradek.broker.security.sasl.scram import ScramExchange, UsersOfImage
from odradek.protocol.scram import (
    ClientFirst,
    ScramMechanism,
    ServerFinal,
    ServerFirst,
    auth_message,
    client_key,
    client_proof,
    salted_password,
    server_key,
    server_signature,
)
from tests.support.metadata import decided
from tests.support.sasl_scene import Listener

SHA_256, SHA_512 = ScramMechanism
PASSWORD = "open sesame"
SALT = b"salt of alice"
NONCE = "client's-nonce"
KEY = b"secret of this broker"


def image_with(*users: str, mechanism: ScramMechanism = SHA_256, iterations: int = 4096) -> MetadataImage:
    image = MetadataImage()
    for user in users:
        salted = salted_password(mechanism, PASSWORD.encode(), SALT, iterations)
        change = CredentialUpsertion(user, mechanism.value, iterations, SALT, salted)
        _, records = decided(alter_credentials(image.scram_credentials, [change]))
        for record in records:
            image.replay(record)
    return image


def exchange(*users: str, mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    credentials = image_with(*users, mechanism=mechanism).scram_credentials
    return ScramExchange(mechanism, UsersOfImage(mechanism, lambda: credentials), KEY, lambda: "server's-nonce")


@dataclass
class Dialogue:
    """A client that logs in with a password, and the broker's messages to the client."""

    mechanism: ScramMechanism
    first: ClientFirst
    server_first: ServerFirst

    def final(self, password: str = PASSWORD, *, channel: str = "biws", nonce: str = "", extensions: str = "") -> bytes:
        unproven = f"c={channel},r={nonce or self.server_first.nonce}{extensions}"
        salted = self._salted(password)
        proof = client_proof(self.mechanism, client_key(self.mechanism, salted), self._signed(unproven))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def server_final(self, password: str = PASSWORD) -> bytes:
        unproven = f"c=biws,r={self.server_first.nonce}"
        key = server_key(self.mechanism, self._salted(password))
        return ServerFinal(server_signature(self.mechanism, key, self._signed(unproven))).text.encode()

    def _salted(self, password: str) -> bytes:
        return salted_password(self.mechanism, password.encode(), self.server_first.salt, self.server_first.iterations)

    def _signed(self, unproven: str) -> bytes:
        return auth_message(self.first.bare, self.server_first.text, unproven)


def begin(server: Mechanism, first: ClientFirst, mechanism: ScramMechanism = SHA_256) -> Dialogue:
    verdict = server.judge(first.text.encode(), 0)
    assert isinstance(verdict, Challenge)
    return Dialogue(mechanism, first, ServerFirst.parse(verdict.token))


def is_refused(server: Mechanism, token: bytes) -> bool:
    verdict = server.judge(token, 0)
    return isinstance(verdict, TokenRefused) and "alice" not in verdict.message


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scenario_050_the_right_password_is_accepted(mechanism: ScramMechanism, user: str) -> None:
    server = exchange(user, mechanism=mechanism)
    dialogue = begin(server, ClientFirst.make(user, NONCE), mechanism)
    assert dialogue.server_first.iterations == 4096
    assert server.judge(dialogue.final(), 0) == TokenAccepted(user, dialogue.server_final())


def test_scenario_051_a_wrong_password_is_refused_at_the_proof() -> None:
    server = exchange("alice")
    dialogue = begin(server, ClientFirst.make("alice", NONCE))
    verdict = server.judge(dialogue.final("wrong"), 0)
    assert isinstance(verdict, TokenRefused)
    assert verdict.message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-256")


def test_scenario_052_and_058_an_unknown_user_is_refused_at_the_proof_as_well() -> None:
    without = image_with("bob", mechanism=SHA_512).scram_credentials  # bob has no credential for SHA-256.
    other = ScramExchange(SHA_256, UsersOfImage(SHA_256, lambda: without), KEY, lambda: "server's-nonce")
    for server in (exchange("alice"), other):
        dialogue = begin(server, ClientFirst.make("bob", NONCE))
        known = exchange("bob")
        expected = known.judge(begin(known, ClientFirst.make("bob", NONCE)).final("wrong"), 0)
        assert server.judge(dialogue.final(), 0) == expected


def test_scenario_058_an_unknown_user_always_gets_the_same_salt() -> None:
    first, again, other = (begin(exchange(), ClientFirst.make(user, NONCE)) for user in ("bob", "bob", "carol"))
    assert first.server_first.salt == again.server_first.salt != other.server_first.salt
    assert (len(first.server_first.salt), first.server_first.iterations) == (26, 4096)
    by_sha_512 = begin(exchange(mechanism=SHA_512), ClientFirst.make("bob", NONCE), SHA_512)
    assert by_sha_512.server_first.salt != first.server_first.salt


def test_scenario_053_an_authorization_id_must_be_the_user() -> None:
    server = exchange("alice")
    same = begin(server, ClientFirst.make("alice", NONCE, authorization_id="alice"))
    assert isinstance(server.judge(same.final(channel="bixhPWFsaWNlLA=="), 0), TokenAccepted)
    other = exchange("alice").judge(ClientFirst.make("alice", NONCE, authorization_id="bob").text.encode(), 0)
    assert isinstance(other, TokenRefused)
    assert "authorization id" in other.message


@pytest.mark.parametrize(
    "token",
    [
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice,r=abc,=x",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=",
        b"",
        b"\xff\xfe",
        b"garbage",
    ],
)
def test_scenario_054_a_first_message_that_cannot_be_read_is_refused(token: bytes) -> None:
    assert is_refused(exchange("alice"), token)


@pytest.mark.parametrize("extensions", [{"tokenauth": "false"}, {"unknown": "value"}])
def test_scenario_055_other_extensions_are_ignored(extensions: dict[str, str]) -> None:
    server = exchange("alice")
    dialogue = begin(server, ClientFirst.make("alice", NONCE, extensions=extensions))
    assert isinstance(server.judge(dialogue.final(), 0), TokenAccepted)


def test_scenario_055_a_reserved_field_is_ignored() -> None:
    server = exchange("alice")
    assert isinstance(server.judge(f"n,,m=x,n=alice,r={NONCE}".encode(), 0), Challenge)


def test_scenario_056_a_final_message_with_a_wrong_or_unreadable_nonce_is_refused() -> None:
    for make in (
        lambda dialogue: dialogue.final(nonce="another"),
        lambda dialogue: b"c=biws,r=" + dialogue.server_first.nonce.encode(),
        lambda dialogue: dialogue.final()[:-2] + b"!!",
        lambda dialogue: b"",
    ):
        server = exchange("alice")
        assert is_refused(server, make(begin(server, ClientFirst.make("alice", NONCE))))


def test_scenario_057_only_the_proof_counts_and_not_the_channel_binding() -> None:
    server = exchange("alice")
    dialogue = begin(server, ClientFirst.make("alice", NONCE))
    assert isinstance(server.judge(dialogue.final(channel="AAAA"), 0), TokenAccepted)


def test_scenario_059_names_outside_ascii_can_log_in() -> None:
    server = exchange("jürgen")
    dialogue = begin(server, ClientFirst.make("jürgen", NONCE))
    assert server.judge(dialogue.final(), 0) == TokenAccepted("jürgen", dialogue.server_final())


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scenario_060_a_proof_of_the_wrong_length_is_refused_as_a_wrong_one(user: str) -> None:
    server = exchange("alice")
    dialogue = begin(server, ClientFirst.make(user, NONCE))
    assert is_refused(server, f"c=biws,r={dialogue.server_first.nonce},p=AAAA".encode())


def test_a_credential_that_is_removed_between_the_messages_still_ends_this_exchange() -> None:
    image = image_with("alice")
    server = ScramExchange(SHA_256, UsersOfImage(SHA_256, lambda: image.scram_credentials), KEY, lambda: "n")
    dialogue = begin(server, ClientFirst.make("alice", NONCE))
    image.scram_credentials.by_user.clear()
    assert isinstance(server.judge(dialogue.final(), 0), TokenAccepted)


def test_iterations_of_a_record_cost_a_login_nothing() -> None:
    """Checks that a login with 2³¹ - 1 iterations is cheap for the broker. Kafka's formatting tool accepts any number
    of iterations, but only the client spends CPU time on them."""
    credentials = ScramCredentials()
    image = image_with("alice")
    credential = image.scram_credentials.find("alice", SHA_256.value)
    assert credential is not None
    credentials.by_user["alice"] = {SHA_256.value: replace(credential, iterations=2**31 - 1)}
    server = ScramExchange(SHA_256, UsersOfImage(SHA_256, lambda: credentials), KEY, lambda: "n")
    dialogue = begin(server, ClientFirst.make("alice", NONCE))
    assert dialogue.server_first.iterations == 2**31 - 1
    assert is_refused(server, f"c=biws,r={dialogue.server_first.nonce},p=AAAA".encode())


async def test_a_login_over_the_wire_ends_as_the_user_and_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    image = image_with("alice")
    identities = UsersOfImage(SHA_256, lambda: image.scram_credentials)
    offer = Offer(lambda: ScramExchange(SHA_256, identities, KEY, lambda: "n"))
    listener = Listener({"SCRAM-SHA-256": offer}, image=image)
    with caplog.at_level(logging.DEBUG):
        client = listener.connect()
        client.handshake("SCRAM-SHA-256")
        first = ClientFirst.make("alice", NONCE)
        answer = client.authenticate(first.text.encode())
        assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, "", 0)
        dialogue = Dialogue(SHA_256, first, ServerFirst.parse(answer.auth_bytes))
        answer = client.authenticate(dialogue.final())
        assert (answer.error_code, answer.auth_bytes) == (0, dialogue.server_final())
        assert client.info.principal == "User:alice"
        assert client.is_served()
        failing = listener.connect()
        failing.handshake("SCRAM-SHA-256")
        failing.authenticate(first.text.encode())
        assert "SCRAM-SHA-256" in failing.refused(dialogue.final("wrong"))
    credential = image.scram_credentials.find("alice", SHA_256.value)
    assert credential is not None
    assert not any(secret in caplog.text for secret in (PASSWORD, str(credential.stored_key), "alice"))
    assert str(credential.stored_key) not in repr(credential) + repr(identities.user("alice"))
