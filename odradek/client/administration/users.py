"""SCRAM credentials, ACLs and client quotas."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from odradek.client.administration.requests import AdminRequests
from odradek.client.common.errors import check
from odradek.protocol.acls import ANY_HOST, Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsMatchingAcl, DeleteAclsResponse
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from odradek.protocol.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from odradek.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from odradek.protocol.scram import MIN_ITERATIONS, NEW_SALT_BYTES, ScramMechanism, scram_upsertion

Credentials = Mapping[ScramMechanism, int]
"""The iteration count for each SCRAM mechanism that the user can log in with."""


async def describe_users(requests: AdminRequests, users: Iterable[str] | None = None) -> dict[str, Credentials]:
    """Returns the credentials of these users, or of all users if `users` is None. Users without credentials are left
    out."""
    named = None if users is None else [UserName(name=name) for name in dict.fromkeys(users)]
    answer = await requests.ask_any_broker(
        DescribeUserScramCredentialsRequest(users=named), DescribeUserScramCredentialsResponse
    )
    check(answer.error_code, "the SCRAM credentials", answer.error_message)
    found: dict[str, Credentials] = {}
    for each in answer.results:
        if each.error_code != ErrorCode.RESOURCE_NOT_FOUND.value:
            check(each.error_code, f"the user {each.user!r}", each.error_message)
            found[each.user] = {ScramMechanism(one.mechanism): one.iterations for one in each.credential_infos}
    return found


async def set_password(
    requests: AdminRequests, user: str, password: str, mechanism: ScramMechanism, iterations: int = MIN_ITERATIONS
) -> None:
    salt = secrets.token_bytes(NEW_SALT_BYTES)
    upsertion = await asyncio.to_thread(scram_upsertion, user, mechanism, password, iterations, salt)
    await _alter(requests, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_password(requests: AdminRequests, user: str, mechanism: ScramMechanism) -> None:
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism.value)
    await _alter(requests, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(requests: AdminRequests, request: AlterUserScramCredentialsRequest) -> None:
    answer = await requests.ask_any_broker(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        check(result.error_code, f"the user {result.user!r}", result.error_message)


F = TypeVar("F", DescribeAclsRequest, DeleteAclsFilter)  # DescribeAclsRequest and DeleteAclsFilter have equal fields

WITH_PATTERN_TYPES = 1  # first version of the three ACL requests with pattern types


@dataclass(frozen=True, slots=True)
class Acl:
    """An ACL. `principal` has the form `User:alice`. `host` is an address or `*`. `resource` is `kafka-cluster` if the
    ACL is for the cluster."""

    resource_type: ResourceType
    resource: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = ANY_HOST


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs. A field that is left out matches every ACL. `PatternType.MATCH` finds every ACL that applies to a
    resource with this name."""

    resource_type: ResourceType = ResourceType.ANY
    resource: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    pattern_type: PatternType = PatternType.ANY
    host: str | None = None


async def create_acls(requests: AdminRequests, acls: Iterable[Acl]) -> None:
    acl_filter = list(acls)
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
            for acl in acl_filter
        ]
    )
    answer = await requests.ask_any_broker(request, CreateAclsResponse, min_version=WITH_PATTERN_TYPES)
    for acl, result in zip(acl_filter, answer.results, strict=True):
        check(result.error_code, f"an ACL of {acl.principal}", result.error_message)


async def describe_acls(requests: AdminRequests, acl_filter: AclFilter) -> list[Acl]:
    request = _filter_message(DescribeAclsRequest, acl_filter)
    answer = await requests.ask_any_broker(request, DescribeAclsResponse, min_version=WITH_PATTERN_TYPES)
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


async def delete_acls(requests: AdminRequests, filters: Iterable[AclFilter]) -> list[Acl]:
    request = DeleteAclsRequest(filters=[_filter_message(DeleteAclsFilter, each) for each in filters])
    answer = await requests.ask_any_broker(request, DeleteAclsResponse, min_version=WITH_PATTERN_TYPES)
    deleted = []
    for result in answer.filter_results:
        check(result.error_code, "the ACLs", result.error_message)
        for each in result.matching_acls:
            check(each.error_code, f"an ACL of {each.principal}", each.error_message)
            deleted.append(_deleted_acl(each))
    return deleted


def _filter_message(kind: type[F], acl_filter: AclFilter) -> F:
    return kind(
        resource_type_filter=acl_filter.resource_type.value,
        resource_name_filter=acl_filter.resource,
        pattern_type_filter=acl_filter.pattern_type.value,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation.value,
        permission_type=acl_filter.permission.value,
    )


def _deleted_acl(each: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType(each.resource_type),
        each.resource_name,
        each.principal,
        Operation(each.operation),
        Permission(each.permission_type),
        PatternType(each.pattern_type),
        each.host,
    )


EXACT, DEFAULT = 0, 1  # match types for a component of a quota filter

QuotaEntity = Mapping[str, str | None]
"""The entity of a quota: a name for each entity type (`user`, `client-id` or `ip`). The name None means the default
entity of the type."""


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """An entity's quotas. `limits` maps names to values, as in `{"producer_byte_rate": 1048576.0}`."""

    entity: QuotaEntity
    limits: Mapping[str, float]


async def describe_quotas(requests: AdminRequests, entity: QuotaEntity, *, strict: bool = False) -> list[ClientQuota]:
    """Returns the quotas of all entities with these names, or of all entities if `entity` is empty. With `strict`,
    leaves out entities that also have names of other types."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    answer = await requests.ask_any_broker(request, DescribeClientQuotasResponse)
    check(answer.error_code, "the client quotas", answer.error_message)
    return [
        ClientQuota(
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]


async def alter_quotas(requests: AdminRequests, entity: QuotaEntity, limits: Mapping[str, float | None]) -> None:
    """Sets and removes an entity's limits. A value of None removes the limit. All other limits keep their values."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if limit is None else limit, remove=limit is None)
            for key, limit in limits.items()
        ],
    )
    answer = await requests.ask_any_broker(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for result in answer.entries:
        check(result.error_code, "the client quotas", result.error_message)
