"""SaslAuthenticate (key 36), versions 0-2: one token of a SASL exchange. v1: session lifetime. v2: flexible.

`odradek.broker.security.sasl` answers those of an exchange. What gets here came without one. Needs no permission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest

NO_EXCHANGE = "SaslAuthenticate request received after successful authentication"


def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext, broker: Broker
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.value, error_message=NO_EXCHANGE)
