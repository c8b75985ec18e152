"""CreateAcls and DeleteAcls: decisions about the image. Source: docs/spec/security.md#s3-2, 117 to 127."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from odradek.broker.metadata.decision import MAX_RECORDS, Decision
from odradek.broker.metadata.image import MetadataImage
from odradek.broker.security.acl.acls import Acl
from odradek.broker.security.acl.filters import AclFilter
from odradek.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

Created: TypeAlias = list[KafkaError | None]  # for each ACL, why it was refused
Deleted: TypeAlias = list[list[Acl] | KafkaError]  # for each filter, what it removed


def new_acl(numbers: tuple[int, int, int, int], name: str, principal: str, host: str) -> Acl:
    """numbers: of resource type, pattern type, operation and permission. Raises INVALID_REQUEST."""
    try:
        resource, pattern = ResourceType(numbers[0]), PatternType(numbers[1])
        operation, permission = Operation(numbers[2]), Permission(numbers[3])
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names something unknown: {error}.") from None
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    for one in (resource, operation, permission):
        if one.name in ("UNKNOWN", "ANY"):
            raise _invalid(f"{one.name} is for filters: an ACL names one {type(one).__name__}.")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"{pattern.name} is for filters: the pattern of an ACL is LITERAL or PREFIXED.")
    if ":" not in principal:
        raise _invalid(f"A principal is written type:name, such as User:alice; {principal!r} is not.")
    return Acl(resource, name, pattern, principal, host, operation, permission)


def create_acls(
    image: MetadataImage, wanted: Sequence[Acl | KafkaError], new_uuid: Callable[[], bytes]
) -> Decision[Created]:
    """Each stands alone; what is there already is not recorded again. Raises POLICY_VIOLATION for too many."""
    known = {acl for _, acl in image.acls.items()}
    results: Created = []
    records = []
    for acl in wanted:
        if isinstance(acl, KafkaError):
            results.append(acl)
            continue
        results.append(None)
        if acl not in known:
            known.add(acl)
            records.append(_record(new_uuid(), acl))
    _check_count(len(records))
    return Decision(results, tuple(records))


def delete_acls(image: MetadataImage, filters: Sequence[AclFilter]) -> Decision[Deleted]:
    """An ACL that several filters match is reported for each. Raises POLICY_VIOLATION for too many."""
    results: Deleted = []
    removed: dict[bytes, None] = {}
    for each in filters:
        if not each.is_known:
            results.append(_invalid("The filter names a type, pattern, operation or permission that is unknown."))
            continue
        matching = [(acl_id, acl) for acl_id, acl in image.acls.items() if each.matches(acl)]
        results.append([acl for _, acl in matching])
        removed.update((acl_id, None) for acl_id, _ in matching)
    _check_count(len(removed))
    return Decision(results, tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed))


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


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
