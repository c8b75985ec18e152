"""A member of a classic group, and the topics that it subscribes to in its protocol metadata."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from odradek.broker.groups.common.outcome import Token
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group_request import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol names with their metadata, in the member's order of preference. Each name occurs once."""


@dataclass(frozen=True, slots=True)
class ClassicMember:
    member_id: str
    group_instance_id: str | None  # None for a dynamic member
    client_id: str
    client_host: str  # an address in Java's format, such as "/127.0.0.1"
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # The following fields exist in memory only.
    is_new: bool = False  # has not completed a rebalance yet, so its session can expire while its JoinGroup waits
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def shows_life_by_waiting(self) -> bool:
        """True if the member's session cannot expire because one of its requests is waiting for a response. A member
        cannot send heartbeats while it waits. A new member's session can expire even while it waits."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise RuntimeError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: Set[str]) -> str:
        """Returns the protocol in `candidates` that the member prefers. The candidates are the protocols that all
        members support."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise RuntimeError(f"member {self.member_id} supports none of {sorted(candidates)}")


def protocols_of(protocols: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Returns a request's protocols. If a name occurs more than once, the metadata of its first occurrence is used."""
    first: dict[str, bytes] = {}
    for protocol in protocols:
        first.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(first.items())


VERSION_BYTES = 2


def subscribed_topics(
    protocol_type: str | None, protocol_name: str | None, members: Iterable[ClassicMember]
) -> frozenset[str] | None:
    """Returns the topics that the members subscribe to.

    Returns None if the topics are unknown because the members are not consumers, because no protocol has been chosen,
    or because a member's metadata is not a readable subscription.
    """
    members = list(members)
    if protocol_type != "consumer":
        return None
    if not members:
        return frozenset()
    if protocol_name is None:
        return None
    topics: set[str] = set()
    try:
        for member in members:
            metadata = member.metadata(protocol_name)
            if len(metadata) < VERSION_BYTES:
                return None
            # All versions begin with the fields of version 0: the topics, then user data that the broker ignores.
            topics.update(decode(ConsumerProtocolSubscription, 0, metadata, VERSION_BYTES).topics)
    except MalformedMessage:
        return None
    return frozenset(topics)
