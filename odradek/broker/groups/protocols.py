"""The group types and their operations; `PROTOCOLS` has one row for each type.

To add a type, create a folder with a class that implements `Group` and with the functions of a `RebalanceProtocol`, and
add a row. For each request of the type, add a function `(registry, request, now_ms) -> Outcome`. The function looks up
the group in the registry and also chooses the response if the group has another type. Then add a method of `GroupCore`
that calls the function, because `GroupCore` is the entry point of every group request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.broker.groups.classic import requests as classic
from odradek.broker.groups.common.group import CoordinatorRecord, Group, GroupType, TimerKey
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer import lifecycle as consumer
from odradek.broker.groups.share import turn as share
from odradek.broker.groups.streams import lifecycle as streams
from odradek.protocol.errors import ErrorCode


def no_replies(group: Group, code: ErrorCode) -> list[Reply]:
    """Returns an empty list. It is the `unload` operation of group types whose requests never wait."""
    return []


@dataclass(frozen=True, slots=True)
class RebalanceProtocol:
    """The operations of one group type.

    record_types  the record types of this group type, except offsets
    replay        applies a record to the registry: creates, changes or removes the group
    on_loaded     returns the timers and overdue records of a group that was loaded from the log
    on_timer      makes the decision that is due when one of the group's timers fires
    unload        returns the replies to waiting requests when this broker stops coordinating the group
    """

    record_types: frozenset[int]
    replay: Callable[[GroupRegistry, CoordinatorRecord], None]
    on_loaded: Callable[[GroupRegistry, Group, int], Outcome[None]]
    on_timer: Callable[[GroupRegistry, Group, TimerKey, int], Outcome[None]]
    unload: Callable[[Group, ErrorCode], list[Reply]] = no_replies


PROTOCOLS: Final[Mapping[GroupType, RebalanceProtocol]] = {
    GroupType.CLASSIC: RebalanceProtocol(
        frozenset({2}), classic.replay, classic.on_loaded, classic.on_timer, classic.unload
    ),
    GroupType.CONSUMER: RebalanceProtocol(
        frozenset({3, 4, 5, 6, 7, 8, 16}), consumer.replay, consumer.on_loaded, consumer.on_timer
    ),
    GroupType.SHARE: RebalanceProtocol(
        frozenset({10, 11, 12, 13, 14, 15}), share.replay, share.on_loaded, share.on_timer
    ),
    GroupType.STREAMS: RebalanceProtocol(
        frozenset({17, 19, 20, 21, 22, 23}), streams.replay, streams.on_loaded, streams.on_timer
    ),
}
REPLAYS: Final[Mapping[int, Callable[[GroupRegistry, CoordinatorRecord], None]]] = {
    record_type: protocol.replay for protocol in PROTOCOLS.values() for record_type in protocol.record_types
}
