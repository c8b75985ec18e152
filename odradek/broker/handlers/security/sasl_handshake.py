"""SaslHandshake (key 17), versions 0-1: chooses a SASL mechanism. v1: tokens follow in SaslAuthenticate.

`odradek.broker.security.sasl` answers those that begin an authentication. What gets here came where there is none to
begin: on a listener without SASL, or again within a second. Needs no permission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.broker.api.context import RequestContext
    from odradek.broker.broker import Broker
    from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest


def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext, broker: Broker) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE.value)
