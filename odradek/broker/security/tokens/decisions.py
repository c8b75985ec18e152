"""Decides on the creation, renewal and expiry of delegation tokens, and on who may request them.

Source: docs/spec/security.md#s2-6.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odradek.broker.security.tokens.image import DelegationToken, DelegationTokens
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.api.context import ConnectionInfo
    from odradek.broker.configuration.config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The `delegation.token.*` settings."""

    secret: bytes = field(repr=False)
    max_lifetime_ms: int
    expiry_time_ms: int  # time from the creation or renewal of a token to its expiry

    def proof(self, token_id: str) -> bytes:
        """Returns the HMAC that the bearer of the token has to present."""
        return hmac.digest(self.secret, token_id.encode(), hashlib.sha512)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A request to create a token. If max_lifetime_ms is 0 or less, the token gets the longest possible lifetime."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


def create_token(rules: TokenRules, requested: NewToken, token_id: str, now_ms: int) -> tuple[DelegationToken, Message]:
    lifetime_ms = rules.max_lifetime_ms
    if 0 < requested.max_lifetime_ms < lifetime_ms:
        lifetime_ms = requested.max_lifetime_ms
    max_ms = now_ms + lifetime_ms
    expires_ms = min(max_ms, now_ms + rules.expiry_time_ms)
    token = DelegationToken(
        token_id, requested.owner, requested.requester, requested.renewers, now_ms, expires_ms, max_ms
    )
    return token, token_record(token)


def renew_token(
    tokens: DelegationTokens, rules: TokenRules, proof: bytes, principal: str, period_ms: int, now_ms: int
) -> tuple[int, Message]:
    """Renews a token. Returns its new expiry time and the record to write. Raises KafkaError.

    A `period_ms` of 0 or less requests the longest possible period.
    """
    token = _found(tokens, rules, proof, principal)
    _require_lives(token, now_ms)
    period_ms = min(period_ms, rules.expiry_time_ms) if period_ms > 0 else rules.expiry_time_ms
    expires_ms = min(token.max_ms, now_ms + period_ms)
    return expires_ms, token_record(replace(token, expires_ms=expires_ms))


def expire_token(
    tokens: DelegationTokens, rules: TokenRules, proof: bytes, principal: str, period_ms: int, now_ms: int
) -> tuple[int, Message]:
    """Sets a token's expiry time to `period_ms` from now. Returns the expiry time and the record to write. Raises
    KafkaError.

    A negative `period_ms` removes the token immediately.
    """
    token = _found(tokens, rules, proof, principal)
    if period_ms < 0:
        return now_ms, RemoveDelegationTokenRecord(token_id=token.token_id)
    _require_lives(token, now_ms)
    expires_ms = min(token.max_ms, now_ms + period_ms)
    return expires_ms, token_record(replace(token, expires_ms=expires_ms))


def _require_lives(token: DelegationToken, now_ms: int) -> None:
    """Raises DELEGATION_TOKEN_EXPIRED if the token has expired. An expired token exists until it is removed, but its
    expiry time can no longer be changed."""
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The delegation token has expired")


def removals_of_expired(tokens: DelegationTokens, now_ms: int) -> list[Message]:
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in tokens.by_id.values()
        if token.is_expired(now_ms)
    ]


def visible_tokens(
    tokens: DelegationTokens,
    owners: Sequence[str] | None,
    principal: str,
    may_describe: Callable[[DelegationToken], bool],
) -> Iterator[DelegationToken]:
    """Yields the tokens that a principal is allowed to see.

    owners         only tokens that one of these principals owns, requested or may renew; None for all tokens
    may_describe   returns whether the principal may describe another user's token
    """
    requested = None if owners is None else frozenset(owners)
    for token in tokens.by_id.values():
        if requested is not None and requested.isdisjoint((token.owner, token.requester, *token.renewers)):
            continue
        if token.may_be_renewed_by(principal) or may_describe(token):
            yield token


def token_record(token: DelegationToken) -> Message:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )


def _found(tokens: DelegationTokens, rules: TokenRules, proof: bytes, principal: str) -> DelegationToken:
    found = [token for token in tokens.by_id.values() if hmac.compare_digest(rules.proof(token.token_id), proof)]
    if not found:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such delegation token")
    if not found[0].may_be_renewed_by(principal):
        message = "The delegation token belongs to another principal"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, message)
    return found[0]


ANONYMOUS = "User:ANONYMOUS"


def token_rules(config: BrokerConfig) -> TokenRules | None:
    """Returns the rules for tokens, or None if `delegation.token.secret.key` is not set, which disables tokens."""
    secret = config.delegation_token_secret_key
    if not secret:
        return None
    return TokenRules(secret.encode(), config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)


def check_allowed(connection: ConnectionInfo) -> None:
    """Checks that the client may request tokens. The client must be authenticated, but not with a delegation token.

    Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if connection.principal == ANONYMOUS or connection.is_token_authenticated:
        message = (
            "Delegation tokens can be managed only over a connection that was authenticated, and not with a"
            " delegation token"
        )
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, message)


def needed_rules(config: BrokerConfig) -> TokenRules:
    """Returns the rules for tokens. Raises DELEGATION_TOKEN_AUTH_DISABLED if tokens are disabled."""
    rules = token_rules(config)
    if rules is None:
        message = "Delegation tokens need delegation.token.secret.key"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, message)
    return rules
