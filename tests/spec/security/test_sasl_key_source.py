"""Tests the source of the keys for OAUTHBEARER tokens: a JWKS in a file or at a URL (docs/spec/security.md#s2-4)."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from odradek.broker.runtime.controlled_time import ControlledTime
from odradek.broker.security.sasl.mechanism import Challenge, TokenAccepted
from odradek.broker.security.sasl.oauthbearer import ClaimRules, OAuthBearerExchange
from odradek.broker.security.sasl.oauthbearer_setup import MAX_BYTES, KeySource, reader_of
from odradek.broker.security.sasl.tokens_signed import InvalidKeySet, SignedValidator
from tests.support.certificates import Authority
from tests.support.clock import ManualTimers
from tests.support.key_server import KeyServer
from tests.support.manual_loop import ManualWorkers
from tests.support.sasl_scene import NOW_MS
from tests.support.workers_here import WorkersHere

NOW_S = NOW_MS // 1000
REFRESH_MS, RETRY_MS, MAX_RETRY_MS = 60_000, 100, 10_000
OLD, NEW = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


def key_set(**keys: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns a JWKS with the public parts of the given keys. The argument names are the key ids."""
    return json.dumps(
        {"keys": [{**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": name} for name, key in keys.items()]}
    ).encode()


class Source:
    """A key source whose clock and threads are controlled by the test."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.timers = ManualTimers()
        self.workers = ManualWorkers()
        self.keys = KeySource(
            read,
            self.workers,
            self.timers,
            refresh_ms=REFRESH_MS,
            retry_ms=RETRY_MS,
            max_retry_ms=MAX_RETRY_MS,
        )

    @property
    def key_ids(self) -> list[str | None]:
        return [key.key_id for key in self.keys.keys]

    def pass_(self, ms: int) -> None:
        """Advances the clock. The source reads its keys again if a read is due."""
        self.timers.advance(ms)
        self.workers.finish_all()

    def accepts(self, key_id: str, key: ec.EllipticCurvePrivateKey) -> bool:
        """Returns whether a token signed with this key is accepted. An unknown key id can trigger another read."""
        token = jwt.encode({"sub": "alice", "exp": NOW_S + 60}, key, "ES256", {"kid": key_id})
        exchange = OAuthBearerExchange(SignedValidator(lambda: self.keys.keys, self.keys.key_missed, ClaimRules()))
        verdict = exchange.judge(f"n,,\x01auth=Bearer {token}\x01\x01".encode(), NOW_MS)
        assert isinstance(verdict, TokenAccepted | Challenge)
        return isinstance(verdict, TokenAccepted)


class Text:
    """A JWKS that tests can replace or make unreadable (None). It counts how many times it is read."""

    def __init__(self) -> None:
        self.now: bytes | None = key_set(old=OLD)
        self.reads = 0

    def read(self) -> bytes:
        self.reads += 1
        if self.now is None:
            raise OSError("no such file")
        return self.now


def test_keys_are_read_again_from_time_to_time() -> None:
    text = Text()
    source = Source(text.read)
    assert source.key_ids == ["old"]
    text.now = key_set(old=OLD, new=NEW)
    source.pass_(REFRESH_MS)
    assert source.key_ids == ["old", "new"]
    assert text.reads == 2


def test_keys_stay_while_their_source_cannot_be_read_which_is_tried_at_growing_intervals() -> None:
    text = Text()
    source = Source(text.read)
    for bad in (None, b"junk"):
        text.now = bad
        source.pass_(REFRESH_MS)
        assert source.key_ids == ["old"]
    text.now = key_set(new=NEW)
    source.timers.advance(2 * RETRY_MS - 1)
    assert not source.workers.jobs
    source.pass_(1)
    assert source.key_ids == ["new"]
    assert source.timers.armed() == [REFRESH_MS]


def test_an_unknown_key_causes_one_early_read_of_the_keys() -> None:
    text = Text()
    source = Source(text.read)
    for _ in range(100):
        assert not source.accepts("unknown", NEW)
        source.workers.finish_all()
    assert text.reads == 2
    source.timers.advance(MAX_RETRY_MS)
    assert not source.accepts("unknown", NEW)
    source.workers.finish_all()
    assert text.reads == 3


def test_keys_come_from_files_and_from_http_only(tmp_path: Path) -> None:
    (tmp_path / "keys of ours.json").write_bytes(key_set(old=OLD))
    assert reader_of(f"file://{tmp_path}/keys%20of%20ours.json")() == key_set(old=OLD)
    with pytest.raises(ValueError, match="scheme"):
        reader_of("ftp://host/keys")
    with pytest.raises(OSError, match="no/such/file"):
        reader_of("file:///no/such/file")()


# --- Keys fetched over HTTP.


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer(key_set(old=OLD)) as running:
        yield running


def test_keys_that_the_issuer_exchanges_are_fetched_when_the_first_token_comes(server: KeyServer) -> None:
    source = Source(reader_of(server.url))
    assert source.accepts("old", OLD)
    server.text = key_set(old=OLD, new=NEW)
    assert not source.accepts("new", NEW)  # The refused token causes another read of the keys.
    source.workers.finish_all()
    assert source.accepts("new", NEW)
    server.text = key_set(new=NEW)
    source.pass_(REFRESH_MS)
    assert not source.accepts("old", OLD)
    assert source.accepts("new", NEW)


def test_the_broker_goes_on_with_its_keys_while_the_issuer_is_away(
    server: KeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(reader_of(server.url))
    server.stop()
    source.pass_(REFRESH_MS)
    assert source.accepts("old", OLD)
    assert "the keys for OAUTHBEARER tokens are not changed" in caplog.text
    assert source.timers.armed() == [RETRY_MS]


@pytest.mark.parametrize(
    ("status", "text"),
    [(500, key_set(new=NEW)), (404, b"not here"), (200, b""), (200, b"<html>"), (204, b"")],
)
def test_an_answer_that_is_no_set_of_keys_changes_nothing(server: KeyServer, status: int, text: bytes) -> None:
    source = Source(reader_of(server.url))
    server.status, server.text = status, text
    source.pass_(REFRESH_MS)
    assert source.accepts("old", OLD)
    server.status, server.text = 200, key_set(new=NEW)
    source.pass_(RETRY_MS)
    assert source.accepts("new", NEW)


def test_a_set_from_which_all_keys_were_withdrawn_accepts_no_token(
    server: KeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(reader_of(server.url))
    assert source.accepts("old", OLD)
    server.text = b'{"keys": []}'
    source.pass_(REFRESH_MS)
    assert not source.accepts("old", OLD)
    assert "no token is accepted" in caplog.text


@pytest.mark.parametrize("text", [b"", b"{}"])
def test_the_broker_does_not_start_without_keys(server: KeyServer, text: bytes) -> None:
    server.text = text
    with pytest.raises(InvalidKeySet):
        Source(reader_of(server.url))
    server.stop()
    with pytest.raises(OSError, match="Cannot connect"):
        Source(reader_of(server.url))


def test_a_huge_answer_is_not_read_to_its_end(server: KeyServer) -> None:
    sent = bytearray()

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while not server.stopped.is_set():
            sent.extend(bytes(1 << 16))
            request.wfile.write(bytes(1 << 16))

    server.answer = endless
    with pytest.raises(OSError, match=f"more than {MAX_BYTES} bytes"):
        reader_of(server.url)()
    assert len(sent) < 100 * MAX_BYTES


@pytest.mark.parametrize("kind", ["silent", "dripping"])
def test_a_slow_answer_is_given_up_however_it_is_slow(server: KeyServer, kind: str) -> None:
    server.answer = server.drip if kind == "dripping" else server.say_nothing
    with pytest.raises(OSError, match=r"no complete answer within 0\.2 s"):
        reader_of(server.url, timeout_s=0.2)()


def test_by_https_only_a_server_that_is_trusted_gives_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.make("authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer").write(tmp_path / "issuer.pem"))
    trusted = tmp_path / "trusted.pem"
    with KeyServer(key_set(old=OLD), context) as server:
        for pem, is_trusted in ((authority.pem, True), (Authority.make("another").pem, False)):
            trusted.write_text(pem)
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            if is_trusted:
                assert reader_of(server.url)() == key_set(old=OLD)
            else:
                with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                    reader_of(server.url)()


def test_by_https_a_certificate_without_the_identifier_of_its_authority_is_trusted_on_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.make("authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("issuer", says_whose_key=False).write(tmp_path / "issuer.pem"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with KeyServer(key_set(old=OLD), context) as server:
        assert reader_of(server.url)() == key_set(old=OLD)


async def test_a_year_that_a_clock_is_moved_ahead_reads_no_keys() -> None:
    time, text = ControlledTime(asyncio.get_running_loop(), NOW_MS, is_frozen=True), Text()
    KeySource(text.read, WorkersHere(), time, refresh_ms=REFRESH_MS, retry_ms=RETRY_MS, max_retry_ms=MAX_RETRY_MS)
    text.now = None
    await time.advance(366 * 24 * 3600 * 1000, partial(asyncio.sleep, 0))
    assert time.actions_run <= 1
