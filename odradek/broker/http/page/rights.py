"""Checks whether ACLs allow a view, if an authorizer is configured.

The page has no login. It acts as User:ANONYMOUS at the HTTP client's address and shows what the ACLs allow that
principal to see (docs/page.md). Only the calls for records accept logins. Actions need no check here, because they send
Kafka protocol requests, which the broker authorizes like any other request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.api.context import Audit, Authorizer, ConnectionInfo, RequestContext, authorization_error
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import KafkaError

if TYPE_CHECKING:
    from odradek.broker.http.page.served import Query

ANONYMOUS = "User:ANONYMOUS"


class Right(NamedTuple):
    """The permission that a view needs.

    like       the Kafka API that returns the same facts; it is named in the audit log
    parameter  the query parameter that names the resource; None if the resource is the cluster
    """

    like: ApiKey
    operation: Operation
    resource: ResourceType
    parameter: str | None = None


def of_cluster(like: ApiKey) -> Right:
    return Right(like, Operation.DESCRIBE, ResourceType.CLUSTER)


def require_right(
    needed: Right,
    query: Query,
    client: ConnectionInfo,
    authorizer: Authorizer,
    now_ms: int,
    *,
    audit: Audit = Audit.CHECK,
) -> None:
    """Raises KafkaError if the client lacks the permission. The error code depends on the type of resource.

    Raises KeyError with the name of the missing parameter if the query does not name the resource.
    """
    name = CLUSTER_NAME if needed.parameter is None else query[needed.parameter]
    context = RequestContext(needed.like, 0, 0, None, now_ms, client, authorizer)
    if authorizer.allows(context, needed.operation, needed.resource, name, audit=audit):
        return
    what = "the cluster" if needed.parameter is None else f"{needed.resource.name.lower().replace('_', ' ')} {name}"
    words = f"This needs {needed.operation.name} on {what}."
    if client.principal == ANONYMOUS:
        words += (
            f" Nobody logs in to the page, so an ACL must allow this to {ANONYMOUS}. If you set odradek.http.token,"
            " everybody with the token sees everything."
        )
    else:
        words += f" No ACL allows this to {client.principal}."
    raise KafkaError(authorization_error(needed.resource, needed.like).code, words)
