"""Decides on CreateAcls and DeleteAcls requests based on the metadata image. Source: docs/spec/security.md#s3-2, 117 to
127."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from odradek.broker.metadata.image import MetadataImage
from odradek.broker.metadata.records import MAX_RECORDS, Decision
from odradek.broker.metadata.supported_features import METADATA_VERSION_CIDR
from odradek.broker.security.acl.acls import Acl, AclFilter
from odradek.broker.security.acl.address_ranges import NotARange, is_written_as_range, range_written
from odradek.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.kafka_rules import NEWEST, KafkaRules
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

MAX_COMPARISONS = 200_000  # maximum number of comparisons of filters with ACLs per request; each takes a microsecond
_EXACT = (PatternType.LITERAL.value, PatternType.PREFIXED.value)

Created: TypeAlias = list[KafkaError | None]  # for each ACL: the error, or None if the ACL was created
Deleted: TypeAlias = list[list[Acl] | KafkaError]  # for each filter: the ACLs that it removed, or the error


def new_acl(numbers: tuple[int, int, int, int], name: str, principal: str, host: str) -> Acl:
    """Creates an ACL from the numbers of its resource type, pattern type, operation and permission. Raises
    INVALID_REQUEST."""
    try:
        resource, pattern = ResourceType(numbers[0]), PatternType(numbers[1])
        operation, permission = Operation(numbers[2]), Permission(numbers[3])
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The request contains an unknown type, pattern, operation or permission: {error}.",
        ) from None
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid_acl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid_acl("Invalid empty resource name")
    for one in (resource, operation, permission):
        if one.name in ("UNKNOWN", "ANY"):
            raise _invalid_acl(f"{one.name} is allowed only in filters: an ACL must name one {type(one).__name__}.")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid_acl(
            f"{pattern.name} is allowed only in filters: the pattern of an ACL must be LITERAL or PREFIXED."
        )
    if ":" not in principal:
        raise _invalid_acl(f"A principal must have the form type:name, such as User:alice, but is {principal!r}.")
    return Acl(resource, name, pattern, principal, host, operation, permission)


def create_acls(
    image: MetadataImage,
    requested: Sequence[Acl | KafkaError],
    new_uuid: Callable[[], bytes],
    rules: KafkaRules = NEWEST,
) -> Decision[Created]:
    """Decides which of the requested ACLs are created.

    Each ACL is accepted or refused separately. An ACL that already exists is accepted, but no record is written for it.
    Raises POLICY_VIOLATION if the request would create too many ACLs.

    rules  the rules of the emulated release; before Kafka 4.4, the host of an ACL can be any string
    """
    added: set[Acl] = set()
    results: Created = []
    records = []
    for acl in requested:
        if isinstance(acl, KafkaError):
            results.append(acl)
            continue
        refusal = _wrong_host(acl.host, image.metadata_version) if rules >= KafkaRules.KAFKA_4_4 else None
        results.append(refusal)
        if refusal is not None:
            continue
        if acl not in added and acl not in image.acls.of_pattern(acl.resource, acl.pattern, acl.name).values():
            added.add(acl)
            records.append(_record(new_uuid(), acl))
    _check_count(len(records))
    return Decision(results, tuple(records))


def _wrong_host(host: str, metadata_version: int) -> KafkaError | None:
    """Returns an error if an ACL must not have this host, otherwise None. Source: docs/spec/kafka-4.4.md#s5-4, R1 to R3
    and R7."""
    if not host:
        return _invalid_acl("Host pattern cannot be null or empty")
    if not is_written_as_range(host):
        return None
    if metadata_version < METADATA_VERSION_CIDR:
        what = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
    try:
        range_written(host)
    except NotARange as error:
        return _invalid_acl(f"Invalid CIDR notation '{host}': {error}")
    return None


def delete_acls(image: MetadataImage, filters: Sequence[AclFilter]) -> Decision[Deleted]:
    """Deletes the ACLs that match the filters. An ACL that matches several filters is reported for each filter. Raises
    POLICY_VIOLATION if too many ACLs match or too many comparisons are needed."""
    results: Deleted = []
    removed: dict[bytes, None] = {}
    candidates = _Candidates(image)
    for each in filters:
        if not each.is_known:
            results.append(_invalid_acl("The filter names a type, pattern, operation or permission that is unknown."))
            continue
        matching = [(acl_id, acl) for acl_id, acl in candidates.of(each) if each.matches(acl)]
        results.append([acl for _, acl in matching])
        removed.update((acl_id, None) for acl_id, _ in matching)
    _check_count(len(removed))
    return Decision(results, tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed))


class _Candidates:
    """Selects the ACLs to compare with a filter. If the filter names exactly one resource, these are the ACLs of that
    resource. Otherwise they are the ACLs of the filter's principal, or all ACLs if the filter names no principal."""

    def __init__(self, image: MetadataImage) -> None:
        self._acls = image.acls
        self._left = MAX_COMPARISONS
        self._by_principal: dict[str, list[tuple[bytes, Acl]]] | None = None

    def of(self, requested: AclFilter) -> Collection[tuple[bytes, Acl]]:
        """Returns the candidates of a filter. Raises POLICY_VIOLATION if the request needs too many comparisons."""
        found: Collection[tuple[bytes, Acl]]
        if requested.name is not None and requested.resource != ResourceType.ANY.value and requested.pattern in _EXACT:
            resource, pattern = ResourceType(requested.resource), PatternType(requested.pattern)
            found = self._acls.of_pattern(resource, pattern, requested.name).items()
        elif requested.principal is not None:
            found = self._principals().get(requested.principal, [])
        else:
            found = list(self._acls.items())
        self._left -= len(found)
        if self._left < 0:
            what = "The filters of the request match too much of too many ACLs: send them in several requests."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, what)
        return found

    def _principals(self) -> Mapping[str, list[tuple[bytes, Acl]]]:
        if self._by_principal is None:
            self._by_principal = {}
            for acl_id, acl in self._acls.items():
                self._by_principal.setdefault(acl.principal, []).append((acl_id, acl))
        return self._by_principal


def _record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource.value,
        resource_name=acl.name,
        pattern_type=acl.pattern.value,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.value,
        permission_type=acl.permission.value,
    )


def _check_count(records: int) -> None:
    if records > MAX_RECORDS:
        what = f"One request may change {MAX_RECORDS} ACLs; this would change {records}."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, what)


def _invalid_acl(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
