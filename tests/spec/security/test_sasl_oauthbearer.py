"""Tests logins with OAUTHBEARER (docs/spec/security.md#s2-4)."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from odradek.broker.security.sasl.mechanism import Challenge, Offer, TokenAccepted, TokenRefused
from odradek.broker.security.sasl.oauthbearer import ClaimRules, OAuthBearerExchange, UnsecuredValidator
from odradek.broker.security.sasl.tokens_signed import InvalidKeySet, SignedValidator, read_key_set
from tests.support.sasl_scene import NOW_MS, Listener

NOW_S = NOW_MS // 1000
SKEW_S = 30
INVALID = '{"status":"invalid_token"}'
END = b"\x01"
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
SIGNED_CLAIMS = CLAIMS | {"aud": "kafka", "iss": "https://issuer"}
Exchange = OAuthBearerExchange


def first(token: str, *, authorization_id: str = "", scheme: str = "Bearer", more: str = "") -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},\x01auth={scheme} {token}\x01{more}\x01".encode()


def encoded(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsecured_token(header: object = None, **claims: Any) -> str:
    present = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return f"{encoded({'alg': 'none'} if header is None else header)}.{encoded(present)}."


def unsecured(rules: ClaimRules | None = None) -> Exchange:
    return OAuthBearerExchange(UnsecuredValidator(rules or ClaimRules()))


def refusal_of(exchange: Exchange, token: bytes) -> str:
    """Returns the JSON of the challenge that refuses a token. The exchange then ends with the same JSON."""
    challenge = exchange.judge(token, NOW_MS)
    assert isinstance(challenge, Challenge)
    assert exchange.judge(END, NOW_MS) == TokenRefused(challenge.token.decode())
    return challenge.token.decode()


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_set(*more: object) -> bytes:
    keys: list[object] = [
        {**json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key())), "kid": "rsa", "use": "sig"},
        {**json.loads(ECAlgorithm.to_jwk(ec_key().public_key())), "kid": "ec"},
    ]
    return json.dumps({"keys": keys + list(more)}).encode()


SIGNED_RULES = ClaimRules(
    skew_ms=SKEW_S * 1000,
    needs_issued_at=True,
    checks_not_before=True,
    audience=("kafka", "other"),
    issuer="https://issuer",
    refuses_repeated_scope=True,
)


def signed(rules: ClaimRules = SIGNED_RULES, key_missed: Callable[[], None] = lambda: None) -> Exchange:
    keys = read_key_set(key_set())
    return OAuthBearerExchange(SignedValidator(lambda: keys, key_missed, rules))


def signed_token(algorithm: str = "RS256", kid: str | None = "rsa", key: Any = None, **claims: Any) -> str:
    present = {name: value for name, value in (SIGNED_CLAIMS | claims).items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    signer = key or (ec_key() if algorithm.startswith("ES") else rsa_key())
    return jwt.encode(present, signer, algorithm, headers)


def test_scenario_072_a_good_unsecured_token_is_accepted_until_it_expires() -> None:
    accepted = TokenAccepted("alice", expires_at_ms=(NOW_S + 60) * 1000)
    assert unsecured().judge(first(unsecured_token()), NOW_MS) == accepted
    assert unsecured().judge(first(unsecured_token(), scheme="bEaReR", authorization_id="alice"), NOW_MS) == accepted
    assert unsecured().judge(first(unsecured_token(), more="traceid=12\x01"), NOW_MS) == accepted


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256"])
@pytest.mark.parametrize("has_key_id", [True, False])
@pytest.mark.parametrize("claims", [{}, {"aud": ["x", "other"]}, {"scope": "a b"}, {"scope": ["a", "b"]}])
def test_scenario_072_a_good_signed_token_is_accepted(algorithm: str, has_key_id: bool, claims: dict[str, Any]) -> None:
    key_id = ("ec" if algorithm.startswith("ES") else "rsa") if has_key_id else None
    verdict = signed().judge(first(signed_token(algorithm, key_id, **claims)), NOW_MS)
    assert verdict == TokenAccepted("alice", expires_at_ms=(NOW_S + 60) * 1000)


@pytest.mark.parametrize("claims", [{"exp": None}, {"sub": None}, {"sub": ""}, {"sub": " "}, {"sub": 7}])
def test_scenario_073_expiry_and_subject_are_needed(claims: dict[str, Any]) -> None:
    assert refusal_of(unsecured(), first(unsecured_token(**claims))) == INVALID
    if claims.get("sub") != 7:  # PyJWT cannot write a subject that is a number.
        assert refusal_of(signed(), first(signed_token(**claims))) == INVALID


def test_scenario_074_the_time_of_issue_is_needed_in_signed_tokens() -> None:
    assert isinstance(unsecured().judge(first(unsecured_token(iat=None)), NOW_MS), TokenAccepted)
    assert refusal_of(signed(), first(signed_token(iat=None))) == INVALID


@pytest.mark.parametrize(("late_s", "is_accepted"), [(0, True), (SKEW_S - 1, True), (SKEW_S, False), (1_000, False)])
def test_scenario_075_a_signed_token_may_be_late_by_the_skew_of_clocks(late_s: int, is_accepted: bool) -> None:
    token = first(signed_token(exp=NOW_S - late_s, iat=NOW_S - 2_000))
    assert isinstance(signed().judge(token, NOW_MS), TokenAccepted) is is_accepted
    assert refusal_of(unsecured(), first(unsecured_token(exp=NOW_S - late_s, iat=NOW_S - 2_000))) == INVALID


async def test_scenario_075_a_token_that_is_late_gets_a_session_that_ends_and_not_one_without_end() -> None:
    listener = Listener({"OAUTHBEARER": Offer(signed)})
    client = listener.connect()
    client.handshake("OAUTHBEARER")
    answer = client.authenticate(first(signed_token(exp=NOW_S - 5, iat=NOW_S - 2_000)))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 1)


@pytest.mark.parametrize(
    "claims",
    [{"iat": NOW_S + 31}, {"iat": NOW_S + 60}, {"exp": NOW_S - 10}, {"exp": "soon"}, {"iat": "now"}, {"exp": True}],
)
def test_scenario_076_times_that_contradict_one_another_are_refused(claims: dict[str, Any]) -> None:
    assert refusal_of(unsecured(), first(unsecured_token(**claims))) == INVALID


def test_scenario_076_a_signed_token_may_not_be_used_before_its_time() -> None:
    assert isinstance(unsecured().judge(first(unsecured_token(nbf=NOW_S + 50)), NOW_MS), TokenAccepted)
    assert refusal_of(signed(), first(signed_token(nbf=NOW_S + 50))) == INVALID
    assert refusal_of(signed(), first(signed_token(iat=NOW_S + 50))) == INVALID


@pytest.mark.parametrize("header", [{"alg": "HS256"}, {"alg": "RS256"}, {}, {"alg": None}, {"alg": ["none"]}, []])
def test_scenario_077_an_unsecured_token_says_that_it_is_unsigned(header: object) -> None:
    assert refusal_of(unsecured(), first(unsecured_token(header))) == INVALID


def test_scenario_077_an_unsecured_token_with_a_signature_is_refused() -> None:
    assert refusal_of(unsecured(), first(unsecured_token() + "c2ln")) == INVALID


def test_scenario_077_a_signed_token_needs_a_signature_of_a_known_key() -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    public_pem = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    as_if_shared = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(SIGNED_CLAIMS)}"
    head, claims, signature = signed_token().split(".")
    for token in (
        unsecured_token(),
        f"{encoded({'alg': 'none', 'kid': 'rsa'})}.{claims}.",
        f"{as_if_shared}.{encoded(hmac.digest(public_pem, as_if_shared.encode(), 'sha256'))}",
        signed_token(kid="unknown"),
        signed_token(key=stranger),
        signed_token("ES256", "rsa"),
        f"{head}.{claims}.{signature[:-8]}AAAAAAAA",
        f"{head}.{claims}.",
        f"{head}.{encoded(SIGNED_CLAIMS | {'sub': 'root'})}.{signature}",
    ):
        assert refusal_of(signed(), first(token)) == INVALID


@pytest.mark.parametrize(
    "claims", [{"aud": "x"}, {"aud": None}, {"aud": []}, {"aud": ["x"]}, {"iss": "y"}, {"iss": None}]
)
def test_scenario_078_audience_and_issuer_must_be_the_expected_ones(claims: dict[str, Any]) -> None:
    assert refusal_of(signed(), first(signed_token(**claims))) == INVALID
    assert isinstance(unsecured().judge(first(unsecured_token(**claims)), NOW_MS), TokenAccepted)


def test_scenario_079_a_scope_that_is_listed_twice_is_refused() -> None:
    assert refusal_of(signed(), first(signed_token(scope=["a", "b", "a"]))) == INVALID


@pytest.mark.parametrize("make", [unsecured, signed])
@pytest.mark.parametrize("token", ["a~b.c.d", "+.+.+", "ab=c.x.y", "e30.e30.a"])
def test_scenario_080_a_token_that_is_not_base64_ends_the_exchange(make: Callable[[], Exchange], token: str) -> None:
    assert isinstance(make().judge(first(token), NOW_MS), TokenRefused)


@pytest.mark.parametrize("make", [unsecured, signed])
@pytest.mark.parametrize(
    "token", ["e30.e30", "e30", "e30.e30.e30.e30", "aaaa.bbbb.", f"{encoded(b'[1]')}.e30.", "..", "W10.W10."]
)
def test_scenario_081_a_malformed_token_is_refused(make: Callable[[], Exchange], token: str) -> None:
    assert refusal_of(make(), first(token)) == INVALID


@pytest.mark.parametrize(("make", "token"), [(unsecured, unsecured_token), (signed, signed_token)])
def test_scenario_082_another_authorization_id_is_refused(
    make: Callable[[], Exchange], token: Callable[[], str]
) -> None:
    assert isinstance(make().judge(first(token(), authorization_id="bob"), NOW_MS), TokenRefused)


@pytest.mark.parametrize(
    "message",
    [
        first(unsecured_token(), more="auth=Bearer x\x01"),
        first(unsecured_token(), more="a b=c\x01"),
        first(unsecured_token()).replace(b"n,", b"y,", 1),
        b"",
        b"garbage",
        END,
        b"\xff",
        b"n,,\x01\x01",
    ],
)
def test_scenario_083_a_message_that_cannot_be_read_ends_the_exchange(message: bytes) -> None:
    assert isinstance(unsecured().judge(message, NOW_MS), TokenRefused)


def test_scenario_084_another_scheme_ends_the_exchange() -> None:
    assert isinstance(unsecured().judge(first(unsecured_token(), scheme="Basic"), NOW_MS), TokenRefused)


def test_a_valid_token_after_a_refused_one_is_accepted_a_limited_number_of_times() -> None:
    exchange = unsecured()
    assert isinstance(exchange.judge(first(unsecured_token(exp=1)), NOW_MS), Challenge)
    assert isinstance(exchange.judge(first(unsecured_token()), NOW_MS), TokenAccepted)
    exchange = unsecured()
    verdicts = [exchange.judge(first(unsecured_token(exp=1)), NOW_MS) for _ in range(3)]
    assert [type(verdict) for verdict in verdicts] == [Challenge, Challenge, TokenRefused]


def test_a_scope_that_is_missing_is_named() -> None:
    rules = ClaimRules(required_scope=("read", "write"))
    assert isinstance(unsecured(rules).judge(first(unsecured_token(scope="write read more")), NOW_MS), TokenAccepted)
    assert refusal_of(unsecured(rules), first(unsecured_token(scope=["read"]))) == (
        '{"status":"insufficient_scope","scope":"read write"}'
    )


async def test_a_login_over_the_wire_lasts_as_long_as_its_token_and_no_token_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener({"OAUTHBEARER": Offer(unsecured)})
    with caplog.at_level(logging.DEBUG):
        client = listener.connect()
        client.handshake("OAUTHBEARER")
        answer = client.authenticate(first(unsecured_token()))
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 60_000)
        assert client.info.principal == "User:alice"
        refused, bad = listener.connect(), unsecured_token(exp=1)
        refused.handshake("OAUTHBEARER")
        assert refused.authenticate(first(bad)).auth_bytes == INVALID.encode()
        assert refused.refused(END) == INVALID
    assert bad.split(".")[1] not in caplog.text
    assert unsecured_token().split(".")[1] not in caplog.text


def test_keys_that_verify_nothing_are_passed_over() -> None:
    useless: list[object] = [{"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256"}, 7]
    useless.append({**json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key())), "use": "enc"})
    assert len(read_key_set(key_set(*useless))) == 2
    assert read_key_set(b'{"keys": []}') == ()
    assert read_key_set(json.dumps({"keys": [useless[0], useless[-1]]}).encode()) == ()
    for text in (b"", b"[]", b"{}", b'{"keys": 7}', json.dumps({"keys": useless}).encode()):
        with pytest.raises(InvalidKeySet):
            read_key_set(text)


def test_a_token_with_an_unknown_key_asks_for_new_ones() -> None:
    requests: list[bool] = []
    signed(key_missed=lambda: requests.append(True)).judge(first(signed_token(kid="new")), NOW_MS)
    assert requests == [True]
