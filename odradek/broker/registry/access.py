"""Controls access to subjects with the ACLs of each subject's topic.

A subject `orders-key` or `orders-value` belongs to the topic `orders`. Any other subject is treated like a topic of the
same name. Reading a subject requires DESCRIBE, READ or WRITE on the topic; changing it requires WRITE. Global levels
and modes require DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.broker.api.context import Authorizer, ConnectionInfo, RequestContext
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.registry.errors import RegistryError

SUFFIXES: Final = ("-key", "-value")


def topic_of(subject: str) -> str:
    for suffix in SUFFIXES:
        if subject.endswith(suffix) and len(subject) > len(suffix):
            return subject.removesuffix(suffix)
    return subject


@dataclass(frozen=True, slots=True)
class Rights:
    """The permissions of a request's client."""

    authorizer: Authorizer
    context: RequestContext

    def may_read(self, subject: str) -> bool:
        topic = topic_of(subject)
        return any(self._allows(operation, topic) for operation in (Operation.DESCRIBE, Operation.WRITE))

    def require_read(self, subject: str) -> None:
        if not self.may_read(subject):
            raise self._denied(
                f"reading the subject {subject} needs DESCRIBE, READ or WRITE on the topic {topic_of(subject)}"
            )

    def require_write(self, subject: str) -> None:
        if not self._allows(Operation.WRITE, topic_of(subject)):
            raise self._denied(f"changing the subject {subject} needs WRITE on the topic {topic_of(subject)}")

    def require_of_cluster(self, operation: Operation) -> None:
        if not self.authorizer.allows(self.context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise self._denied(f"this needs {operation.name} on the cluster")

    def _allows(self, operation: Operation, topic: str) -> bool:
        return self.authorizer.allows(self.context, operation, ResourceType.TOPIC, topic)

    def _denied(self, words: str) -> RegistryError:
        return RegistryError(40301, f"{self.context.connection.principal} is denied: {words}")


def rights_of(authorizer: Authorizer, client: ConnectionInfo, now_ms: int) -> Rights:
    return Rights(authorizer, RequestContext(ApiKey.PRODUCE, 0, 0, None, now_ms, client, authorizer))
