"""Presets in which a permission is withdrawn or a login expires while clients are using it."""

from __future__ import annotations

import base64

from odradek.broker.configuration.contradictions import allows_everyone
from odradek.broker.control.presets.parameters import Facts, Parameters
from odradek.broker.control.presets.preset_client import PresetClient
from odradek.broker.control.problems import Problem
from odradek.protocol.acls import Operation, PatternType, Permission, ResourceType
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse

ANYBODY = "User:*"
TOPIC_OPERATIONS = ("READ", "WRITE", "DESCRIBE")


async def rights_withdrawn(client: PresetClient, parameters: Parameters) -> Facts:
    """An operation on a topic that used to be allowed is now denied to `principal`. All other permissions remain. The
    cluster needs an authorizer and must allow access if no ACL matches.
    """
    config = client.broker.config
    if not config.authorizer_class_name or not allows_everyone(config.allow_everyone_if_no_acl_found):
        needed = "authorizer.class.name and allow.everyone.if.no.acl.found=true"
        raise Problem(409, f"the cluster needs {needed}", field="settings", allowed=needed)
    topic, principal = parameters.text("topic"), parameters.text("principal")
    operation = Operation[parameters.word("operation", TOPIC_OPERATIONS)]
    await client.topic(topic)
    rights = ((ANYBODY, Operation.ALL, Permission.ALLOW), (principal, operation, Permission.DENY))
    creations = [
        AclCreation(
            resource_type=ResourceType.TOPIC.value,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL.value,
            principal=whose,
            host="*",
            operation=what.value,
            permission_type=permission.value,
        )
        for whose, what, permission in rights
    ]
    await client.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
    return {"topic": topic, "principal": principal, "operation": operation.name}


async def expiring_token(client: PresetClient, parameters: Parameters) -> Facts:
    """A delegation token of `owner` expires after `lives_ms` on the cluster's clock. To log in with the token, clients
    use SCRAM with `tokenauth`. The user name is `token_id`, and the password is `hmac`.
    """
    if not client.broker.config.delegation_token_secret_key:
        setting = "delegation.token.secret.key"
        raise Problem(409, f"the cluster needs {setting}", field="settings", allowed=setting)
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=parameters.number("lives_ms", 1))
    owner = client.logged_in(parameters.text("owner"))
    token = await owner.ask(request, CreateDelegationTokenResponse)
    return {
        "owner": f"{token.principal_type}:{token.principal_name}",
        "token_id": token.token_id,
        "hmac": base64.b64encode(token.hmac).decode(),
        "expires_ms": token.expiry_timestamp_ms,
    }
