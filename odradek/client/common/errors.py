"""The client's errors, grouped by how to react to them.

| exception | what to do | |---|---| | `RetriableError` | repeat the call: the failure may be temporary | |
`AbortableError` | abort the transaction, then continue with the same producer | | `FatalError` | close this producer;
another instance may own its transactional id now | | `IllegalState` | correct the program: the call is not allowed now,
and nothing was sent | | `ClientError` itself | the broker refused only this operation (for example, the record is too
large) |
"""

from __future__ import annotations

from typing import ClassVar

from odradek.protocol.errors import ErrorCode


class ClientError(Exception):
    """Base class of all client errors. `code` is the broker's error code, or None if no broker answered."""

    is_fatal: ClassVar[bool] = False
    is_abortable: ClassVar[bool] = False
    is_retriable: ClassVar[bool] = False

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class RetriableError(ClientError):
    """A connection was lost, a time limit was exceeded, or a broker is not ready. The call can be repeated."""

    is_retriable = True


class AbortableError(ClientError):
    """The transaction can no longer be committed. Call `abort_transaction()`; then the producer can be used again."""

    is_abortable = True


class FatalError(ClientError):
    """The producer cannot continue. Close it."""

    is_fatal = True


class ProducerFenced(FatalError):
    """A newer instance with the same transactional id has taken over, or an operator has ended the transaction."""


class AuthorizationFailed(FatalError):
    """The broker does not allow this client to perform the operation."""


class AuthenticationFailed(FatalError):
    """The broker refused the login, or one side does not trust the other's TLS certificate.

    The login is not retried, because it would fail again with the same settings. `code` is None for TLS errors.
    """


class IllegalState(ClientError):
    """The state of the client does not allow the call. No request was sent."""


AUTHORIZATION = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)

# The codes of Kafka's RetriableException and its subclasses.
RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

# Errors after which the client's metadata must be refreshed.
STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

# Errors after which the coordinator must be looked up again.
STALE_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


def code_of(error_code: int) -> ErrorCode:
    """Returns the ErrorCode, or UNKNOWN_SERVER_ERROR for a code that only newer brokers use."""
    try:
        return ErrorCode(error_code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(code: ErrorCode, what: str, message: str | None = None) -> ClientError:
    """Returns the exception for an error code in the response to a request outside transactions. `what` names the
    operation or its object."""
    text = f"{what}: {code.name}{f' ({message})' if message else ''}"
    if code in RETRIABLE:
        return RetriableError(text, code)
    if code in AUTHORIZATION:
        return AuthorizationFailed(text, code)
    return ClientError(text, code)


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raises the exception that `refusal` returns, unless the code is 0."""
    if error_code != 0:
        raise refusal(code_of(error_code), what, message)
