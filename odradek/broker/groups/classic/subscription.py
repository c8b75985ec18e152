"""Reads the subscribed topics from the metadata of members with protocol type "consumer"."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.groups.classic.member import Member
from odradek.protocol.codec import decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

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
