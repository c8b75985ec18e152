"""Creates certificates for development and tests. A certificate authority (CA) issues them to servers and clients.

Keys use P-256, because every Kafka client supports it and a handshake takes only a third as long as with RSA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ORGANIZATION = "Odradek development"
# Maximum difference between this machine's clock and those of the machines that use the certificates.
CLOCK_TOLERANCE = timedelta(hours=1)
_NO_USE = dict.fromkeys(
    (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    ),
    False,
)
SIGNS = x509.KeyUsage(**_NO_USE | {"digital_signature": True})
CA_KEY_USAGE = x509.KeyUsage(**_NO_USE | {"digital_signature": True, "key_cert_sign": True, "crl_sign": True})


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def of_pem(cls, pem: bytes) -> Credential:
        """Parses a credential. Raises ValueError if the PEM cannot be parsed or the key is not an elliptic-curve
        key."""
        key = load_pem_private_key(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the private key is not an elliptic curve key")
        return cls(x509.load_pem_x509_certificates(pem)[0], key)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def new_authority(now: datetime, days: int) -> Credential:
    name = _name("Development CA")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, name, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(CA_KEY_USAGE, critical=True)
    )
    return Credential(builder.sign(key, SHA256()), key)


def new_server(authority: Credential, hosts: Sequence[str], now: datetime, days: int) -> Credential:
    """Issues a server certificate. `hosts` are the server's names and addresses, the first of which becomes the common
    name."""
    alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _issue(authority, hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, now, days, alternatives)


def new_client(authority: Credential, name: str, now: datetime, days: int) -> Credential:
    return _issue(authority, name, ExtendedKeyUsageOID.CLIENT_AUTH, now, days, None)


def is_good(found: Credential, authority: Credential, hosts: Sequence[str], at: datetime) -> bool:
    """Returns whether the certificate can still be used. It must have been issued by this authority for exactly these
    hosts, and must not have expired."""
    certificate = found.certificate
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return False
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    return certificate.not_valid_after_utc >= at and set(names) == {_general_name(host) for host in hosts}


def pkcs12_store(name: str, credential: Credential, authority: Credential, password: str) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        name.encode(),
        credential.key,
        credential.certificate,
        [authority.certificate],
        BestAvailableEncryption(password.encode()),
    )


def pkcs12_truststore(authority: Credential, password: str) -> bytes:
    """Builds a trust store that Java accepts, by marking the certificate with Java's own attribute for trusted
    certificates."""
    trusted = pkcs12.PKCS12Certificate(authority.certificate, b"ca")
    return pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password.encode()))


def _issue(
    authority: Credential,
    name: str,
    usage: x509.ObjectIdentifier,
    now: datetime,
    days: int,
    alternatives: x509.SubjectAlternativeName | None,
) -> Credential:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    builder = (
        _builder(_name(name), issuer.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(SIGNS, critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return Credential(builder.sign(authority.key, SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
