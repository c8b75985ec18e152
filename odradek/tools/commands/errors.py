"""The commands' exit statuses and the wording of their errors.

| status | meaning |
|---|---|
| 0 | done |
| 1 | the broker rejected the request, or the command failed in another way |
| 2 | the command line is invalid; nothing was sent |
| 3 | no broker could be reached, or it did not answer in time |
| 4 | a topic, partition, group or transactional id in the command does not exist |
| 5 | not permitted |
| 6 | a comparison found differences |
| 130 | interrupted by Ctrl-C |

For some mistakes, the message explains more than the error itself does:

| mistake | message, status |
|---|---|
| no process listens on the port | `no broker can be reached at …: Connection refused`, 3 |
| no address was given, and no broker runs here | the same message, and how to start a broker or name another one, 3 |
| the host does not exist | `no broker can be reached at …: Name or service not known`, 3 |
| plain text is sent to a listener with TLS | `it answers with TLS …`, or `may require TLS or SASL`, 3 |
| the port belongs to HTTP | `it answers with HTTP`, 3 |
| the port never answers | `did not answer`, and the usual reasons, 3 |
| the broker advertises an address that clients cannot reach | the address, and `advertised.listeners`, 3 |
| a topic, partition, group or transactional id does not exist | its name, and how to list existing ones, 4 |
| the permission is missing, or the password is wrong | the permission, and how to add an ACL, 5 |
| more replicas than brokers | `there are fewer brokers than replicas`, 1 |
| a command changes a group that has members | `stop its members first`, 1 |
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.client.common.errors import AuthenticationFailed, ClientError
from odradek.protocol.errors import ErrorCode

DONE, REFUSED, MISUNDERSTOOD, UNREACHABLE, NOT_FOUND, NOT_PERMITTED, DIFFERENT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130


class CommandError(Exception):
    """A command failed. The message addresses the user who started the command."""

    def __init__(self, message: str, status: int = REFUSED) -> None:
        super().__init__(message)
        self.status = status


STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.NETWORK_EXCEPTION: UNREACHABLE,
    ErrorCode.REQUEST_TIMED_OUT: UNREACHABLE,
    ErrorCode.BROKER_NOT_AVAILABLE: UNREACHABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: UNREACHABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: UNREACHABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NOT_PERMITTED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NOT_PERMITTED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NOT_PERMITTED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NOT_PERMITTED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: NOT_PERMITTED,
    ErrorCode.ILLEGAL_SASL_STATE: NOT_PERMITTED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: NOT_PERMITTED,
}


def _needs(kind: str, option: str, operations: str) -> str:
    return (
        f"Your user needs an ACL for the {kind} ({operations}). A superuser can add one with `odradek acls add"
        f" {option} --allow-principal User:NAME --operation OPERATION`. Your user is the one that --profile,"
        " --command-config or -X specifies."
    )


ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.REQUEST_TIMED_OUT: "A port that accepts connections but never answers is usually not a Kafka listener, or"
    " it is behind a firewall.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`odradek topics list` shows all topics. Names are case-sensitive.",
    ErrorCode.GROUP_ID_NOT_FOUND: "`odradek groups list` shows all groups, `odradek share-groups list` only share"
    " groups.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _needs("topic", "--topic NAME", "READ, WRITE or DESCRIBE"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _needs("group", "--group NAME", "READ or DESCRIBE"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _needs("cluster", "--cluster", "CREATE, ALTER or DESCRIBE"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _needs(
        "transactional id", "--transactional-id NAME", "WRITE or DESCRIBE"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "Add --if-not-exists if this should not be an error.",
    ErrorCode.NON_EMPTY_GROUP: "Stop its members first: a group can be changed only while it has no members.",
    ErrorCode.UNKNOWN_MEMBER_ID: "Stop the group's members first: a group can be changed only while it has no members.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "First stop the members that read the topic.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker is too old to support this request.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The cluster has fewer brokers than requested replicas. `odradek cluster"
    " describe` lists the brokers.",
    ErrorCode.INVALID_PARTITIONS: "Partitions can be added, but not removed.",
}


def explained(error: Exception) -> tuple[int, str]:
    """Returns the exit status and the message for an error. Re-raises an unexpected error."""
    match error:
        case CommandError():
            return error.status, str(error)
        case ClientError():
            return _explained(error)
        case ValueError():
            return MISUNDERSTOOD, str(error)
        case OSError():
            return REFUSED, str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
    raise error


def _explained(error: ClientError) -> tuple[int, str]:
    if error.code is None and isinstance(error, AuthenticationFailed):  # TLS refused the connection
        return NOT_PERMITTED, str(error)
    if error.code is None:  # the error does not come from a broker
        return (UNREACHABLE if error.is_retriable else REFUSED), str(error)
    advice = ADVICE.get(error.code)
    return STATUS.get(error.code, REFUSED), f"{error}\n{advice}" if advice else str(error)
