"""Decides on the changes in AlterUserScramCredentials and finds the credentials for DescribeUserScramCredentials.

Source: docs/spec/security.md#s2-3, 61 to 71.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.security.sasl.credentials import ScramCredential, ScramCredentials
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, client_key, server_key, stored_key
from odradek.protocol.struct import Message

if TYPE_CHECKING:
    from odradek.broker.runtime.slices import Steps

MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}
Altered: TypeAlias = Mapping[str, KafkaError | None]  # by user; None if the changes were made
Described: TypeAlias = Mapping[int, ScramCredential] | KafkaError  # credentials of one user, by mechanism


@dataclass(frozen=True, slots=True)
class CredentialDeletion:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class CredentialUpsertion:
    """A credential to set. `salted_password` is the result of SCRAM's salting. Clients never send the password
    itself."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


Change: TypeAlias = CredentialDeletion | CredentialUpsertion


def alter_credentials(credentials: ScramCredentials, changes: Sequence[Change]) -> Steps[tuple[Altered, list[Message]]]:
    """Decides on the changes. Returns one result per user, and the records to write. As in Kafka, a user named more
    than once is refused, even if the mechanisms differ."""
    counts = Counter(change.user for change in changes)
    results: dict[str, KafkaError | None] = {}
    records: list[Message] = []
    for change in changes:
        yield
        if counts[change.user] > 1:
            message = "A user credential cannot be altered twice in the same request"
            results[change.user] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            continue
        error = _error_in(credentials, change)
        results[change.user] = error
        if error is None:
            records.append(_record(change))
    return results, records


def describe_credentials(credentials: ScramCredentials, users: Sequence[str]) -> Iterator[tuple[str, Described]]:
    """Yields the credentials of these users, or of all users if none are named. Each user is returned once."""
    if not users:
        yield from sorted(credentials.by_user.items())
        return
    for user, count in Counter(users).items():
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            yield user, KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        elif user in credentials.by_user:
            yield user, credentials.by_user[user]
        else:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            yield user, KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)


def _error_in(credentials: ScramCredentials, change: Change) -> KafkaError | None:
    if not change.user:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, CredentialDeletion):
        if credentials.find(change.user, change.mechanism) is None:
            message = "Attempt to delete a user credential that does not exist"
            return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return None
    if change.iterations < MIN_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: the minimum is {MIN_ITERATIONS}")
    if change.iterations > MAX_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: the maximum is {MAX_ITERATIONS}")
    if not change.salted_password:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The salted password must not be empty")
    return None


def _record(change: Change) -> Message:
    if isinstance(change, CredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
    mechanism = MECHANISMS[change.mechanism]
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=stored_key(mechanism, client_key(mechanism, change.salted_password)),
        server_key=server_key(mechanism, change.salted_password),
        iterations=change.iterations,
    )
