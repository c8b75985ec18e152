"""Fills the directory of `odradek certs`. Creates the certificates that are missing or about to expire, and keeps the
others.

ca.pem, ca-key.pem                the CA's certificate, which clients trust, and its key
server.pem, server.p12            the broker's key and certificate chain
client-NAME.pem, client-NAME.p12  each client's key and certificate chain
truststore.p12                    ca.pem in Java's format
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from odradek.protocol.certificates import (
    Credential,
    is_good,
    new_authority,
    new_client,
    new_server,
    pkcs12_store,
    pkcs12_truststore,
)

CA, CA_KEY, TRUSTSTORE = "ca.pem", "ca-key.pem", "truststore.p12"
SERVER = "server"
AUTHORITY_DAYS = 3650
RENEWAL_FRACTION = 4  # a certificate is renewed when less than 1/RENEWAL_FRACTION of its lifetime is left


class CannotIssue(ValueError):
    """The directory contains files that cannot be used and must not be overwritten."""


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names of the certificates in the directory, divided into new and kept ones."""

    new: tuple[str, ...]
    kept: tuple[str, ...]


def client_file(name: str) -> str:
    return f"client-{name}"


def fill(
    directory: Path, *, hosts: Sequence[str], clients: Sequence[str], password: str, now: datetime, days: int
) -> CertificateNames:
    """Creates missing certificates and renews those that expire soon. Raises CannotIssue, OSError.

    hosts     the broker's host names
    clients   the clients' user names
    password  password of the PKCS12 stores
    days      lifetime of the certificates, except the CA's
    """
    directory.mkdir(parents=True, exist_ok=True)
    new: list[str] = []
    kept: list[str] = []
    authority = _authority(directory, now)
    if authority is None:
        authority = new_authority(now, AUTHORITY_DAYS)
        _write(directory / CA_KEY, authority.key_pem)
        _write(directory / CA, authority.certificate_pem, is_secret=False)
        new.append("ca")
    else:
        kept.append("ca")
    if "ca" in new or not (directory / TRUSTSTORE).exists():
        _write(directory / TRUSTSTORE, pkcs12_truststore(authority, password), is_secret=False)
    credentials: list[tuple[str, Sequence[str], Callable[[], Credential]]] = [
        (SERVER, hosts, lambda: new_server(authority, hosts, now, days))
    ]
    for client in clients:
        credentials.append((client_file(client), (), lambda client=client: new_client(authority, client, now, days)))  # type: ignore[misc]
    for name, of_hosts, make in credentials:
        if _is_there(directory, name, authority, of_hosts, now + timedelta(days=days) / RENEWAL_FRACTION):
            kept.append(name)
            continue
        made = make()
        _write(directory / f"{name}.p12", pkcs12_store(name, made, authority, password))
        _write(directory / f"{name}.pem", made.key_pem + made.certificate_pem + authority.certificate_pem)
        new.append(name)
    return CertificateNames(tuple(new), tuple(kept))


def _authority(directory: Path, now: datetime) -> Credential | None:
    """Reads the CA's certificate and key. Returns None if neither file exists. Raises CannotIssue if the files cannot
    be read or the certificate has expired."""
    certificate, key = directory / CA, directory / CA_KEY
    if not certificate.exists() and not key.exists():
        return None
    try:
        found = Credential.of_pem(key.read_bytes() + certificate.read_bytes())
    except (OSError, ValueError, IndexError) as error:
        raise CannotIssue(
            f"{directory} contains a certificate authority that cannot be used ({error}): choose another directory"
        ) from None
    if found.certificate.not_valid_after_utc <= now:
        raise CannotIssue(
            f"the certificate authority in {certificate} has expired: choose another directory, or delete the file"
        )
    return found


def _is_there(directory: Path, name: str, authority: Credential, hosts: Sequence[str], until: datetime) -> bool:
    if not (directory / f"{name}.p12").exists():
        return False
    try:
        found = Credential.of_pem((directory / f"{name}.pem").read_bytes())
    except (OSError, ValueError, IndexError):
        return False
    return is_good(found, authority, hosts, until)


def _write(path: Path, content: bytes, *, is_secret: bool = True) -> None:
    """Writes a file atomically. Only the file's owner can ever read a secret, because the temporary file is always
    newly created, never an existing file or link."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o644)
    with open(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)
