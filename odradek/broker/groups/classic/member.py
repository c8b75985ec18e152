"""One member of a classic group, as the group sees it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from odradek.broker.groups.common.outcome import Token
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
