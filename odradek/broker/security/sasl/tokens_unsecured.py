"""The validator of tokens without signatures, for development: whoever can reach the listener is who it says."""

from __future__ import annotations

from odradek.broker.security.sasl.claims import Rules, judge, split
from odradek.broker.security.sasl.oauthbearer import Bearer, InvalidToken

HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


class UnsecuredValidator:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def validate(self, token: str, now_ms: int) -> Bearer:
        parts = split(token)
        if parts.header.get("alg") != "none" or parts.signature:
            raise InvalidToken
        return judge(parts.claims, self._rules, now_ms)
