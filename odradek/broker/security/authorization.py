"""The authorizer at work: it decides by the ACLs of the metadata image, and writes each decision to the audit log.

One line a decision, to the logger `odradek.authorizer`, in Kafka's words (docs/spec/security.md#s5-1, 150): refused at
INFO, allowed at DEBUG, and what nothing depends on at TRACE.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll, Audit, Authorizer, ConnectionInfo, RequestContext
from odradek.broker.configuration.contradictions import allows_everyone, super_users
from odradek.broker.security.acl.acls import PROBED_NAME, Acls
from odradek.protocol.acls import Operation, PatternType, ResourceType

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.security.acl.authorizer import Ruling, StandardAuthorizer

AUDIT_LOGGER = "odradek.authorizer"
TRACE = logging.NOTSET + 1

# How a decision is logged: if it was refused, if it was allowed.
LEVELS = {
    Audit.CHECK: (logging.INFO, logging.DEBUG),
    Audit.PROBE: (TRACE, logging.DEBUG),
    Audit.QUIET: (TRACE, TRACE),
}


def authorizer_of(config: BrokerConfig, acls: Acls) -> Authorizer:
    """acls: those of the metadata image"""
    if not config.authorizer_class_name:
        return AllowAll()
    from odradek.broker.security.acl.authorizer import StandardAuthorizer  # here: most brokers have no authorizer

    return AuditedAuthorizer(
        StandardAuthorizer(
            acls,
            super_users(config.super_users),
            allows_everyone=allows_everyone(config.allow_everyone_if_no_acl_found),
        )
    )


class AuditedAuthorizer:
    """The authorizer that requests ask. Loop thread only."""

    def __init__(self, decisions: StandardAuthorizer) -> None:
        self._decide = decisions.decide
        self._decide_on_any = decisions.decide_on_any
        self._log = logging.getLogger(AUDIT_LOGGER)

    def allows(
        self,
        context: RequestContext,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        audit: Audit = Audit.CHECK,
    ) -> bool:
        connection = context.connection
        ruling = self._decide(connection.principal, connection.client_host, operation, resource, name)
        level = LEVELS[audit][ruling.is_allowed]
        if self._log.isEnabledFor(level) and is_news(context, (level, operation, resource, name)):
            self._log.log(level, "%s", audit_line(context, operation, resource, name, ruling))
        return ruling.is_allowed

    def passes(self, connection: ConnectionInfo, operation: Operation, resource: ResourceType, name: str) -> bool:
        ruling = self._decide(connection.principal, connection.client_host, operation, resource, name)
        return ruling.is_allowed and not self._log.isEnabledFor(logging.DEBUG)

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        if self.allows(context, operation, resource, PROBED_NAME, audit=Audit.PROBE):
            return True
        connection = context.connection
        return self._decide_on_any(connection.principal, connection.client_host, operation, resource)


def is_news(context: RequestContext, said: object) -> bool:
    """Whether the log has not said it yet of this request, which may ask once for each partition."""
    audited = getattr(context, "audited", None)
    if audited is None:
        audited = context.audited = set()
    if said in audited:
        return False
    audited.add(said)
    return True


def audit_line(context: RequestContext, operation: Operation, resource: ResourceType, name: str, ruling: Ruling) -> str:
    connection = context.connection
    kind = "".join(word.capitalize() for word in resource.name.split("_"))
    request = "".join(word.capitalize() for word in context.api_key.name.split("_"))
    line = (
        f"Principal = {connection.principal} is {'Allowed' if ruling.is_allowed else 'Denied'}"
        f" operation = {operation.name} from host = {connection.client_host}"
        f" on resource = {kind}:{PatternType.LITERAL.name}:{name}"
        f" for request = {request} with resourceRefCount = 1 based on rule {ruling}"
    )
    return line if line.isprintable() else line.encode("unicode_escape").decode()  # names come from clients
