"""The SCRAM credentials in the metadata log. Only `replay` and `replay_removal` change the credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
    from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A SCRAM credential, which a broker can use to verify proofs of the password, but not to create a proof."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class ScramCredentials:
    """The SCRAM credentials of all users. `by_user` contains the credentials of each user by mechanism number."""

    __slots__ = ("by_user",)

    def __init__(self) -> None:
        self.by_user: dict[str, dict[int, ScramCredential]] = {}

    def find(self, user: str, mechanism: int) -> ScramCredential | None:
        return self.by_user.get(user, {}).get(mechanism)

    def replay(self, record: UserScramCredentialRecord) -> None:
        self.by_user.setdefault(record.name, {})[record.mechanism] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def replay_removal(self, record: RemoveUserScramCredentialRecord) -> None:
        """Removes a credential. Does nothing if the credential does not exist."""
        credentials = self.by_user.get(record.name, {})
        credentials.pop(record.mechanism, None)
        if not credentials:
            self.by_user.pop(record.name, None)
