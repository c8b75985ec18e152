"""Handlers that create, renew, expire and describe delegation tokens (KIP-48). Source: docs/spec/security.md#s2-6."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from odradek.broker.api.authorized_operations import is_allowed
from odradek.broker.api.context import Audit, RequestContext
from odradek.broker.metadata.records import Decision
from odradek.broker.security.tokens.decisions import (
    NewToken,
    TokenRules,
    check_allowed,
    create_token,
    expire_token,
    needed_rules,
    renew_token,
    visible_tokens,
)
from odradek.broker.security.tokens.image import DelegationToken, DelegationTokens
from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.handlers.handler_broker import HandlerBroker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
    from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
    from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
    from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest

USER = "User"
ID_BYTES = 16  # encoded as 22 characters
FIRST_VERSION_WITH_REQUESTER = 3  # first version whose responses contain a token's requester
NEVER = (-1, -1, -1)  # issue, expiry and maximum times in a response that contains no token

# (tokens, rules, proof, principal, period in ms, now in ms) → (the new expiry time, the record that stores it)
NewExpiry: TypeAlias = Callable[[DelegationTokens, TokenRules, bytes, str, int, int], tuple[int, Message]]
R = TypeVar("R", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext, broker: HandlerBroker
) -> CreateDelegationTokenResponse:
    """Handles CreateDelegationToken (key 38), versions 1-3, which creates a token that lets its bearer log in as the
    owner.

    v2 is flexible. v3 allows a token for another owner, which needs CREATE_TOKENS on that user (KIP-373). A token for
    the client's own user needs no permission. The response is sent once the token is recorded.
    """
    owner = context.principal
    requester = context.principal if context.api_version >= FIRST_VERSION_WITH_REQUESTER else ""
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"

    try:
        check_allowed(context.connection)
        if owner != context.principal:
            context.require(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        rules = needed_rules(broker.config)
        renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
        if not all(principal.startswith(f"{USER}:") for principal in (owner, *renewers)):
            message = "Owners and renewers of delegation tokens must be of the type User"
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, message)
        new_token = NewToken(owner, context.principal, tuple(renewers), request.max_lifetime_ms)
        token_id = base64.urlsafe_b64encode(os.urandom(ID_BYTES)).rstrip(b"=").decode()

        def turn(image: MetadataImage) -> Decision[DelegationToken]:
            token, record = create_token(rules, new_token, token_id, context.now_ms)
            return Decision(token, (record,))

        token = await broker.metadata.submit(turn)
    except KafkaError as error:
        is_told = error.code is not ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        response = _create_response(owner if is_told else context.principal, requester, NEVER)
        response.error_code = error.code.value
        return response
    response = _create_response(token.owner, requester, (token.issued_ms, token.expires_ms, token.max_ms))
    response.token_id, response.hmac = token_id, rules.proof(token_id)
    return response


def _create_response(owner: str, requester: str, times_ms: tuple[int, int, int]) -> CreateDelegationTokenResponse:
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


async def change_lifetime(
    decide: NewExpiry, proof: bytes, period_ms: int, response: type[R], context: RequestContext, broker: HandlerBroker
) -> R:
    """Changes a token's expiry time in one metadata decision. Returns the response, which contains an error code if the
    decision fails.

    Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
    """
    check_allowed(context.connection)
    rules = needed_rules(broker.config)

    def turn(image: MetadataImage) -> Decision[int]:
        tokens = image.delegation_tokens
        expires_ms, record = decide(tokens, rules, proof, context.principal, period_ms, context.now_ms)
        return Decision(expires_ms, (record,))

    try:
        return response(expiry_timestamp_ms=await broker.metadata.submit(turn))
    except KafkaError as error:
        return response(error_code=error.code.value)


async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext, broker: HandlerBroker
) -> RenewDelegationTokenResponse:
    """Handles RenewDelegationToken (key 39), versions 1-2, which postpones a token's expiry.

    v2 is flexible. The token's owner, requester and renewers need no permission; other users are refused. The response
    is sent once the change is recorded.
    """
    period_ms = request.renew_period_ms
    return await change_lifetime(
        renew_token, bytes(request.hmac), period_ms, RenewDelegationTokenResponse, context, broker
    )


async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext, broker: HandlerBroker
) -> ExpireDelegationTokenResponse:
    """Handles ExpireDelegationToken (key 40), versions 1-2, which sets a token's expiry time or removes the token.

    v2 is flexible. The token's owner, requester and renewers need no permission; other users are refused. The response
    is sent once the change is recorded.
    """
    period_ms = request.expiry_time_period_ms
    return await change_lifetime(
        expire_token, bytes(request.hmac), period_ms, ExpireDelegationTokenResponse, context, broker
    )


def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext, broker: HandlerBroker
) -> DescribeDelegationTokenResponse:
    """Handles DescribeDelegationToken (key 41), versions 1-3, which returns the tokens that a client may see, with
    their HMACs.

    v2 is flexible. v3 adds the requesters. A client needs no permission for tokens that it owns, has requested or may
    renew. For other tokens, it needs DESCRIBE on the token or DESCRIBE_TOKENS on the owner.
    """
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
            _described_token(
                token, rules.proof(token.token_id), tells_requester=context.api_version >= FIRST_VERSION_WITH_REQUESTER
            )
            for token in visible_tokens(tokens, owners, context.principal, may_describe)
        ]
    )


def _described_token(token: DelegationToken, proof: bytes, *, tells_requester: bool) -> DescribedDelegationToken:
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
