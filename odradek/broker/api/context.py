"""The request context: what a handler knows besides the request, such as the connection, the principal and the time."""

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
    """The part of a decision that the audit log tells (docs/spec/security.md#s5-1, 150)."""

    __hash__ = object.__hash__  # Enum's hashes the name, in Python

    CHECK = "check"  # that it was refused, at INFO; that it was allowed, at DEBUG
    PROBE = "probe"  # something else would do as well: that it was allowed, at DEBUG
    QUIET = "quiet"  # nothing depends on it: only at TRACE


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
        """Whether it is allowed, and the audit log need not say so. For fast paths, which leave the rest to others."""

    def allows_on_any(self, context: RequestContext, operation: Operation, resource: ResourceType) -> bool:
        """Whether there may be a resource of this type with which the principal may do this."""


class AllowAll:
    """No authorizer configured: as Kafka, everybody may do everything."""

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
    """The quotas of a request's client: see `odradek.broker.api.metered.MeteredRequest`."""

    @property
    def most_fetched_bytes(self) -> int | None:
        """Most bytes that one fetch may bring; None where that has no limit."""

    def throttles_fetch(self, answer: Message) -> bool:
        """Whether this answer to a Fetch must not be sent, but one without records."""

    @property
    def is_throttled_for_fetches(self) -> bool:
        """Whether this client has fetched too much already, before this request."""

    def take_partitions(self, count: int, *, is_strict: bool) -> None:
        """Charges this client for partitions that are to be created or deleted. See `odradek.broker.api.metered`, which
        raises THROTTLING_QUOTA_EXCEEDED (docs/spec/security.md#s4-3, row 147)."""


def refused(resource: ResourceType, api_key: ApiKey) -> KafkaError:
    """Makes the refusal for a client that has no right to the resource."""
    code, words = REFUSALS[resource]
    return KafkaError(code, None if facts_of(api_key).refuses_without_words else words)


Address: TypeAlias = tuple[str, int]  # host and port
IPV4_IN_IPV6: Final = "::ffff:"  # how a socket for both writes the address of an IPv4 peer


def ip_address(socket_address: Any) -> Address | None:
    """One end of a connection as a socket names it; None where the peer has gone already."""
    return (socket_address[0].removeprefix(IPV4_IN_IPV6), socket_address[1]) if socket_address else None


class Addresses(Protocol):
    """The addresses of brokers, as clients are told them."""

    def told(self, registered: Address, connection: ConnectionInfo) -> Address:
        """registered: the broker's address for the listener of this connection."""


def nobody_reads(throttle_ms: int) -> None:
    """Mutes nothing: the connection is closed."""


def nothing_unsent() -> int:
    """Counts nothing: the connection is closed."""
    return 0


@dataclass(slots=True)
class ConnectionInfo:
    """Facts about a peer, for as long as it stays connected."""

    connection_id: int
    client_host: str
    client_port: int
    listener: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    is_authenticated: bool = True  # False until a SASL exchange has ended well; the server closes those that take long
    is_token_authenticated: bool = False  # by a delegation token
    max_request_bytes: int = 0  # of a frame of this connection, at present
    sends_files: bool = False  # answers may hold a FileSlice
    # Told by ApiVersions v3+; Kafka's word for a client that never said.
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    arrived_at: Address = ("", 0)  # this end of the connection
    addresses: Addresses | None = field(default=None, repr=False, compare=False)
    told: Address | None = None  # the address of this broker that this client was given, once it has asked
    mute: Callable[[int], None] = field(default=nobody_reads, repr=False, compare=False)  # ms, in which to read nothing
    reads: int = 0  # how often bytes came: requests that came at once were sent before any of their answers
    got_all: bool = False  # the peer has ended its direction, and nothing was left to be sent then
    owner: object | None = field(default=None, repr=False, compare=False)  # the connection, while it is open
    # Bytes of answers that have not left.
    unsent_bytes: Callable[[], int] = field(default=nothing_unsent, repr=False, compare=False)
    transport: asyncio.Transport | None = field(default=None, repr=False, compare=False)  # TCP
    descriptor: int | None = field(default=None, repr=False, compare=False)  # of its socket, once somebody asked
    _on_close: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)

    @property
    def address(self) -> tuple[str, int]:
        """No two connections of this process have the same."""
        return self.listener, self.connection_id

    def endpoint(self, endpoints: Mapping[str, Address]) -> Address | None:
        """Returns where this client finds the broker that is registered with `endpoints`, which are by listener. None:
        nowhere, because that broker does not have the listener."""
        registered = endpoints.get(self.listener)
        if registered is None or self.addresses is None:
            return registered
        return self.addresses.told(registered, self)

    def when_closed(self, action: Callable[[], None]) -> None:
        """`action` runs once, after the requests that were in flight have been given up."""
        self._on_close.append(action)

    def closed(self) -> None:
        self.mute = nobody_reads
        self.owner = None
        self.unsent_bytes = nothing_unsent
        self.transport = None
        actions, self._on_close = self._on_close, []
        for action in actions:
            action()


class RequestContext:
    """One request's circumstances; `now_ms` is the wall clock when its last byte was there.

    `audited`, which only an authorizer sets, holds what its log says of this request already.
    """

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
        """None where no quota applies to the client."""
        return None

    @property
    def principal(self) -> str:
        return self.connection.principal

    def require(self, operation: Operation, resource: ResourceType, name: str) -> None:
        """Raises the resource's AUTHORIZATION_FAILED unless the principal may do this."""
        if not self.authorizer.allows(self, operation, resource, name):
            raise refused(resource, self.api_key)

    def __repr__(self) -> str:
        return (
            f"{self.api_key.name} v{self.api_version} correlation_id={self.correlation_id}"
            f" client_id={quoted(self.client_id)} from {self.connection.client_host}:{self.connection.client_port}"
        )
