"""The cluster's ACLs. `Acls` is the part of the metadata image that holds the ACLs.

Only `replay`, `add` and `remove` change an `Acls` object, one record at a time, both at startup and while the broker is
running. `AclFilter` selects ACLs for DescribeAcls and DeleteAcls. Source: docs/spec/security.md#s3-2, 124 and 125.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.acls import ANY_NAME, Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord

# If permission for any single resource is sufficient, Kafka first checks a resource with this name, so that super users
# pass.
PROBED_NAME = "hardcode"


class Acl(NamedTuple):
    resource: ResourceType
    name: str
    pattern: PatternType  # LITERAL or PREFIXED
    principal: str  # such as User:alice; compared as text
    host: str  # "*", a client's address as text, or a range of addresses
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """Formats the ACL as in Kafka's audit log."""
        return (
            f"StandardAcl[resourceType={self.resource.name}, resourceName={self.name},"
            f" patternType={self.pattern.name}, principal={self.principal}, host={self.host},"
            f" operation={self.operation.name}, permissionType={self.permission.name}]"
        )

    @property
    def is_for_all_names(self) -> bool:
        return self.pattern is PatternType.LITERAL and self.name == ANY_NAME


class Acls:
    """The cluster's ACLs by id. `changes` counts the changes, so that callers can detect outdated decisions."""

    def __init__(self) -> None:
        self.changes = 0
        self._by_id: dict[bytes, Acl] = {}
        self._literal: dict[tuple[ResourceType, str], dict[bytes, Acl]] = {}
        # Prefixes are also grouped by length, so that finding the prefixes of a name takes one lookup per length.
        self._prefixed: dict[ResourceType, dict[int, dict[str, dict[bytes, Acl]]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def items(self) -> Iterator[tuple[bytes, Acl]]:
        yield from self._by_id.items()

    def replay(self, record: AccessControlEntryRecord) -> None:
        """Adds the ACL in a record. Raises ValueError if this release does not know the record's resource type or
        operation."""
        acl = Acl(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            Operation(record.operation),
            Permission(record.permission_type),
        )
        self.add(record.id, acl)

    def add(self, acl_id: bytes, acl: Acl) -> None:
        if acl_id in self._by_id:
            self.remove(acl_id)
        self.changes += 1
        self._by_id[acl_id] = acl
        self._modifiable_of(acl)[acl_id] = acl

    def remove(self, acl_id: bytes) -> None:
        """Removes an ACL. Raises KeyError if there is no ACL with this id, which means that the log is corrupt."""
        self.changes += 1
        acl = self._by_id.pop(acl_id)
        named = self._modifiable_of(acl)
        del named[acl_id]
        if named:
            return
        if acl.pattern is PatternType.PREFIXED:
            of_length = self._prefixed[acl.resource]
            del of_length[len(acl.name)][acl.name]
            if not of_length[len(acl.name)]:
                del of_length[len(acl.name)]
        else:
            del self._literal[acl.resource, acl.name]

    def applicable_to(self, resource: ResourceType, name: str) -> Iterator[Acl]:
        """Yields the ACLs that apply to this resource, for all principals."""
        yield from self._literal.get((resource, name), {}).values()
        if name != ANY_NAME:
            yield from self._literal.get((resource, ANY_NAME), {}).values()
        for length, prefixed in self._prefixed.get(resource, {}).items():
            if length <= len(name):
                yield from prefixed.get(name[:length], {}).values()

    def of_pattern(self, resource: ResourceType, pattern: PatternType, name: str) -> Mapping[bytes, Acl]:
        """Returns the ACLs with exactly this resource type, pattern and name, by id."""
        if pattern is PatternType.PREFIXED:
            return self._prefixed.get(resource, {}).get(len(name), {}).get(name, {})
        return self._literal.get((resource, name), {})

    def of_type(self, resource: ResourceType) -> Iterator[Acl]:
        return (acl for acl in self._by_id.values() if acl.resource is resource)

    def _modifiable_of(self, acl: Acl) -> dict[bytes, Acl]:
        """Returns the modifiable dictionary of ACLs with the same type, pattern and name, and creates it if
        necessary."""
        if acl.pattern is PatternType.PREFIXED:
            of_length = self._prefixed.setdefault(acl.resource, {}).setdefault(len(acl.name), {})
            return of_length.setdefault(acl.name, {})
        return self._literal.setdefault((acl.resource, acl.name), {})


class AclFilter(NamedTuple):
    """A filter in a request. This release may not know its numbers. None and the number of ANY match everything."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def has_unset_number(self) -> bool:
        """Whether one of the numbers is 0. Kafka rejects a request with such a filter as malformed."""
        return 0 in (self.resource, self.pattern, self.operation, self.permission)

    @property
    def is_known(self) -> bool:
        """Whether this release knows all of the numbers."""
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
