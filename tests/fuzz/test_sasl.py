"""Tests that a peer that sends mutated SASL frames causes no exception, gets only small responses, and is not
authenticated unless it knows the secret.

The frames come from dialogues for each mechanism, one with the right secret and one with a wrong one. One frame of each
dialogue is mutated, omitted, repeated, replaced, or preceded by another request. The environment variable FUZZ sets the
number of executions per dialogue, and FUZZ_SEED selects another series of dialogues. A failure prints the frames.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.broker.api.dispatch import Dispatcher
from odradek.broker.handlers.by_api_key import handler_of
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.security.sasl.authentication import Answer, Authentication, Failure, HangUp, PassThrough
from odradek.broker.security.sasl.credential_changes import CredentialUpsertion, alter_credentials
from odradek.broker.security.sasl.mechanism import Mechanism, Offer
from odradek.broker.security.sasl.oauthbearer import ClaimRules, OAuthBearerExchange
from odradek.broker.security.sasl.plain import PlainAccounts, PlainExchange
from odradek.broker.security.sasl.scram import ScramExchange, UsersOfImage
from odradek.broker.security.sasl.tables import State
from odradek.broker.security.sasl.tokens_signed import SignedValidator, read_key_set
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.file_slice import in_memory
from odradek.protocol.frames import request_bytes
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.protocol.scram import (
    SCRAM_MECHANISMS,
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    auth_message,
    client_key,
    client_proof,
    salted_password,
)
from odradek.protocol.struct import Message
from tests.fuzz.test_decoders import MUTATIONS
from tests.support.clock import ManualClock
from tests.support.metadata import decided

EXECUTIONS = int(os.environ.get("FUZZ", "200"))
SEED = os.environ.get("FUZZ_SEED", "0")
NOW_MS = 1_800_000_000_000
LENGTH_BYTES = 4
MAX_ADDITIONAL_BYTES = 400  # A response may be larger than its request by this many bytes.
RIGHT, WRONG = "right password", "wrong password"
SALT = b"salt of alice"
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")


@cache
def salted(mechanism: ScramMechanism, password: str) -> bytes:
    return salted_password(mechanism, password.encode(), SALT, 4096)


@cache
def signing_key(which: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def bearer_token(secret: str) -> str:
    claims = {"sub": "alice", "iat": NOW_MS // 1000 - 5, "exp": NOW_MS // 1000 + 60}
    return jwt.encode(claims, signing_key(secret), "ES256")


@cache
def offers() -> dict[str, Offer]:
    accounts = PlainAccounts({"alice": RIGHT}, b"k" * 32)
    image = MetadataImage()
    begin: dict[str, Callable[[], Mechanism]] = {"PLAIN": lambda: PlainExchange(accounts)}
    for name, mechanism in SCRAM_MECHANISMS.items():
        change = CredentialUpsertion("alice", mechanism.value, 4096, SALT, salted(mechanism, RIGHT))
        for record in decided(alter_credentials(image.scram_credentials, [change]))[1]:
            image.replay(record)
        begin[name] = scram_exchanges(mechanism, image)
    keys = read_key_set(b'{"keys": [%s]}' % ECAlgorithm.to_jwk(signing_key(RIGHT).public_key()).encode())
    validator = SignedValidator(lambda: keys, lambda: None, ClaimRules(needs_issued_at=True))
    begin["OAUTHBEARER"] = lambda: OAuthBearerExchange(validator)
    return {name: Offer(each, 3_000) for name, each in begin.items()}


def scram_exchanges(mechanism: ScramMechanism, image: MetadataImage) -> Callable[[], Mechanism]:
    users = UsersOfImage(mechanism, lambda: image.scram_credentials)
    return lambda: ScramExchange(mechanism, users, b"key", lambda: "nonce-of-the-server")


@dataclass
class Peer:
    """A client that authenticates with one mechanism. It reads only the latest response."""

    mechanism: str
    secret: str
    is_raw: bool

    def frames(self, answers: list[bytes]) -> Iterator[bytes]:
        yield framed(ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
        yield framed(SaslHandshakeRequest(mechanism=self.mechanism), 0 if self.is_raw else 1)
        for token in self.tokens(answers):
            yield token if self.is_raw else framed(SaslAuthenticateRequest(auth_bytes=token), 2)

    def tokens(self, answers: list[bytes]) -> Iterator[bytes]:
        if self.mechanism == "PLAIN":
            yield f"\0alice\0{self.secret}".encode()
        elif self.mechanism == "OAUTHBEARER":
            yield f"n,,\x01auth=Bearer {bearer_token(self.secret)}\x01\x01".encode()
            yield b"\x01"
        else:
            mechanism = SCRAM_MECHANISMS[self.mechanism]
            first = ClientFirst.make("alice", "nonce-of-the-client")
            yield first.text.encode()
            at = answers[-1].find(b"r=nonce") if answers else -1
            try:
                server = ServerFirst.parse(answers[-1][at:].split(b"=4096")[0] + b"=4096" if at >= 0 else b"")
            except MalformedMessage:
                return
            unproven = f"c=biws,r={server.nonce}"
            key = client_key(mechanism, salted(mechanism, self.secret))
            proof = client_proof(mechanism, key, auth_message(first.bare, server.text, unproven))
            yield f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def framed(message: Message, version: int) -> bytes:
    return request_bytes(message, version, 7, "fuzz")[LENGTH_BYTES:]


def say(authentication: Authentication, frame: bytes, answers: list[bytes]) -> None:
    """Passes a frame to the authentication and asserts the conditions that must hold after every frame."""
    was_in = authentication.name
    reaction = authentication.receive(memoryview(frame), NOW_MS, NOW_MS)
    match reaction:
        case Answer(chunks) | Failure(_, chunks):
            answers.append(b"".join(in_memory(chunks)))
            assert len(answers[-1]) <= len(frame) + MAX_ADDITIONAL_BYTES
        case PassThrough.SERVE:
            authentication.api_versions_answered(bytes(14))
        case PassThrough.REFUSE | HangUp():
            pass
    if isinstance(reaction, Failure | HangUp) or reaction is PassThrough.REFUSE:
        assert authentication.state is State.FAILED
    assert authentication.name in (None, "alice")
    assert was_in in (None, authentication.name)


def distorted(rng: Random, frame: bytes) -> Iterator[bytes]:
    """Yields the frames, possibly none, that replace this frame."""
    data = bytearray(frame)
    match rng.randrange(8):
        case 0:
            return
        case 1:
            yield frame
        case 2:
            yield framed(MetadataRequest(topics=[]), 12)
        case 3:
            yield rng.randbytes(rng.randrange(64))
            return
        case _:
            for _ in range(rng.randint(1, 3)):
                rng.choice(MUTATIONS)(rng, data)
    yield bytes(data)


DISPATCHER: Dispatcher[Any] = Dispatcher(None, ManualClock(), handler_of)


@pytest.mark.parametrize("secret", [RIGHT, WRONG])
@pytest.mark.parametrize("is_raw", [False, True], ids=["framed", "raw"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl_lets_nobody_in_by_mutated_frames(mechanism: str, is_raw: bool, secret: str) -> None:
    rng = Random(f"{SEED} {mechanism} {is_raw} {secret}")
    got_in = 0
    for _ in range(EXECUTIONS):
        authentication = Authentication(offers, DISPATCHER.serves)
        answers: list[bytes] = []
        said: list[bytes] = []
        spoilt = rng.randrange(5)
        for number, frame in enumerate(Peer(mechanism, secret, is_raw).frames(answers)):
            for one in distorted(rng, frame) if number == spoilt else (frame,):
                said.append(one)
                try:
                    say(authentication, one, answers)
                except BaseException:
                    print([each.hex() for each in said])
                    raise
        got_in += authentication.name is not None
        if authentication.name is not None:
            assert secret == RIGHT, [each.hex() for each in said]
    # Some distortions have no effect, so authentication with the right secret sometimes succeeds.
    assert (got_in > 0) == (secret == RIGHT)
