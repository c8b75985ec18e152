"""DeleteAcls (key 31), versions 1-3: removes the ACLs that filters match. v2: flexible. v3: USER resources.

Needs ALTER on the cluster. Answered when they are durably removed and of no effect any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll
from odradek.broker.metadata.acl_changes import delete_acls as decide
from odradek.broker.runtime.delayed import CloseConnection, Deferred
from odradek.broker.security.acl.filters import AclFilter
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.acl_changes import Deleted
    from odradek.broker.security.acl.acls import Acl
    from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest


def delete_acls(request: DeleteAclsRequest, context: RequestContext, broker: Broker) -> Deferred[DeleteAclsResponse]:
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.resource_name_filter,
            each.pattern_type_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        for each in request.filters
    ]
    if any(each.has_unset_number for each in filters):
        raise CloseConnection("a filter of ACLs of it leaves a type, pattern, operation or permission unknown")
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if isinstance(context.authorizer, AllowAll):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return broker.metadata.submit(lambda image: decide(image, filters)).then(_response)


def _response(results: Deleted) -> DeleteAclsResponse:
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
