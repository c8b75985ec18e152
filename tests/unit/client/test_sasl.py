"""Tests the client's messages in a SASL exchange, for each mechanism."""

from __future__ import annotations

import pytest

from odradek.client.security.sasl import OAuthBearerExchange, PlainExchange, SaslError, ScramExchange
from odradek.protocol.scram import ScramMechanism

# The example in RFC 7677, section 3: user "user", password "pencil"
NONCE = "rOprNGfwEbeRWgbNEkqO"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> ScramExchange:
    return ScramExchange(ScramMechanism.SHA_256, "user", "pencil", NONCE)


def test_plain_says_user_and_password_and_is_done() -> None:
    exchange = PlainExchange("jürgen", "pässword")
    assert exchange.initial_response() == "\0jürgen\0pässword".encode()
    assert exchange.answer(b"") is None


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("a\0b", "x"), ("a", "x\0")])
def test_plain_cannot_carry_a_nul_or_no_name(user: str, password: str) -> None:
    with pytest.raises(ValueError, match="PLAIN"):
        PlainExchange(user, password)


def test_scram_proves_the_password_and_verifies_that_the_server_knows_it() -> None:
    exchange = scram()
    assert exchange.initial_response() == CLIENT_FIRST
    assert exchange.answer(SERVER_FIRST) == CLIENT_FINAL
    assert exchange.answer(SERVER_FINAL) is None


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    exchange = scram()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(SaslError, match="could not prove that it knows the password"):
        exchange.answer(b"v=" + b"A" * 43 + b"=")


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "not the SCRAM first message"),
        (SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), "1000001 iterations"),
    ],
)
def test_a_first_answer_that_is_weak_costly_or_for_another_login_is_refused(challenge: bytes, why: str) -> None:
    with pytest.raises(SaslError, match=why):
        scram().answer(challenge)


def test_the_error_of_a_scram_server_is_raised() -> None:
    exchange = scram()
    exchange.answer(SERVER_FIRST)
    with pytest.raises(SaslError, match="invalid-proof"):
        exchange.answer(b"e=invalid-proof")


def test_a_scram_server_that_goes_on_is_refused() -> None:
    exchange = scram()
    exchange.answer(SERVER_FIRST)
    exchange.answer(SERVER_FINAL)
    with pytest.raises(SaslError, match="after its final message"):
        exchange.answer(b"")


def test_a_delegation_token_logs_in_with_an_extension() -> None:
    exchange = ScramExchange(ScramMechanism.SHA_512, "id", "hmac", "x", {"tokenauth": "true"})
    assert exchange.initial_response() == b"n,,n=id,r=x,tokenauth=true"
    with pytest.raises(ValueError, match="invalid name or value"):
        ScramExchange(ScramMechanism.SHA_512, "id", "hmac", "x", {"a": "b,c"})


def test_a_bearer_token_goes_with_its_extensions() -> None:
    exchange = OAuthBearerExchange("a.b.c", {"logicalCluster": "lkc-1"})
    assert exchange.initial_response() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    assert exchange.answer(b"") is None


def test_a_refused_token_is_acknowledged_so_that_the_broker_returns_the_reason() -> None:
    exchange = OAuthBearerExchange("a.b.")
    assert exchange.answer(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslError, match="invalid_token"):
        exchange.answer(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ü"])
def test_an_invalid_bearer_token_is_not_sent(token: str) -> None:
    with pytest.raises(ValueError, match="bearer token"):
        OAuthBearerExchange(token)


@pytest.mark.parametrize("extension", [{"auth": "x"}, {"a1": "x"}, {"a": "\x01"}, {"a": ""}])
def test_an_extension_that_would_be_read_as_something_else_is_not_sent(extension: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="invalid name or value"):
        OAuthBearerExchange("a.b.c", extension)
