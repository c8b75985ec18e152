"""The changes to ACLs, users and quotas that the page can make. `actions` describes the form of an action."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.http.page.actions import Fields, PageAction, check, invalid_request
from odradek.protocol.acls import ANY_HOST, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
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
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    NEW_SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramMechanism,
    scram_upsertion,
)

if TYPE_CHECKING:
    from enum import Enum

    from odradek.broker.http.page.served import View
    from odradek.broker.in_process.client import Ask

    E = TypeVar("E", bound=Enum)

ANY_VALUES = frozenset({"UNKNOWN", "ANY", "MATCH"})  # only allowed in filters
OPERATIONS = {each.name: each for each in Operation if each.name not in ANY_VALUES}
RESOURCES = {each.name: each for each in ResourceType if each.name not in ANY_VALUES}
PATTERNS = {each.name: each for each in PatternType if each.name not in ANY_VALUES}
PERMISSIONS = {each.name: each for each in Permission if each.name not in ANY_VALUES}
ACL_FIELDS = frozenset({"principal", "permission", "operation", "resource", "name", "pattern", "host"})
ENTITY_FIELDS = {"user": "user", "client_id": "client-id", "ip": "ip"}


async def add_acl(ask: Ask, fields: Fields) -> View:
    """Creates an ACL. By default, `permission` is ALLOW, `pattern` is LITERAL and `host` is *."""
    resource, name, pattern, principal, host, operation, permission = acl_of(fields)
    creation = AclCreation(
        resource_type=resource.value,
        resource_name=name,
        resource_pattern_type=pattern.value,
        principal=principal,
        host=host,
        operation=operation.value,
        permission_type=permission.value,
    )
    answer = await ask(CreateAclsRequest(creations=[creation]), CreateAclsResponse)
    (found,) = answer.results
    check(found.error_code, found.error_message)
    return {"done": f"The ACL of {principal} for {resource.name.lower().replace('_', ' ')} {name} is added."}


async def remove_acl(ask: Ask, fields: Fields) -> View:
    """Removes the ACL that has exactly these fields. Missing fields have the same default values as in `add_acl`."""
    resource, name, pattern, principal, host, operation, permission = acl_of(fields)
    acl_filter = DeleteAclsFilter(
        resource_type_filter=resource.value,
        resource_name_filter=name,
        pattern_type_filter=pattern.value,
        principal_filter=principal,
        host_filter=host,
        operation=operation.value,
        permission_type=permission.value,
    )
    answer = await ask(DeleteAclsRequest(filters=[acl_filter]), DeleteAclsResponse)
    (found,) = answer.filter_results
    check(found.error_code, found.error_message)
    if not found.matching_acls:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "There is no such ACL.")
    for each in found.matching_acls:
        check(each.error_code, each.error_message)
    return {"done": f"The ACL of {principal} for {resource.name.lower().replace('_', ' ')} {name} is removed."}


def acl_of(fields: Fields) -> tuple[ResourceType, str, PatternType, str, str, Operation, Permission]:
    resource = one_of(fields, "resource", RESOURCES)
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER and "name" not in fields else fields.text("name")
    return (
        resource,
        name,
        one_of(fields, "pattern", PATTERNS, PatternType.LITERAL),
        fields.text("principal"),
        fields.text("host") if "host" in fields else ANY_HOST,
        one_of(fields, "operation", OPERATIONS),
        one_of(fields, "permission", PERMISSIONS, Permission.ALLOW),
    )


def one_of(fields: Fields, name: str, allowed: Mapping[str, E], default: E | None = None) -> E:
    """Returns the allowed value that a field names. Ignores case and accepts spaces instead of underscores."""
    if name not in fields and default is not None:
        return default
    found = allowed.get(fields.text(name).upper().replace(" ", "_"))
    if found is None:
        raise invalid_request(f"{name} must be one of {', '.join(allowed)}")
    return found


async def set_password(ask: Ask, fields: Fields) -> View:
    """Creates a user with a SCRAM password, or changes the password. By default, `mechanism` is SCRAM-SHA-512."""
    user, mechanism, password = fields.text("user"), mechanism_of(fields), fields.text("password")
    iterations = fields.number("iterations", least=1, default=MIN_ITERATIONS)
    if iterations > MAX_ITERATIONS:  # checked here, because the broker only receives the hashed password
        raise invalid_request(f"iterations must be at most {MAX_ITERATIONS}")
    salt = secrets.token_bytes(NEW_SALT_BYTES)
    upsertion = await asyncio.to_thread(scram_upsertion, user, mechanism, password, iterations, salt)
    await alter_user(ask, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    return {"done": f"{user} can log in with {mechanism.sasl_name}."}


async def delete_password(ask: Ask, fields: Fields) -> View:
    user, mechanism = fields.text("user"), mechanism_of(fields)
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism.value)
    await alter_user(ask, AlterUserScramCredentialsRequest(deletions=[deletion]))
    return {"done": f"{user} no longer has a password for {mechanism.sasl_name}."}


def mechanism_of(fields: Fields) -> ScramMechanism:
    return one_of(fields, "mechanism", SCRAM_MECHANISMS, ScramMechanism.SHA_512)


async def alter_user(ask: Ask, request: AlterUserScramCredentialsRequest) -> None:
    (found,) = (await ask(request, AlterUserScramCredentialsResponse)).results
    check(found.error_code, found.error_message)


async def set_quota(ask: Ask, fields: Fields) -> View:
    """Sets one limit of an entity, which is named by `user`, by `client_id`, by `user` and `client_id`, or by `ip`. An
    empty string means all entities of that type that have no other quota. If `value` is missing, the limit is removed.
    """
    entity = [
        EntityData(entity_type=kind, entity_name=fields.any_text(field) or None)
        for field, kind in ENTITY_FIELDS.items()
        if field in fields
    ]
    if not entity:
        raise invalid_request(f"give at least one of the fields {', '.join(ENTITY_FIELDS)}")
    limit, is_removal = fields.text("limit"), "value" not in fields
    change = OpData(key=limit, value=0.0 if is_removal else fields.decimal("value"), remove=is_removal)
    answer = await ask(
        AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])]), AlterClientQuotasResponse
    )
    (found,) = answer.entries
    check(found.error_code, found.error_message)
    of = ", ".join(f"{each.entity_type} {each.entity_name or '(default)'}" for each in entity)
    return {"done": f"The quota {limit} of {of} is {'removed' if is_removal else 'set'}."}


SECURITY_ACTIONS: Mapping[str, PageAction] = {
    "add-acl": PageAction(add_acl, ACL_FIELDS),
    "remove-acl": PageAction(remove_acl, ACL_FIELDS),
    "set-password": PageAction(
        set_password, frozenset({"user", "password", "mechanism", "iterations"}), frozenset({"password"})
    ),
    "delete-password": PageAction(delete_password, frozenset({"user", "mechanism"})),
    "set-quota": PageAction(set_quota, frozenset({*ENTITY_FIELDS, "limit", "value"})),
}
