"""Decides whether a principal may perform an operation, and which rule determines the decision. Source:
docs/spec/security.md#s3-1.

A decision depends only on the ACLs, two settings and the emulated release. Decisions are cached until the ACLs change.
Every call compares the number of ACL changes, so an outdated decision is never used.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

from odradek.broker.security.acl.acls import PROBED_NAME, Acl, Acls
from odradek.broker.security.acl.address_ranges import range_of
from odradek.protocol.acls import ANY_HOST, ANY_PRINCIPAL, Operation, PatternType, Permission, ResourceType
from odradek.protocol.kafka_rules import NEWEST, KafkaRules

MAX_CACHED_DECISIONS = 10_000  # the cache is cleared when it contains this many decisions
# Clients choose the names of resources, so decisions about longer names are not cached.
MAX_CACHED_NAME_LENGTH = 255

# Maps each operation to the other operations for which an ALLOW implies this operation. A DENY implies nothing.
IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
NOTHING: frozenset[Operation] = frozenset()


class Reason(Enum):
    SUPER_USER = "SuperUser"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"
    MATCHING_ACL = "MatchingAcl"


class AuthorizationDecision(NamedTuple):
    """The decision about an operation, and the reason for it. `acl` is the ACL that determined the decision, or None if
    no single ACL did."""

    is_allowed: bool
    reason: Reason
    acl: Acl | None = None

    def __str__(self) -> str:
        return self.reason.value if self.acl is None else f"{self.reason.value}(acl={self.acl})"


SUPER_USER = AuthorizationDecision(True, Reason.SUPER_USER)
DEFAULT_ALLOW = AuthorizationDecision(True, Reason.DEFAULT_ALLOW)
DEFAULT_DENY = AuthorizationDecision(False, Reason.DEFAULT_DENY)
Question: TypeAlias = tuple[str, str, Operation, ResourceType, str]  # principal, host, operation, type, name


class StandardAuthorizer:
    """Authorizes operations based on the cluster's ACLs and two settings.

    acls             the cluster's ACLs; the authorizer notices their changes
    super_users      principals that may do everything, compared as text
    allows_everyone  whether everyone may use a resource that no ACL applies to
    rules            the rules of the emulated release; before Kafka 4.4, the host of an ACL cannot be a range of
                     addresses
    """

    def __init__(
        self, acls: Acls, super_users: Collection[str], *, allows_everyone: bool, rules: KafkaRules = NEWEST
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._default = DEFAULT_ALLOW if allows_everyone else DEFAULT_DENY
        self._checks_ranges = rules >= KafkaRules.KAFKA_4_4
        self._cached: dict[Question, AuthorizationDecision] = {}
        self._cached_change = acls.changes

    def decide(self, *question: *Question) -> AuthorizationDecision:
        """Decides whether a principal may perform an operation on a resource.

        `question` consists of the principal, the host (the peer's address as text), the operation, and the type and
        name of the resource.
        """
        if self._cached_change == self._acls.changes:
            ruling = self._cached.get(question)
            if ruling is not None:
                return ruling
        return self._decide_anew(question)

    def _decide_anew(self, question: Question) -> AuthorizationDecision:
        cached = self._cached
        if self._cached_change != self._acls.changes or len(cached) >= MAX_CACHED_DECISIONS:
            cached.clear()
            self._cached_change = self._acls.changes
        ruling = self._decide(*question)
        if len(question[-1]) <= MAX_CACHED_NAME_LENGTH:
            cached[question] = ruling
        return ruling

    def _decide(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str
    ) -> AuthorizationDecision:
        if principal in self._super_users:
            return SUPER_USER
        host = host_key(host)
        implied_by = IMPLIED_BY.get(operation, NOTHING)
        allowing, ruling = None, self._default
        for acl in self._acls.applicable_to(resource, name):
            ruling = DEFAULT_DENY  # the default only applies to resources without ACLs
            if not is_about(acl, principal, host, checks_ranges=self._checks_ranges):
                continue
            if acl.operation is operation or acl.operation is Operation.ALL:
                if acl.permission is Permission.DENY:
                    return AuthorizationDecision(False, Reason.MATCHING_ACL, acl)
                allowing = allowing or acl
            elif acl.operation in implied_by and acl.permission is Permission.ALLOW:
                allowing = allowing or acl
        return ruling if allowing is None else AuthorizationDecision(True, Reason.MATCHING_ACL, allowing)

    def decide_on_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Returns whether there could be a resource of this type on which the principal may perform the operation."""
        if self.decide(principal, host, operation, resource, PROBED_NAME).is_allowed:
            return True
        host = host_key(host)
        allowed: list[Acl] = []
        denied_names, denied_prefixes = set(), set()
        for acl in self._acls.of_type(resource):
            if acl.operation not in (operation, Operation.ALL):
                continue
            if not is_about(acl, principal, host, checks_ranges=self._checks_ranges):
                continue
            if acl.permission is Permission.ALLOW:
                allowed.append(acl)
            elif acl.is_for_all_names:
                return False
            elif acl.pattern is PatternType.PREFIXED:
                denied_prefixes.add(acl.name)
            else:
                denied_names.add(acl.name)
        return any(
            acl.is_for_all_names
            or not (
                (acl.pattern is PatternType.LITERAL and acl.name in denied_names)
                or any(acl.name.startswith(prefix) for prefix in denied_prefixes)
            )
            for acl in allowed
        )


def is_about(acl: Acl, principal: str, host: str, *, checks_ranges: bool = True) -> bool:
    """Returns whether the ACL applies to this principal and host.

    host           a string returned by `host_key`
    checks_ranges  whether an ACL host with a slash is treated as a range of addresses, whatever the metadata.version
    """
    if acl.principal not in (principal, ANY_PRINCIPAL):
        return False
    if acl.host == ANY_HOST or host_key(acl.host) == host:
        return True
    hosts = range_of(acl.host) if checks_ranges else None
    return hosts is not None and hosts.contains(host)


def host_key(host: str) -> str:
    """Normalizes an IPv6 address, so that all notations of the address compare equal. Java writes IPv6 addresses in
    full, while Python abbreviates them. Returns any other string unchanged."""
    if ":" not in host:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        return host
