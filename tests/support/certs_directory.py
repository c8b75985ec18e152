"""Makes a directory of certificates with `odradek certs` once per test run, because generating keys takes time and no
test changes the files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from odradek.tools.certs import fill

PASSWORD = "changeit"
HOSTS = ("localhost", "127.0.0.1")


@cache
def certificates(*clients: str) -> Path:
    """Returns a directory with ca.pem, server.pem, a client-NAME.pem for each client, and PKCS12 files with the same
    contents."""
    return another_authority(*clients)


def another_authority(*clients: str, hosts: tuple[str, ...] = HOSTS) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="odradek-certs-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    fill(directory, hosts=hosts, clients=clients, password=PASSWORD, now=datetime.now(UTC), days=30)
    return directory


def ssl_settings(directory: Path, **more: str) -> dict[str, object]:
    """Returns the settings of a broker with a single TLS listener. Client certificates, if requested, are verified with
    the directory's authority."""
    return {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
