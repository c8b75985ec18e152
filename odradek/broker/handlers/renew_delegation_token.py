"""RenewDelegationToken (key 39), versions 1-2: puts off the time when a token expires (KIP-48).

v2: flexible. For its owner, who asked for it, and its renewers; needs no permission. Answered when it is recorded.
Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.decision import Decision
from odradek.broker.runtime.delayed import Deferred
from odradek.broker.security.tokens.decisions import renew_token
from odradek.broker.security.tokens.permission import check_allowed, needed_rules
from odradek.protocol.errors import KafkaError
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.metadata.image import MetadataImage
    from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest


def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext, broker: Broker
) -> Deferred[RenewDelegationTokenResponse]:
    check_allowed(context.connection)
    rules = needed_rules(broker.config)
    proof, period_ms, principal = bytes(request.hmac), request.renew_period_ms, context.principal
    answer: Deferred[RenewDelegationTokenResponse] = Deferred()

    def turn(image: MetadataImage) -> Decision[int]:
        expires_ms, record = renew_token(image.delegation_tokens, rules, proof, principal, period_ms, context.now_ms)
        return Decision(expires_ms, (record,))

    def done(decided: Deferred[int]) -> None:
        try:
            expires_ms = decided.outcome()
        except KafkaError as error:
            answer.resolve(RenewDelegationTokenResponse(error_code=error.code.value))
            return
        assert isinstance(expires_ms, int)
        answer.resolve(RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms))

    broker.metadata.submit(turn).when_done(done)
    return answer
