"""RenewDelegationToken (key 39), versions 1-2: puts off the time when a token expires (KIP-48).

v2: flexible. For its owner, who asked for it, and its renewers; needs no permission. Answered when it is recorded.
Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers.security.delegation_token_lifetime import change_lifetime
from odradek.broker.security.tokens.decisions import renew_token
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.broker.runtime.delayed import Deferred
    from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest


def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext, broker: Broker
) -> Deferred[RenewDelegationTokenResponse]:
    period_ms = request.renew_period_ms
    return change_lifetime(renew_token, bytes(request.hmac), period_ms, RenewDelegationTokenResponse, context, broker)
