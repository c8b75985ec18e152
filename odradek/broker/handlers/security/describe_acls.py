"""DescribeAcls (key 29), versions 1-3: the ACLs that a filter matches, by resource. v2: flexible. v3: USER resources.

Needs DESCRIBE on the cluster. Answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll
from odradek.broker.runtime.delayed import CloseConnection
from odradek.broker.security.acl.filters import AclFilter
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest


def describe_acls(request: DescribeAclsRequest, context: RequestContext, broker: Broker) -> DescribeAclsResponse:
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.has_unset_number:
        raise CloseConnection("its filter of ACLs leaves a type, pattern, operation or permission unknown")
    context.require(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    if isinstance(context.authorizer, AllowAll):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for _, acl in broker.metadata.image.acls.items():
        if wanted.matches(acl):
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
