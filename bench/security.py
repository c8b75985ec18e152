"""Measures the cost of security: TLS for records, logins with SCRAM, and the authorization of each request."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.clients import Throughput
from bench.lifecycle import free_port
from bench.raw import RawLoad
from bench.subjects import Subject
from odradek.client import Admin
from odradek.client.administration.users import Acl, create_acls, set_password
from odradek.client.network.connection import Connection
from odradek.client.security.settings import Security
from odradek.protocol.acls import ANY_NAME, CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.scram import ScramMechanism
from tests.support.certificates import Authority

KAFKA = "kafka"
MODULES = "org.apache.kafka.common.security"
LOGINS_AT_ONCE = 8
LOGIN_SECONDS = 3.0
STRANGERS = 100  # number of other users whose ACLs the authorizer also contains
USER, PASSWORD = "alice", "pw"


@dataclass(frozen=True, slots=True)
class SecuredSubject:
    subject: Subject
    ca_file: Path
    tls: str
    sasl: str


@cache
def certificates() -> tuple[Path, Path]:
    """Creates a CA. Returns the paths of its certificate and of a file with the broker's certificate and key."""
    folder = Path(tempfile.mkdtemp(prefix="odradek-bench-tls-"))
    authority = Authority.make("Bench CA")
    (folder / "ca.pem").write_text(authority.pem)
    return folder / "ca.pem", authority.issue("broker").write(folder / "broker.pem")


# keyed by the subject's name
_secured: dict[str, SecuredSubject] = {}
_authorized: dict[str, Subject] = {}


def secured(subject: Subject) -> SecuredSubject:
    """Returns a broker with a plaintext listener, a TLS listener and a SASL listener. The broker is started only once
    per subject."""
    if subject.name in _secured:
        return _secured[subject.name]
    ca_file, certificate = certificates()
    ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "CONTROLLER")}
    clients = [name for name in ports if name != "CONTROLLER"]
    listeners = ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in clients)
    settings: dict[str, object] = {
        "listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificate,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    }
    if subject.name == KAFKA:
        settings |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports['CONTROLLER']}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in clients) + ",CONTROLLER:PLAINTEXT",
        }
    made = SecuredSubject(
        subject.variant("secured", settings, ports["PLAINTEXT"]),
        ca_file,
        f"127.0.0.1:{ports['SSL']}",
        f"127.0.0.1:{ports['SASL_PLAINTEXT']}",
    )
    made.subject.client_settings = {
        "bootstrap.servers": made.tls,
        "security.protocol": "ssl",
        "ssl.ca.location": str(ca_file),
    }
    asyncio.run(add_user(made.subject.bootstrap))
    _secured[subject.name] = made
    return made


async def add_user(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await set_password(admin.requests, USER, PASSWORD, ScramMechanism.SHA_256)


@dataclass(frozen=True, slots=True)
class TlsThroughput:
    """Runs `load` over TLS 1.3 with librdkafka."""

    load: Throughput

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        return self.load.measure(secured(subject).subject, share)


def scram_logins(subject: Subject, share: float) -> Mapping[str, float]:
    """Measures SCRAM-SHA-256 logins. Eight clients at a time open a connection, log in, and close it again.

    For each login, the client hashes the password with 4096 iterations. This is most of the work on this machine, so
    only the brokers' CPU times are comparable.
    """
    made = secured(subject)
    cpu_before = made.subject.cpu_seconds()
    logins, seconds = asyncio.run(log_in_for(made.sasl, LOGIN_SECONDS * share))
    cpu = made.subject.cpu_seconds() - cpu_before
    return {"logins_s": logins / seconds, "cpu_us_per_login": cpu / logins * 1e6}


async def log_in_for(address: str, seconds: float) -> tuple[int, float]:
    """Logs in repeatedly for about `seconds` seconds. Returns the number of logins and the exact time in seconds."""
    host, _, port = address.rpartition(":")
    security = Security("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username=USER, sasl_password=PASSWORD)
    begun = time.perf_counter()

    async def log_in() -> int:
        count = 0
        while time.perf_counter() - begun < seconds:
            connection = await Connection.open(
                host, int(port), client_id="bench", request_timeout_ms=30_000, security=security
            )
            connection.close()
            await connection.closed()
            count += 1
        return count

    counts = await asyncio.gather(*(log_in() for _ in range(LOGINS_AT_ONCE)))
    return sum(counts), time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class AuthorizedProduce:
    """Compares `load` on a broker whose ACLs allow the client with the same load on a broker without an authorizer.

    This row does not apply to Kafka. With its controller listener, the load's principal is a super user, for whom Kafka
    does not look up ACLs.
    """

    load: RawLoad

    def measure(self, subject: Subject, share: float) -> Mapping[str, float]:
        open_to_all = self.load.measure(subject, share / 2)
        authorized_figures = self.load.measure(authorized(subject), share / 2)
        more = authorized_figures["cpu_us_per_request"] / open_to_all["cpu_us_per_request"] - 1
        return {
            "requests_s": authorized_figures["requests_s"],
            "cpu_us_per_request": authorized_figures["cpu_us_per_request"],
            "more_cpu_percent": more * 100,
        }


def authorized(subject: Subject) -> Subject:
    """Returns a broker whose ACLs allow the load on its plaintext listener. It also has many ACLs for other users."""
    if subject.name in _authorized:
        return _authorized[subject.name]
    ports = [free_port(), free_port()]
    settings: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SASL_PLAINTEXT://127.0.0.1:{ports[1]}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required user_admin="{PASSWORD}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    variant = subject.variant("authorized", settings, ports[0])
    _ = variant.broker  # starts the broker
    asyncio.run(add_acls(f"127.0.0.1:{ports[1]}"))
    _authorized[subject.name] = variant
    return variant


async def add_acls(bootstrap: str) -> None:
    acls = [
        Acl(ResourceType.TOPIC, f"topic-{number}", f"User:stranger-{number}", Operation.ALL)
        for number in range(STRANGERS)
    ]
    acls.append(Acl(ResourceType.TOPIC, ANY_NAME, "User:ANONYMOUS", Operation.ALL))
    acls.append(Acl(ResourceType.CLUSTER, CLUSTER_NAME, "User:ANONYMOUS", Operation.CREATE))
    async with Admin(
        bootstrap_servers=bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="admin",
        sasl_password=PASSWORD,
    ) as admin:
        await create_acls(admin.requests, acls)
