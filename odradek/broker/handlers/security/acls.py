"""Handlers for ACLs: DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll, RequestContext
from odradek.broker.metadata import acl_changes
from odradek.broker.runtime.replies import CloseConnection
from odradek.broker.runtime.slices import Steps, sliced
from odradek.broker.runtime.uuids import random_uuid
from odradek.broker.security.acl.acls import Acl, AclFilter
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from odradek.protocol.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.acl_changes import Created, Deleted
    from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
    from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest


@sliced
def describe_acls(
    request: DescribeAclsRequest, context: RequestContext, broker: HandlerBroker
) -> Steps[DescribeAclsResponse]:
    """Handles DescribeAcls (key 29), versions 1-3, which returns the ACLs that match a filter, grouped by resource.

    v2 is flexible. v3 adds USER resources. Needs DESCRIBE on the cluster. The handler works in slices, so that other
    clients are served while many ACLs are compared.
    """
    requested = _filter(request)
    if requested.has_unset_number:
        raise CloseConnection("the ACL filter of the request leaves a type, pattern, operation or permission unknown")
    _require(Operation.DESCRIBE, context)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for _, acl in list(broker.metadata.image.acls.items()):
        yield
        if requested.matches(acl):
            key = acl.resource.value, acl.name, acl.pattern.value
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = DescribeAclsResource(
                    resource_type=key[0], resource_name=key[1], pattern_type=key[2], acls=[]
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation.value,
                    permission_type=acl.permission.value,
                )
            )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


async def create_acls(request: CreateAclsRequest, context: RequestContext, broker: HandlerBroker) -> CreateAclsResponse:
    """Handles CreateAcls (key 30), versions 1-3, which adds ACLs. v2 is flexible. v3 adds USER resources.

    Needs ALTER on the cluster. Each ACL is accepted or refused separately, and all accepted ACLs are added together.
    The response is sent once they are durable and in effect.
    """
    if any(0 in _numbers(each) for each in request.creations):
        raise CloseConnection("an ACL of the request leaves the type, pattern, operation or permission unknown")
    _require(Operation.ALTER, context)
    requested = [_acl(each) for each in request.creations]
    created = broker.metadata.submit(lambda image: acl_changes.create_acls(image, requested, random_uuid, broker.rules))
    return _create_response(await created)


def _require(operation: Operation, context: RequestContext) -> None:
    context.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if type(context.authorizer) is AllowAll:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _filter(request_filter: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        request_filter.resource_type_filter,
        request_filter.resource_name_filter,
        request_filter.pattern_type_filter,
        request_filter.principal_filter,
        request_filter.host_filter,
        request_filter.operation,
        request_filter.permission_type,
    )


def _numbers(creation: AclCreation) -> tuple[int, int, int, int]:
    return (
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )


def _acl(creation: AclCreation) -> Acl | KafkaError:
    try:
        return acl_changes.new_acl(_numbers(creation), creation.resource_name, creation.principal, creation.host)
    except KafkaError as error:
        return error


def _create_response(results: Created) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message="")
            if error is None
            else AclCreationResult(error_code=error.code.value, error_message=error.message)
            for error in results
        ]
    )


async def delete_acls(request: DeleteAclsRequest, context: RequestContext, broker: HandlerBroker) -> DeleteAclsResponse:
    """Handles DeleteAcls (key 31), versions 1-3, which removes the ACLs that match filters. v2 is flexible. v3 adds
    USER resources.

    Needs ALTER on the cluster. The response is sent once the removal is durable and the ACLs are no longer in effect.
    """
    filters = [_filter(each) for each in request.filters]
    if any(each.has_unset_number for each in filters):
        raise CloseConnection("an ACL filter of the request leaves a type, pattern, operation or permission unknown")
    _require(Operation.ALTER, context)
    return _delete_response(await broker.metadata.submit(lambda image: acl_changes.delete_acls(image, filters)))


def _delete_response(results: Deleted) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=found.code.value, error_message=found.message)
            if isinstance(found, KafkaError)
            else DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in found])
            for found in results
        ]
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource.value,
        resource_name=acl.name,
        pattern_type=acl.pattern.value,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation.value,
        permission_type=acl.permission.value,
    )
