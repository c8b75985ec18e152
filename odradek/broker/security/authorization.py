"""Authorizes requests based on the ACLs in the metadata image and writes the decisions to the audit log.

Each decision is one line in the logger `odradek.authorizer`, with the same wording as in Kafka
(docs/spec/security.md#s5-1, 150). Refusals are logged at INFO, grants at DEBUG, and decisions without consequences at
TRACE. A request can name 100,000 topics, so after MAX_LINES lines a request's decisions are only counted. Otherwise, a
client could fill the disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll, Audit, Authorizer, ConnectionInfo, RequestContext
from odradek.broker.configuration.contradictions import allows_everyone, super_users
from odradek.broker.security.acl.acls import PROBED_NAME, Acls
from odradek.protocol.acls import Operation, PatternType, ResourceType
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.quoting import shortened

if TYPE_CHECKING:
    from odradek.broker.configuration.config import BrokerConfig
    from odradek.broker.security.acl.authorizer import AuthorizationDecision, StandardAuthorizer

AUDIT_LOGGER = "odradek.authorizer"
TRACE = logging.NOTSET + 1

MAX_LINES = 100  # maximum number of lines per request for individual decisions
MAX_NAME_LENGTH = 300  # maximum length of a resource's name in a line; topic names have at most 249 characters
# The number of decisions in a request is logged when it reaches one of these values.
REPORTED_COUNTS = frozenset({1_000, 10_000, 100_000, 1_000_000})

# For each audit mode, the log levels of a refusal and of a grant.
LEVELS = {
    Audit.CHECK: (logging.INFO, logging.DEBUG),
    Audit.PROBE: (TRACE, logging.DEBUG),
    Audit.QUIET: (TRACE, TRACE),
}


def authorizer_of(config: BrokerConfig, acls: Acls, rules: KafkaRules = NEWEST) -> Authorizer:
    """Returns the configured authorizer.

    acls   the ACLs of the metadata image
    rules  the rules of the emulated release
    """
    if not config.authorizer_class_name:
        return AllowAll()
    # Imported here because most brokers have no authorizer.
    from odradek.broker.security.acl.authorizer import StandardAuthorizer

    return AuditedAuthorizer(
        StandardAuthorizer(
            acls,
            super_users(config.super_users),
            allows_everyone=allows_everyone(config.allow_everyone_if_no_acl_found),
            rules=rules,
        )
    )


class AuditedAuthorizer:
    """An authorizer that writes its decisions to the audit log. Only the loop thread may use this object."""

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
        if self._log.isEnabledFor(level):
            line = line_of(context, level, operation, resource, name, ruling)
            if line is not None:
                self._log.log(level, "%s", line)
        return ruling.is_allowed

    def passes(self, connection: ConnectionInfo, operation: Operation, resource: ResourceType, name: str) -> bool:
        ruling = self._decide(connection.principal, connection.client_host, operation, resource, name)
        return ruling.is_allowed and not self._log.isEnabledFor(logging.DEBUG)

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        if self.allows(context, operation, resource, PROBED_NAME, audit=Audit.PROBE):
            return True
        connection = context.connection
        return self._decide_on_any(connection.principal, connection.client_host, operation, resource)


class AuditState:
    """The audit log's state for one request.

    lines  the decisions that were logged individually
    count  the number of decisions so far
    """

    __slots__ = ("count", "lines")

    def __init__(self) -> None:
        self.lines: set[object] = set()
        self.count = 0


def line_of(
    context: RequestContext,
    level: int,
    operation: Operation,
    resource: ResourceType,
    name: str,
    ruling: AuthorizationDecision,
) -> str | None:
    """Returns the log line for a decision, or None if the decision must not be logged. A decision is logged only once,
    even if a request needs it for each partition. The number of lines per request is limited."""
    audited = getattr(context, "audited", None)
    if not isinstance(audited, AuditState):
        audited = context.audited = AuditState()
    logged = (level, operation, resource, name)
    if logged in audited.lines:
        return None
    audited.count += 1
    if len(audited.lines) < MAX_LINES:
        audited.lines.add(logged)
        return audit_line(context, operation, resource, name, ruling)
    if audited.count == MAX_LINES + 1:
        return (
            f"{request_words(context)} names so many resources that its further decisions are not logged individually;"
            f" the last logged decision is: {audit_line(context, operation, resource, name, ruling)}"
        )
    if audited.count in REPORTED_COUNTS:
        return f"{request_words(context)}: {audited.count} decisions so far"
    return None


def request_words(context: RequestContext) -> str:
    return printable(
        f"The request {_camel_case(context.api_key.name)} of Principal = {context.connection.principal}"
        f" from host = {context.connection.client_host}"
    )


def audit_line(
    context: RequestContext, operation: Operation, resource: ResourceType, name: str, ruling: AuthorizationDecision
) -> str:
    connection = context.connection
    kind, request = _camel_case(resource.name), _camel_case(context.api_key.name)
    return printable(
        f"Principal = {connection.principal} is {'Allowed' if ruling.is_allowed else 'Denied'}"
        f" operation = {operation.name} from host = {connection.client_host}"
        f" on resource = {kind}:{PatternType.LITERAL.name}:{shortened(name, MAX_NAME_LENGTH)}"
        f" for request = {request} with resourceRefCount = 1 based on rule {ruling}"
    )


def printable(line: str) -> str:
    """Escapes control characters, because clients choose the names in a line."""
    return line if line.isprintable() else line.encode("unicode_escape").decode()


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
