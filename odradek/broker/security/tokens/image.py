"""The delegation tokens in the metadata log. Only `replay` and `replay_removal` change the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
    from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token. `owner`, `requester` and `renewers` are principals, such as `User:alice`. The token's HMAC is
    not stored, because it can be calculated from the id and one of the broker's secrets."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int  # time after which the token can no longer be renewed

    def may_be_renewed_by(self, principal: str) -> bool:
        """Returns whether the principal may renew and expire the token, as its owner, its requester or one of its
        renewers."""
        return principal in (self.owner, self.requester, *self.renewers)

    @property
    def ends_ms(self) -> int:
        """The time at which the token expires."""
        return min(self.expires_ms, self.max_ms)

    def is_expired(self, now_ms: int) -> bool:
        return self.ends_ms <= now_ms


class DelegationTokens:
    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[str, DelegationToken] = {}

    def replay(self, record: DelegationTokenRecord) -> None:
        self.by_id[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.expiration_timestamp,
            record.max_timestamp,
        )

    def replay_removal(self, record: RemoveDelegationTokenRecord) -> None:
        """Removes a token. Does nothing if the token does not exist."""
        self.by_id.pop(record.token_id, None)
