"""ExpireDelegationToken (key 40), versions 1-2: sets the time when a token expires, or removes it (KIP-48).

v2: flexible. For its owner, who asked for it, and its renewers; needs no permission. Answered when it is recorded.
Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers.security.delegation_token_lifetime import change_lifetime
from odradek.broker.security.tokens.decisions import expire_token
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest


def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext, broker: Broker
) -> Deferred[ExpireDelegationTokenResponse]:
    period_ms = request.expiry_time_period_ms
    return change_lifetime(expire_token, bytes(request.hmac), period_ms, ExpireDelegationTokenResponse, context, broker)
