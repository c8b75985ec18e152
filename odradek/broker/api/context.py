"""The request context: facts about a request that the request itself does not contain, such as the connection, the
principal and the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from odradek.protocol.acls import Operation, ResourceType
from odradek.protocol.api_facts import facts_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.quoting import quoted
from odradek.protocol.struct import Message


class Audit(Enum):
    """The audit mode of an authorization decision. It determines which results are logged and at what level
    (docs/spec/security.md#s5-1, 150)."""

    __hash__ = object.__hash__  # Enum's own hash is slow, because it hashes the name in Python

    CHECK = "check"  # refusals at INFO, permissions at DEBUG
    PROBE = "probe"  # other resources may grant the same access: permissions at DEBUG, refusals only at TRACE
    QUIET = "quiet"  # the decision has no consequences: permissions and refusals only at TRACE


class Authorizer(Protocol):
    def allows(
        self,
        context: RequestContext,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        audit: Audit = Audit.CHECK,
    ) -> bool: ...

    def passes(self, connection: ConnectionInfo, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Returns whether the operation is allowed and need not be logged. Used by fast paths, which leave all other
        cases to `allows`."""

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        """Returns whether the principal may perform this operation on at least one possible resource of this type."""


class AllowAll:
    """The authorizer that is used if no authorizer is configured. As in Kafka, it allows every operation."""

    def allows(
        self,
        context: RequestContext,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        audit: Audit = Audit.CHECK,
    ) -> bool:
        return True

    def passes(self, connection: ConnectionInfo, operation: Operation, resource: ResourceType, name: str) -> bool:
        return True

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        return True


class AllowBroker(AllowAll):
    """The authorizer for the broker's own requests, used if an authorizer is configured for clients."""


REFUSALS: Final[Mapping[ResourceType, tuple[ErrorCode, str]]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    ResourceType.DELEGATION_TOKEN: (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        "Delegation Token authorization failed.",
    ),
    ResourceType.USER: (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."),
}


class Meter(Protocol):
    """The quotas of the client that sent a request; see `odradek.broker.api.metered.MeteredRequest`."""

    @property
    def max_fetched_bytes(self) -> int | None:
        """The maximum size of one fetch in bytes, or None if the size is unlimited."""

    def throttles_fetch(self, answer: Message) -> bool:
        """Returns whether this Fetch response must be replaced with a response without records."""

    @property
    def is_throttled_for_fetches(self) -> bool:
        """True if the client had already exceeded its fetch quota before this request."""

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Charges the client for partitions that it asks to create or delete. Can raise THROTTLING_QUOTA_EXCEEDED; see
        `odradek.broker.api.metered` (docs/spec/security.md#s4-3, row 147)."""


def authorization_error(resource: ResourceType, api_key: ApiKey) -> KafkaError:
    """Returns the error for a client that lacks permission for a resource."""
    code, words = REFUSALS[resource]
    return KafkaError(code, None if facts_of(api_key).refuses_without_words else words)


Address: TypeAlias = tuple[str, int]  # host and port
IPV4_IN_IPV6: Final = "::ffff:"  # prefix of IPv4 addresses on sockets that accept both IPv4 and IPv6


def ip_address(socket_address: Any) -> Address | None:
    """Returns the address of one end of a connection, or None if the peer has already disconnected. An IPv4 address in
    IPv6 notation is converted to IPv4."""
    return (socket_address[0].removeprefix(IPV4_IN_IPV6), socket_address[1]) if socket_address else None


class Addresses(Protocol):
    """Chooses the broker addresses to send to clients."""

    def address_for(self, registered: Address, connection: ConnectionInfo) -> Address:
        """Returns the broker's address to send to this client. `registered` is the broker's registered address for the
        connection's listener."""


def ignore_throttle(throttle_ms: int) -> None:
    """Does nothing, because the connection is closed."""


def nothing_unsent() -> int:
    """Returns 0, because the connection is closed."""
    return 0


@dataclass(slots=True)
class ConnectionInfo:
    """Information about a connected peer."""

    connection_id: int
    client_host: str
    client_port: int
    listener: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    # False until SASL authentication has succeeded. The server closes connections whose authentication takes too long.
    is_authenticated: bool = True
    is_token_authenticated: bool = False  # whether the peer logged in with a delegation token
    max_request_bytes: int = 0  # current size limit for a frame on this connection
    sends_files: bool = False  # whether responses may contain a FileSlice
    # Clients send these fields in ApiVersions v3 and later. "unknown" is Kafka's value for a client that has not sent
    # them.
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    local_address: Address = ("", 0)  # the broker's own address on this connection
    addresses: Addresses | None = field(default=None, repr=False, compare=False)
    # This broker's address as sent to the client, or None if the client has not requested one.
    advertised_address: Address | None = None
    # Stops reading from the connection for this many milliseconds.
    stop_reading: Callable[[int], None] = field(default=ignore_throttle, repr=False, compare=False)
    reads: int = 0  # number of reads; requests that arrive in one read were sent before any of them was answered
    got_all_responses: bool = False  # whether all responses had been sent when the peer half-closed the connection
    owner: object | None = field(default=None, repr=False, compare=False)  # the connection while it is open
    # Returns the number of unsent response bytes.
    unsent_bytes: Callable[[], int] = field(default=nothing_unsent, repr=False, compare=False)
    transport: asyncio.Transport | None = field(default=None, repr=False, compare=False)  # the TCP transport
    # file descriptor of the connection's socket, or None until it is needed
    descriptor: int | None = field(default=None, repr=False, compare=False)
    _on_close: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)

    @property
    def address(self) -> tuple[str, int]:
        """An address that is unique to this connection within the process."""
        return self.listener, self.connection_id

    def endpoint(self, endpoints: Mapping[str, Address]) -> Address | None:
        """Returns a broker's address for this client, or None if the broker does not have the client's listener.
        `endpoints` contains the broker's registered addresses by listener."""
        registered = endpoints.get(self.listener)
        if registered is None or self.addresses is None:
            return registered
        return self.addresses.address_for(registered, self)

    def when_closed(self, action: Callable[[], None]) -> None:
        """Registers an action to call once the connection is closed and its requests in flight are abandoned."""
        self._on_close.append(action)

    def notify_closed(self) -> None:
        self.stop_reading = ignore_throttle
        self.owner = None
        self.unsent_bytes = nothing_unsent
        self.transport = None
        actions, self._on_close = self._on_close, []
        for action in actions:
            action()


class RequestContext:
    """The context of one request. `now_ms` is the wall-clock time at which the last byte of the request arrived.
    Authorizers store their log lines about the request in `audited`; nothing else uses it."""

    __slots__ = (
        "api_key",
        "api_version",
        "audited",
        "authorizer",
        "client_id",
        "connection",
        "correlation_id",
        "now_ms",
    )

    audited: object

    def __init__(
        self,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        connection: ConnectionInfo,
        authorizer: Authorizer,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.connection = connection
        self.authorizer = authorizer

    @property
    def meter(self) -> Meter | None:
        """The client's quotas, or None if no quota applies to the client."""
        return None

    @property
    def principal(self) -> str:
        return self.connection.principal

    def require(self, operation: Operation, resource: ResourceType, name: str) -> None:
        """Raises the AUTHORIZATION_FAILED error for this resource type unless the principal may perform this
        operation."""
        if not self.authorizer.allows(self, operation, resource, name):
            raise authorization_error(resource, self.api_key)

    def __repr__(self) -> str:
        return (
            f"{self.api_key.name} v{self.api_version} correlation_id={self.correlation_id}"
            f" client_id={quoted(self.client_id)} from {self.connection.client_host}:{self.connection.client_port}"
        )
