"""Makes a certificate authority for tests and issues certificates from it. The keys use elliptic curves, because these
keys are quick to generate.

The certificates have the extensions that RFC 5280 requires. Many clients on Python 3.13 and later refuse certificates
without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

VALID_FOR = timedelta(days=1)
LOOPBACK = ("localhost", "127.0.0.1")
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))

    @property
    def pem(self) -> str:
        """Returns the private key and the certificate in one PEM text, as Kafka's settings accept them."""
        return self.key_pem().decode() + self.certificate_pem

    def as_pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, _encryption(password))

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path


@dataclass(frozen=True, slots=True)
class Authority:
    issued: IssuedCertificate

    @classmethod
    def make(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(subject, subject, key)
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
            .add_extension(identifier, critical=False)
        )
        return cls(IssuedCertificate(builder.sign(key, hashes.SHA256()), key))

    @property
    def pem(self) -> str:
        return self.issued.certificate_pem

    def as_pkcs12(self, password: str) -> bytes:
        """Returns a PKCS12 trust store that contains this certificate."""
        return pkcs12.serialize_key_and_certificates(None, None, None, [self.issued.certificate], _encryption(password))

    def issue(self, name: str, hosts: tuple[str, ...] = LOOPBACK, *, says_whose_key: bool = True) -> IssuedCertificate:
        """Issues a certificate for a client, or for a server at `hosts`. Each host is a DNS name or an IP address.

        says_whose_key  whether the certificate has the authority key identifier that RFC 5280 requires
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self.issued.certificate.subject, key)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        if says_whose_key:
            signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.issued.key.public_key())
            builder = builder.add_extension(signer, critical=False)
        return IssuedCertificate(builder.sign(self.issued.key, hashes.SHA256()), key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_FOR)
        .not_valid_after(now + VALID_FOR)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
