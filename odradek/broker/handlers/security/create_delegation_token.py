"""CreateDelegationToken (key 38), versions 1-3: a token with which its bearer logs in as the owner (KIP-48).

v2: flexible. v3: for another owner, which needs CREATE_TOKENS on that user (KIP-373); one's own needs no permission.
Answered when the token is recorded. Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from odradek.broker.metadata.decision import Decision
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.tokens.decisions import NewToken, create_token
from odradek.broker.security.tokens.image import DelegationToken
from odradek.broker.security.tokens.permission import check_allowed, needed_rules
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest

USER = "User"
ID_BYTES = 16  # 22 characters
KNOWS_REQUESTER = 3  # from this version on
NEVER = (-1, -1, -1)  # was it issued, does it expire, can it be renewed


def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext, broker: Broker
) -> CreateDelegationTokenResponse | Deferred[CreateDelegationTokenResponse]:
    owner = context.principal
    requester = context.principal if context.api_version >= KNOWS_REQUESTER else ""
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    answer: Deferred[CreateDelegationTokenResponse] = Deferred()

    def refused(error: KafkaError) -> CreateDelegationTokenResponse:
        is_told = error.code is not ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        response = _response(owner if is_told else context.principal, requester, NEVER)
        response.error_code = error.code.value
        return response

    try:
        check_allowed(context.connection)
        if owner != context.principal:
            context.require(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        rules = needed_rules(broker.config)
        renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
        if not all(principal.startswith(f"{USER}:") for principal in (owner, *renewers)):
            message = "Owners and renewers of delegation tokens are of the type User"
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, message)
    except KafkaError as error:
        return refused(error)
    wanted = NewToken(owner, context.principal, tuple(renewers), request.max_lifetime_ms)
    token_id = base64.urlsafe_b64encode(os.urandom(ID_BYTES)).rstrip(b"=").decode()

    def turn(image: MetadataImage) -> Decision[DelegationToken]:
        token, record = create_token(rules, wanted, token_id, context.now_ms)
        return Decision(token, (record,))

    def done(created: Deferred[DelegationToken]) -> None:
        try:
            token = created.outcome()
        except KafkaError as error:
            answer.resolve(refused(error))
            return
        assert isinstance(token, DelegationToken)

        response = _response(token.owner, requester, (token.issued_ms, token.expires_ms, token.max_ms))
        response.token_id, response.hmac = token_id, rules.proof(token_id)
        answer.resolve(response)

    broker.metadata.submit(turn).when_done(done)
    return answer


def _response(owner: str, requester: str, times_ms: tuple[int, int, int]) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    issued_ms, expires_ms, max_ms = times_ms
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=issued_ms,
        expiry_timestamp_ms=expires_ms,
        max_timestamp_ms=max_ms,
    )
