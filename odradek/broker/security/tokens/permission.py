"""Who may ask about delegation tokens at all. Source: docs/spec/security.md#s2-6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.tokens.decisions import TokenRules
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.configuration.config import BrokerConfig

ANONYMOUS = "User:ANONYMOUS"


def token_rules(config: BrokerConfig) -> TokenRules | None:
    """None where `delegation.token.secret.key` is not set: there are no tokens then."""
    secret = config.delegation_token_secret_key
    if not secret:
        return None
    return TokenRules(secret.encode(), config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)


def check_allowed(connection: ConnectionInfo) -> None:
    """Tokens are for those who have shown who they are, and not by a token.

    Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if connection.principal == ANONYMOUS or connection.is_token_authenticated:
        message = "Delegation tokens are for connections that are authenticated, and not by a token"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, message)


def needed_rules(config: BrokerConfig) -> TokenRules:
    """Raises DELEGATION_TOKEN_AUTH_DISABLED."""
    rules = token_rules(config)
    if rules is None:
        message = "Delegation tokens need delegation.token.secret.key"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, message)
    return rules
