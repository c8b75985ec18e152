"""One member of a classic group, as the group sees it, and the topics that its metadata subscribes to."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from odradek.broker.groups.common.outcome import Token
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group_request import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""Names with their metadata, the member's favourite first. No name twice."""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    group_instance_id: str | None  # None: a dynamic member
    client_id: str
    client_host: str  # as Java prints an address: "/127.0.0.1"
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # In memory only, from here on.
    is_new: bool = False  # has not been through a rebalance: its session timer runs although it waits for its join
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def shows_life_by_waiting(self) -> bool:
        """A member that waits for an answer cannot send heartbeats meanwhile, so its session does not expire."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise RuntimeError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: Set[str]) -> str:
        """Its favourite among protocols that all members have."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise RuntimeError(f"member {self.member_id} supports none of {sorted(candidates)}")


def protocols_of(protocols: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """A name given twice counts once, with the metadata given first."""
    first: dict[str, bytes] = {}
    for protocol in protocols:
        first.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(first.items())


VERSION_BYTES = 2


def subscribed_topics(
    protocol_type: str | None, protocol_name: str | None, members: Iterable[Member]
) -> frozenset[str] | None:
    """None: cannot be known, because it is not a consumer group, or a client put something else into its metadata."""
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
            # Version 0 is the common beginning of all versions: the topics, and user data that nobody here reads.
            topics.update(decode(ConsumerProtocolSubscription, 0, metadata, VERSION_BYTES).topics)
    except MalformedMessage:
        return None
    return frozenset(topics)
