"""DescribeDelegationToken (key 41), versions 1-3: the tokens that a client may see, with what proves them (KIP-48).

v2: flexible. v3: who asked for them. One's own, asked for or to be renewed need no permission; others DESCRIBE on the
token or DESCRIBE_TOKENS on the owner. Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit
from odradek.broker.security.tokens.decisions import visible_tokens
from odradek.broker.security.tokens.permission import check_allowed, needed_rules
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.security.tokens.image import DelegationToken
    from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest

KNOWS_REQUESTER = 3  # from this version on


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext, broker: Broker
) -> DescribeDelegationTokenResponse:
    check_allowed(context.connection)
    rules = needed_rules(broker.config)

    def may_describe(token: DelegationToken) -> bool:
        return any(
            is_allowed(context, operation, resource, name, Audit.PROBE)
            for operation, resource, name in (
                (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id),
                (Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner),
            )
        )

    owners = None
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
    tokens = broker.metadata.image.delegation_tokens
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, rules.proof(token.token_id), tells_requester=context.api_version >= KNOWS_REQUESTER)
            for token in visible_tokens(tokens, owners, context.principal, may_describe)
        ]
    )


def _described(token: DelegationToken, proof: bytes, *, tells_requester: bool) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = (token.requester if tells_requester else "").partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=proof,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, _, name in renewers
        ],
    )
