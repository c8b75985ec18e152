"""Tests that a certificate's subject and alternative names have the same text form as in Java 17
(docs/spec/security.md#s1-3)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from odradek.broker.security.tls.principals import MalformedCertificate, alternative_names, subject_of

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(*parts: x509.RelativeDistinguishedName, extensions: Sequence[x509.ExtensionType] = ()) -> bytes:
    builder = x509.CertificateBuilder()
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return (
        builder.subject_name(x509.Name(parts))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(KEY, SHA256())
        .public_bytes(Encoding.DER)
    )


def part(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
    return x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for oid, value in attributes])


def subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    return subject_of(certificate(*(part(one) for one in attributes)))


def test_the_last_name_comes_first() -> None:
    assert (
        subject(
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.ORGANIZATION_NAME, "Odradek"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "Dev"),
            (NameOID.COMMON_NAME, "kate"),
        )
        == "CN=kate,OU=Dev,O=Odradek,C=DE"
    )


def test_attributes_that_rfc_2253_names_are_written_by_name() -> None:
    assert (
        subject(
            (NameOID.DOMAIN_COMPONENT, "example"),
            (NameOID.LOCALITY_NAME, "Jena"),
            (NameOID.STATE_OR_PROVINCE_NAME, "TH"),
            (NameOID.STREET_ADDRESS, "Hauptstr."),
            (NameOID.USER_ID, "k8"),
        )
        == "UID=k8,STREET=Hauptstr.,ST=TH,L=Jena,DC=example"
    )


def test_other_names_are_numbers_and_their_values_bytes() -> None:
    assert (
        subject((NameOID.EMAIL_ADDRESS, "k@x"), (NameOID.COMMON_NAME, "k")) == "CN=k,1.2.840.113549.1.9.1=#16036b4078"
    )
    assert subject((NameOID.SERIAL_NUMBER, "7"), (NameOID.TITLE, "Dr")) == "2.5.4.12=#0c024472,2.5.4.5=#130137"
    assert subject((x509.ObjectIdentifier("2.999.3"), "q")) == "2.999.3=#0c0171"


def test_special_characters_are_escaped_everywhere_and_blanks_at_both_ends() -> None:
    assert subject((NameOID.COMMON_NAME, ' a,b=c+d<e>f;g"h\\i#j ')) == r"CN=\ a\,b\=c\+d\<e\>f\;g\"h\\i\#j\ "


def test_blanks_within_a_name_stay_and_a_name_of_blanks_is_escaped() -> None:
    assert subject((NameOID.COMMON_NAME, "#a  b")) == r"CN=\#a  b"
    assert subject((NameOID.COMMON_NAME, "  ")) == r"CN=\ \ "


def test_letters_of_any_language_stay() -> None:
    assert subject((NameOID.COMMON_NAME, "Zoë 雪")) == "CN=Zoë 雪"


def test_names_of_several_attributes_are_joined() -> None:
    several = part((NameOID.COMMON_NAME, "k"), (NameOID.USER_ID, "1"), (NameOID.ORGANIZATION_NAME, "o"))
    assert subject_of(certificate(several, part((NameOID.COUNTRY_NAME, "DE")))) == "C=DE,CN=k+O=o+UID=1"


def test_an_empty_subject_is_empty() -> None:
    assert subject() == ""


def test_a_truncated_certificate_is_refused() -> None:
    whole = certificate(part((NameOID.COMMON_NAME, "kate")))
    for length in range(len(whole)):
        with pytest.raises(MalformedCertificate):
            subject_of(whole[:length])


def test_alternative_names_have_their_types() -> None:
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("broker.example"),
            x509.IPAddress(ip_address("127.0.0.1")),
            x509.IPAddress(ip_address("::1")),
            x509.RFC822Name("kate@example"),
            x509.UniformResourceIdentifier("spiffe://example/broker"),
            x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
        ]
    )
    others = (
        x509.BasicConstraints(ca=True, path_length=None),
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    assert alternative_names(certificate(extensions=[*others, names])) == {
        "DNS:broker.example",
        "IPAddress:127.0.0.1",
        "IPAddress:::1",
        "RFC822:kate@example",
        "UniformResourceIdentifier:spiffe://example/broker",
        "0x88:2a03",
    }
    assert alternative_names(certificate(extensions=others)) == alternative_names(certificate()) == frozenset()


@pytest.mark.parametrize("bad", [b"", b"\x30\x05\x30", b"\x30\x00"])
def test_alternative_names_of_an_invalid_certificate_are_refused(bad: bytes) -> None:
    with pytest.raises(MalformedCertificate):
        alternative_names(bad)
