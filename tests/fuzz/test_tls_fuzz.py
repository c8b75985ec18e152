"""Tests that the broker handles mutated TLS handshakes, certificates, mapping rules and HTTP headers. A damaged
handshake ends with a TLS error. A damaged certificate is reported as malformed or has a subject. Mapping rules are
parsed or refused. Only the right header authenticates at the HTTP port.

The environment variable FUZZ scales the number of executions, and FUZZ_SEED selects another series of inputs.
"""

import os
import ssl
from base64 import b64decode, b64encode
from random import Random

import pytest

from odradek.broker.configuration.config import configure
from odradek.broker.http.access import Access, refusal
from odradek.broker.security.tls.context import load
from odradek.broker.security.tls.handshake import AlertingObject
from odradek.broker.security.tls.principals import (
    InvalidRule,
    MalformedCertificate,
    parse_rules,
    principal_name,
    subject_of,
)
from odradek.broker.security.tls.settings import tls_settings
from tests.support.certs_directory import certificates, ssl_settings

EXECUTIONS = int(os.environ.get("FUZZ", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))


def mutated(rng: Random, good: bytes) -> bytes:
    """Returns a copy of the bytes that is truncated at random, or has bytes changed, removed or inserted."""
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[position:]
            case 1:
                data[position:position] = rng.randbytes(rng.randint(1, 40))
            case 2:
                del data[position : position + rng.randint(1, 40)]
            case 3 if position < len(data):
                data[position] = rng.randrange(256)
            case _ if position < len(data):
                data[position] = rng.choice((0, 0x7F, 0x80, 0xFF))
        if not data:
            break
    return bytes(data)


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    settings = {name: str(value) for name, value in ssl_settings(certificates(), ssl_client_auth="required").items()}
    made = load(tls_settings(configure({}, {}, settings)[0].listener_settings("SSL"))).context
    made.sslobject_class = AlertingObject
    return made


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_damaged_handshake_ends_with_an_error_of_tls(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    rng = Random(f"handshake {version} {SEED}")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.minimum_version = trusting.maximum_version = version
    trusting.load_cert_chain(certificates("kate", "mallory") / "client-kate.pem")
    for _ in range(EXECUTIONS):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(to_server, to_client, server_side=True)
        from_client = ssl.MemoryBIO()
        client = trusting.wrap_bio(to_client, from_client)
        damaged_flight = rng.randrange(2)
        for flight in range(2):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    break
                if side is client:
                    sent = from_client.read()
                    to_server.write(mutated(rng, sent) if flight == damaged_flight and sent else sent)
        to_client.read()


def test_a_damaged_certificate_is_malformed_or_has_a_subject() -> None:
    rng = Random(f"certificate {SEED}")
    pem = (certificates("kate", "mallory") / "client-kate.pem").read_text()
    good = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") : pem.index("-----END CERTIFICATE") + 25])
    for _ in range(EXECUTIONS * 10):
        try:
            assert isinstance(subject_of(mutated(rng, good)), str)
        except MalformedCertificate:
            continue


def test_rules_of_any_text_are_read_or_refused() -> None:
    rng = Random(f"rules {SEED}")
    parts = [
        "DEFAULT",
        "RULE:",
        "/",
        "\\/",
        "CN=",
        "(.*)",
        "$1",
        "$12",
        "L",
        "U",
        ",",
        " ",
        "(?<a>",
        ")",
        "[",
        "\\",
        "é",
    ]
    for _ in range(EXECUTIONS * 10):
        text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 12)))
        try:
            rules = parse_rules(text)
        except InvalidRule:
            continue
        name = principal_name(rules, "CN=kate,O=Odradek")
        assert name is None or isinstance(name, str)


def test_no_header_but_the_right_one_lets_anybody_in() -> None:
    rng = Random(f"header {SEED}")
    good = (b"Bearer swordfish", b"Basic " + b64encode(b"any:swordfish"))
    for _ in range(EXECUTIONS * 10):
        said = mutated(rng, rng.choice(good)).decode("utf-8", errors="surrogateescape")
        if refusal(Access.TOKEN, ["swordfish"], "/metrics", said) is None:
            scheme, _, credentials = said.strip().partition(" ")
            is_bearer = scheme.lower() == "bearer" and credentials.strip() == "swordfish"
            assert is_bearer or b64decode(credentials).endswith(b":swordfish")
