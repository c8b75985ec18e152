"""CreateAcls (key 30), versions 1-3: adds ACLs. v2: flexible. v3: USER resources.

Needs ALTER on the cluster. Each ACL stands alone; those that are good are added together. Answered when they are
durable and in effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.context import AllowAll
from odradek.broker.metadata.acl_changes import create_acls as decide
from odradek.broker.metadata.acl_changes import new_acl
from odradek.broker.runtime.delayed import CloseConnection, Deferred
from odradek.broker.runtime.uuids import random_uuid
from odradek.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.acl_changes import Created
    from odradek.broker.security.acl.acls import Acl
    from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest


def create_acls(request: CreateAclsRequest, context: RequestContext, broker: Broker) -> Deferred[CreateAclsResponse]:
    if any(0 in _numbers(each) for each in request.creations):
        raise CloseConnection("an ACL of it leaves the type, pattern, operation or permission unknown")
    context.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    if isinstance(context.authorizer, AllowAll):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    wanted = [_acl(each) for each in request.creations]
    created = broker.metadata.submit(lambda image: decide(image, wanted, random_uuid))
    return created.then(_response)


def _numbers(asked: AclCreation) -> tuple[int, int, int, int]:
    return asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type


def _acl(asked: AclCreation) -> Acl | KafkaError:
    try:
        return new_acl(_numbers(asked), asked.resource_name, asked.principal, asked.host)
    except KafkaError as error:
        return error


def _response(results: Created) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message="")
            if error is None
            else AclCreationResult(error_code=error.code.value, error_message=error.message)
            for error in results
        ]
    )
