"""Which ACLs a filter of DescribeAcls or DeleteAcls means. Source: docs/spec/security.md#s3-2, 124 and 125."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.security.acl.acls import Acl
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType


class AclFilter(NamedTuple):
    """The fields of a request, whose numbers may mean nothing. None and the numbers called ANY stand for all."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def has_unset_number(self) -> bool:
        """Kafka takes such a request for one that it cannot read."""
        return 0 in (self.resource, self.pattern, self.operation, self.permission)

    @property
    def is_known(self) -> bool:
        """Whether all numbers mean something."""
        return (
            self.resource in RESOURCES
            and self.pattern in PATTERNS
            and self.operation in OPERATIONS
            and self.permission in PERMISSIONS
        )

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ResourceType.ANY.value, acl.resource.value)
            and self._matches_pattern(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY.value, acl.operation.value)
            and self.permission in (Permission.ANY.value, acl.permission.value)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name = self.name
        if self.pattern in (PatternType.ANY.value, acl.pattern.value):
            return name is None or name == acl.name
        if self.pattern != PatternType.MATCH.value:
            return False
        if name is None or name == acl.name or acl.is_for_all_names:
            return True
        return acl.pattern is PatternType.PREFIXED and name.startswith(acl.name)


RESOURCES = frozenset(one.value for one in ResourceType)
PATTERNS = frozenset(one.value for one in PatternType)
OPERATIONS = frozenset(one.value for one in Operation)
PERMISSIONS = frozenset(one.value for one in Permission)
