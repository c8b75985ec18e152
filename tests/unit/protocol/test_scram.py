"""Tests that SCRAM gives the results of the example in RFC 7677, and that its messages follow Kafka's grammar."""

from base64 import b64decode

import pytest

from odradek.protocol.scram import (
    ClientFinal,
    ClientFirst,
    ScramError,
    ScramMechanism,
    ServerFinal,
    ServerFirst,
    auth_message,
    client_key,
    client_proof,
    escaped,
    is_proof_of,
    salted_password,
    server_key,
    server_signature,
    stored_key,
    unescaped,
)

SHA_256 = ScramMechanism.SHA_256

# The exchange in RFC 7677, section 3, with that section's user and password
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_rfc_7677_comes_out() -> None:
    first, challenge, final = (
        ClientFirst.parse(CLIENT_FIRST),
        ServerFirst.parse(SERVER_FIRST),
        ClientFinal.parse(CLIENT_FINAL),
    )
    salted = salted_password(SHA_256, b"pencil", challenge.salt, challenge.iterations)
    signed = auth_message(first.bare, challenge.text, final.unproven)
    key = client_key(SHA_256, salted)
    assert client_proof(SHA_256, key, signed) == final.proof
    assert is_proof_of(SHA_256, stored_key(SHA_256, key), signed, final.proof)
    signature = server_signature(SHA_256, server_key(SHA_256, salted), signed)
    assert signature == ServerFinal.parse(SERVER_FINAL).signature


def test_the_messages_are_written_as_the_example_has_them() -> None:
    first = ClientFirst.make("user", "rOprNGfwEbeRWgbNEkqO")
    assert first.text.encode() == CLIENT_FIRST
    parsed = ServerFirst.parse(SERVER_FIRST)
    assert ServerFirst.make(parsed.nonce, parsed.salt, parsed.iterations).text.encode() == SERVER_FIRST
    unproven = ClientFinal.unproven_text(first, parsed.nonce)
    assert ClientFinal(parsed.nonce, unproven, ClientFinal.parse(CLIENT_FINAL).proof).text.encode() == CLIENT_FINAL
    assert ServerFinal(b64decode(SERVER_FINAL[2:])).text.encode() == SERVER_FINAL


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_proof_of_another_password_or_another_length_is_none(mechanism: ScramMechanism) -> None:
    keys = [
        client_key(mechanism, salted_password(mechanism, password, b"salt", 4096)) for password in (b"right", b"wrong")
    ]
    stored = stored_key(mechanism, keys[0])
    assert is_proof_of(mechanism, stored, b"signed", client_proof(mechanism, keys[0], b"signed"))
    assert not is_proof_of(mechanism, stored, b"signed", client_proof(mechanism, keys[1], b"signed"))
    assert not is_proof_of(mechanism, stored, b"other", client_proof(mechanism, keys[0], b"signed"))
    assert not is_proof_of(mechanism, stored, b"signed", b"short")
    assert not is_proof_of(mechanism, stored, b"signed", b"")


def test_commas_and_equals_signs_of_a_name_are_escaped() -> None:
    assert escaped("a,b=c") == "a=2Cb=3Dc"
    assert unescaped("a=2Cb=3Dc") == "a,b=c"
    assert unescaped(escaped("=2C,=3D")) == "=2C,=3D"
    assert ClientFirst.parse(ClientFirst.make("a,b=c", "x", authorization_id="d,e").text.encode()).user == "a,b=c"


def test_extensions_and_a_reserved_attribute_are_read_and_signed() -> None:
    first = ClientFirst.parse(b"n,a=joe,m=x,n=joe,r=abc,tokenauth=true,other=1=2")
    assert (first.user, first.authorization_id, first.nonce) == ("joe", "joe", "abc")
    assert first.extensions == {"tokenauth": "true", "other": "1=2"}
    assert first.bare == "m=x,n=joe,r=abc,tokenauth=true,other=1=2"
    made = ClientFirst.make("joe", "abc", authorization_id="joe", extensions={"tokenauth": "true"})
    assert made.text == "n,a=joe,n=joe,r=abc,tokenauth=true"
    assert ClientFinal.parse(b"c=biws,r=abc,x=y,p=AAAA").unproven == "c=biws,r=abc,x=y"


def test_names_outside_ascii_are_utf_8() -> None:
    assert ClientFirst.parse(ClientFirst.make("jürgen", "x").text.encode()).user == "jürgen"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"garbage",
        b"y,,n=a,r=b",
        b"p=tls-unique,,n=a,r=b",
        b"n,,n=a=b,r=c",
        b"n,,n=,r=c",
        b"n,,n=a,r=",
        b"n,,n=a,r=b c",
        b"n,,n=a,r=b,ext",
        b"n,,n=a,r=b,1=2",
        b"n,,n=a\x00,r=b",
        b"n,,n=\xff,r=b",
        b"n,,n=a,r=b\n",
    ],
)
def test_other_first_messages_are_refused(token: bytes) -> None:
    with pytest.raises(ScramError):
        ClientFirst.parse(token)


@pytest.mark.parametrize("token", [b"", b"c=biws,r=x", b"c=biws,r=x,p=A", b"c=biws,p=AAAA", b"c=!,r=x,p=AAAA"])
def test_other_final_messages_are_refused(token: bytes) -> None:
    with pytest.raises(ScramError):
        ClientFinal.parse(token)


@pytest.mark.parametrize("token", [b"", b"r=x", b"r=x,s=AAAA,i=", b"r=x,s=AAAA,i=-1", b"r=x,s=AAAA,i=" + b"9" * 11])
def test_other_messages_of_a_server_are_refused(token: bytes) -> None:
    with pytest.raises(ScramError):
        ServerFirst.parse(token)
    with pytest.raises(ScramError):
        ServerFinal.parse(token)


def test_an_error_of_the_server_is_text() -> None:
    assert ServerFinal.parse(b"e=other-error") == ServerFinal(error="other-error")
    assert ServerFinal(error="other-error").text == "e=other-error"
