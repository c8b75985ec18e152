"""ACLs: who may do what on which resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from odradek.client.administration.asking import Asking
from odradek.client.common.errors import check
from odradek.protocol.acls import ANY_HOST, Operation, PatternType, Permission, ResourceType
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsMatchingAcl, DeleteAclsResponse
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse

F = TypeVar("F", DescribeAclsRequest, DeleteAclsFilter)  # whose fields have the same names

WITH_PATTERN_TYPES = 1  # the version of all three requests


@dataclass(frozen=True, slots=True)
class Acl:
    """`principal` as `User:alice`; `host` an address or `*`; `resource` is `kafka-cluster` for the cluster."""

    resource_type: ResourceType
    resource: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST


@dataclass(frozen=True, slots=True)
class AclFilter:
    """What it leaves out, any ACL has. `PatternType.MATCH` finds all that apply to the resource of this name."""

    resource_type: ResourceType = ResourceType.ANY
    resource: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None


async def create_acls(asking: Asking, acls: Iterable[Acl]) -> None:
    wanted = list(acls)
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type.value,
                resource_name=acl.resource,
                resource_pattern_type=acl.pattern_type.value,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation.value,
                permission_type=acl.permission.value,
            )
            for acl in wanted
        ]
    )
    answer = await asking.any_broker(request, CreateAclsResponse, min_version=WITH_PATTERN_TYPES)
    for acl, result in zip(wanted, answer.results, strict=True):
        check(result.error_code, f"an ACL of {acl.principal}", result.error_message)


async def describe_acls(asking: Asking, wanted: AclFilter) -> list[Acl]:
    request = _asked_for(DescribeAclsRequest, wanted)
    answer = await asking.any_broker(request, DescribeAclsResponse, min_version=WITH_PATTERN_TYPES)
    check(answer.error_code, "the ACLs", answer.error_message)
    return [
        Acl(
            ResourceType(resource.resource_type),
            resource.resource_name,
            acl.principal,
            Operation(acl.operation),
            Permission(acl.permission_type),
            PatternType(resource.pattern_type),
            acl.host,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]


async def delete_acls(asking: Asking, filters: Iterable[AclFilter]) -> list[Acl]:
    request = DeleteAclsRequest(filters=[_asked_for(DeleteAclsFilter, each) for each in filters])
    answer = await asking.any_broker(request, DeleteAclsResponse, min_version=WITH_PATTERN_TYPES)
    deleted = []
    for result in answer.filter_results:
        check(result.error_code, "the ACLs", result.error_message)
        for each in result.matching_acls:
            check(each.error_code, f"an ACL of {each.principal}", each.error_message)
            deleted.append(_deleted(each))
    return deleted


def _asked_for(kind: type[F], wanted: AclFilter) -> F:
    return kind(
        resource_type_filter=wanted.resource_type.value,
        resource_name_filter=wanted.resource,
        pattern_type_filter=wanted.pattern_type.value,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation.value,
        permission_type=wanted.permission.value,
    )


def _deleted(each: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType(each.resource_type),
        each.resource_name,
        each.principal,
        Operation(each.operation),
        Permission(each.permission_type),
        PatternType(each.pattern_type),
        each.host,
    )
