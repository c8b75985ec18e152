"""Tests that SCRAM users and delegation tokens in a metadata log written by Kafka 4.3.1 can log in to Odradek
(docs/spec/security.md#s2-3).

Kafka wrote the log with `delegation.token.secret.key=token secret`. The log contains credentials for alice (both
mechanisms) and bob, a removed credential for `gone`, and tokens that were renewed, expired and removed.
"""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import IgnoredRecord, decode_record, encode_record
from odradek.broker.metadata.replaying import Loader
from odradek.broker.security.tokens.decisions import TokenRules
from odradek.protocol.batch_header import batches
from odradek.protocol.records import records_of
from odradek.protocol.scram import ScramMechanism, client_key, salted_password, server_key, stored_key

LOG = Path(__file__).parent / "kafka_wrote" / "users-and-tokens.log.gz"
SHA_256, SHA_512 = ScramMechanism
TOKEN_ID = "4wFnZ4tQQw2zyimR7Ugf2A"
PROOF = "jj4wmQi9U13HgzpPxSe+qBqSKpI62VeUqWIPa4bDMFf7GPqn9+OREpBxyO2vnB6KvCG7bCsU2psi1ImpuwQYuA=="
KINDS_OF_SECURITY = (10, 11, 22, 26)


@pytest.fixture(scope="module")
def data() -> bytes:
    return gzip.decompress(LOG.read_bytes())


@pytest.fixture(scope="module")
def image(data: bytes) -> MetadataImage:
    image = MetadataImage()
    loader = Loader(image)
    loader.load([data])
    assert loader.not_understood == set()
    return image


@pytest.mark.parametrize(
    ("user", "mechanism", "password", "salt", "iterations"),
    [
        ("alice", SHA_256, "pw", b"salt1", 4096),
        ("alice", SHA_512, "pw", b"salt3", 5000),
        ("bob", SHA_512, "pw2", b"salt2", 8192),
    ],
)
def test_credentials_hold_the_keys_of_the_passwords(
    image: MetadataImage, user: str, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> None:
    credential = image.scram_credentials.find(user, mechanism.value)
    assert credential is not None
    assert (credential.salt, credential.iterations) == (salt, iterations)
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    assert credential.stored_key == stored_key(mechanism, client_key(mechanism, salted))
    assert credential.server_key == server_key(mechanism, salted)


def test_removed_credentials_do_not_exist(image: MetadataImage) -> None:
    assert image.scram_credentials.by_user.keys() == {"alice", "bob"}


def test_tokens_are_those_that_were_not_removed_and_the_secret_proves_them(image: MetadataImage) -> None:
    token = image.delegation_tokens.by_id[TOKEN_ID]
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
    assert token.expires_ms == token.max_ms == token.issued_ms + 3_600_000
    rules = TokenRules(b"token secret", 1, 1)
    assert base64.b64encode(rules.proof(TOKEN_ID)).decode() == PROOF
    assert len(image.delegation_tokens.by_id) == 8
    assert {token.owner for token in image.delegation_tokens.by_id.values()} >= {"User:alice", "User:bob", "User:admin"}


def test_records_of_credentials_and_tokens_are_written_to_the_same_bytes(data: bytes) -> None:
    kinds = set()
    for position, header in batches(data):
        for record in () if header.is_control else records_of(data, position):
            decoded = decode_record(record.value or b"")
            if not isinstance(decoded, IgnoredRecord) and decoded.API_KEY in KINDS_OF_SECURITY:
                assert encode_record(decoded, 30) == record.value
                kinds.add(decoded.API_KEY)
    assert kinds == set(KINDS_OF_SECURITY)
