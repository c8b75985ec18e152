"""What RenewDelegationToken and ExpireDelegationToken share: one turn that changes when a token expires.

For its owner, who asked for it, and its renewers; needs no permission. Answered when it is recorded.
Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from odradek.broker.metadata.decision import Decision
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.tokens.decisions import TokenRules
from odradek.broker.security.tokens.image import DelegationTokens
from odradek.broker.security.tokens.permission import check_allowed, needed_rules
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage

# Tokens, rules, proof, principal, period in ms, now in ms → when it expires, and the record that says so.
Decide: TypeAlias = Callable[[DelegationTokens, TokenRules, bytes, str, int, int], tuple[int, Message]]
R = TypeVar("R", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def change_lifetime(
    decide: Decide, proof: bytes, period_ms: int, response: type[R], context: RequestContext, broker: Broker
) -> Deferred[R]:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED."""
    check_allowed(context.connection)
    rules = needed_rules(broker.config)
    answer: Deferred[R] = Deferred()

    def turn(image: MetadataImage) -> Decision[int]:
        tokens = image.delegation_tokens
        expires_ms, record = decide(tokens, rules, proof, context.principal, period_ms, context.now_ms)
        return Decision(expires_ms, (record,))

    def done(decided: Deferred[int]) -> None:
        try:
            expires_ms = decided.outcome()
        except KafkaError as error:
            answer.resolve(response(error_code=error.code.value))
            return
        assert isinstance(expires_ms, int)
        answer.resolve(response(expiry_timestamp_ms=expires_ms))

    broker.metadata.submit(turn).when_done(done)
    return answer
