"""The authorizer at work: it decides by the ACLs of the metadata image, and writes each decision to the audit log.

One line a decision, to the logger `odradek.authorizer`, in Kafka's words (docs/spec/security.md#s5-1, 150): refused at
INFO, allowed at DEBUG, and what nothing depends on at TRACE. A request may name 100,000 topics, so that after
MOST_LINES of them the log only counts its decisions: a client must not be able to fill the disk.
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
    from odradek.broker.security.acl.authorizer import Ruling, StandardAuthorizer

AUDIT_LOGGER = "odradek.authorizer"
TRACE = logging.NOTSET + 1

MOST_LINES = 100  # of one request, for single decisions
LONGEST_NAME = 300  # characters of a resource's name; names of topics have at most 249
COUNTED_AT = frozenset({1_000, 10_000, 100_000, 1_000_000})  # decisions of one request at which their number is logged

# How a decision is logged: if it was refused, if it was allowed.
LEVELS = {
    Audit.CHECK: (logging.INFO, logging.DEBUG),
    Audit.PROBE: (TRACE, logging.DEBUG),
    Audit.QUIET: (TRACE, TRACE),
}


def authorizer_of(config: BrokerConfig, acls: Acls, rules: KafkaRules = NEWEST) -> Authorizer:
    """
    acls   those of the metadata image
    rules  of the release that is followed
    """
    if not config.authorizer_class_name:
        return AllowAll()
    from odradek.broker.security.acl.authorizer import StandardAuthorizer  # here: most brokers have no authorizer

    return AuditedAuthorizer(
        StandardAuthorizer(
            acls,
            super_users(config.super_users),
            allows_everyone=allows_everyone(config.allow_everyone_if_no_acl_found),
            rules=rules,
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


class Audited:
    """What the log says of one request. lines: the decisions that have a line each; count: all of them so far"""

    __slots__ = ("count", "lines")

    def __init__(self) -> None:
        self.lines: set[object] = set()
        self.count = 0


def line_of(
    context: RequestContext, level: int, operation: Operation, resource: ResourceType, name: str, ruling: Ruling
) -> str | None:
    """Returns the line for a decision; None if the log has it already, since a request may ask once for each partition,
    or if the request has had all its lines."""
    audited = getattr(context, "audited", None)
    if not isinstance(audited, Audited):
        audited = context.audited = Audited()
    said = (level, operation, resource, name)
    if said in audited.lines:
        return None
    audited.count += 1
    if len(audited.lines) < MOST_LINES:
        audited.lines.add(said)
        return audit_line(context, operation, resource, name, ruling)
    if audited.count == MOST_LINES + 1:
        return (
            f"{request_words(context)} names so many resources that its other decisions are not logged one by one;"
            f" the last one that is: {audit_line(context, operation, resource, name, ruling)}"
        )
    if audited.count in COUNTED_AT:
        return f"{request_words(context)}: {audited.count} decisions so far"
    return None


def request_words(context: RequestContext) -> str:
    return printable(
        f"The request {_camel_case(context.api_key.name)} of Principal = {context.connection.principal}"
        f" from host = {context.connection.client_host}"
    )


def audit_line(context: RequestContext, operation: Operation, resource: ResourceType, name: str, ruling: Ruling) -> str:
    connection = context.connection
    kind, request = _camel_case(resource.name), _camel_case(context.api_key.name)
    return printable(
        f"Principal = {connection.principal} is {'Allowed' if ruling.is_allowed else 'Denied'}"
        f" operation = {operation.name} from host = {connection.client_host}"
        f" on resource = {kind}:{PatternType.LITERAL.name}:{shortened(name, LONGEST_NAME)}"
        f" for request = {request} with resourceRefCount = 1 based on rule {ruling}"
    )


def printable(line: str) -> str:
    """Escapes control characters: names come from clients."""
    return line if line.isprintable() else line.encode("unicode_escape").decode()


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
