"""Who may do what with a subject: logins with the broker's users, and the ACLs of the topic that the subject names.

A subject `orders-key` or `orders-value` belongs to the topic `orders`; any other subject is treated like a topic of its
own name. Reading a subject needs DESCRIBE or READ of the topic, or WRITE; changing it needs WRITE. Levels and modes of
all subjects need DESCRIBE_CONFIGS and ALTER_CONFIGS of the cluster.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.broker.api.context import Authorizer, ConnectionInfo, RequestContext
from odradek.broker.security.sasl.mechanism import TokenAccepted
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.scram import SCRAM_MECHANISMS, client_key, salted_password, stored_key
from odradek.registry.errors import RegistryError

if TYPE_CHECKING:
    from odradek.broker.security.sasl.credentials import ScramCredentials
    from odradek.broker.security.sasl.mechanism import Mechanism

NO_CONNECTION: Final = 0
SUFFIXES: Final = ("-key", "-value")
PLAIN: Final = "PLAIN"


def topic_of(subject: str) -> str:
    for suffix in SUFFIXES:
        if subject.endswith(suffix) and len(subject) > len(suffix):
            return subject.removesuffix(suffix)
    return subject


@dataclass(frozen=True, slots=True)
class RegistryUsers:
    """The users that may log in.

    plain  begins an exchange of the mechanism PLAIN of each listener that offers it
    scram  the SCRAM credentials of the cluster
    """

    plain: Callable[[], Sequence[Mechanism]]
    scram: Callable[[], ScramCredentials]

    def knows(self, user: str, password: str, now_ms: int) -> bool:
        """Whether this is the password of the user. Takes milliseconds for a SCRAM user: call it in a thread."""
        token = b"\0".join((b"", user.encode(), password.encode()))
        if user and password and any(isinstance(each.judge(token, now_ms), TokenAccepted) for each in self.plain()):
            return True
        for mechanism in SCRAM_MECHANISMS.values():
            credential = self.scram().find(user, mechanism.value)
            if credential is None:
                continue
            salted = salted_password(mechanism, password.encode(), credential.salt, credential.iterations)
            if hmac.compare_digest(stored_key(mechanism, client_key(mechanism, salted)), credential.stored_key):
                return True
        return False


def basic_login(authorization: str) -> tuple[str, str] | None:
    """Returns user and password of the header Authorization, or None if it is empty. Raises RegistryError if it is
    anything but Basic."""
    if not authorization:
        return None
    scheme, _, credentials = authorization.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError
        user, colon, password = b64decode(credentials.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError
    except ValueError:
        raise unauthorized("The header Authorization has to be: Basic, with user and password") from None
    return user, password


def unauthorized(message: str) -> RegistryError:
    return RegistryError(40101, message)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of the client of one request."""

    authorizer: Authorizer
    context: RequestContext

    def may_read(self, subject: str) -> bool:
        topic = topic_of(subject)
        return any(self._allows(operation, topic) for operation in (Operation.DESCRIBE, Operation.WRITE))

    def require_read(self, subject: str) -> None:
        if not self.may_read(subject):
            raise self._denied(
                f"reading the subject {subject} needs DESCRIBE, READ or WRITE of the topic {topic_of(subject)}"
            )

    def require_write(self, subject: str) -> None:
        if not self._allows(Operation.WRITE, topic_of(subject)):
            raise self._denied(f"changing the subject {subject} needs WRITE of the topic {topic_of(subject)}")

    def require_of_cluster(self, operation: Operation) -> None:
        if not self.authorizer.allows(self.context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise self._denied(f"this needs {operation.name} of the cluster")

    def _allows(self, operation: Operation, topic: str) -> bool:
        return self.authorizer.allows(self.context, operation, ResourceType.TOPIC, topic)

    def _denied(self, words: str) -> RegistryError:
        return RegistryError(40301, f"{self.context.connection.principal} is denied: {words}")


def rights_of(authorizer: Authorizer, client: ConnectionInfo, now_ms: int) -> Rights:
    return Rights(authorizer, RequestContext(ApiKey.PRODUCE, 0, 0, None, now_ms, client, authorizer))


def client_at(client_host: str, user: str | None) -> ConnectionInfo:
    """Returns the client of an HTTP request: a user at an address, or User:ANONYMOUS."""
    client = ConnectionInfo(NO_CONNECTION, client_host, 0)
    if user is not None:
        client.principal = f"User:{user}"
    return client
