"""The types of groups, and what each contributes to the coordinator: one row of `PROTOCOLS`.

To add a type: a folder with a class that implements `Group`, the four functions of a row, the row, and for each of its
requests a function `(registry, request, now_ms) -> Outcome` and a method of `GroupCore` that calls it: every request of
a group enters there. The function finds the group in the registry, and so also decides how a request of one type is
answered by a group of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from odradek.broker.groups import recorded
from odradek.broker.groups.classic import requests as classic
from odradek.broker.groups.common.group import CoordinatorRecord, Group, GroupType, TimerKey
from odradek.broker.groups.common.outcome import Outcome, Reply
from odradek.broker.groups.common.registry import GroupRegistry
from odradek.broker.groups.consumer import lifecycle as consumer
from odradek.broker.groups.share import turn as share
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class RebalanceProtocol:
    """
    record_types  the numbers before the keys of its records, offsets excepted
    replay        applies one of them to the registry: makes the group, changes it, or removes it
    on_loaded     what a group that was read from the log asks for: timers, records that were due
    on_timer      what follows when one of its timers has fired
    unload        the answers to waiting requests, when the group is no longer coordinated here
    """

    record_types: frozenset[int]
    replay: Callable[[GroupRegistry, CoordinatorRecord], None]
    on_loaded: Callable[[GroupRegistry, Group, int], Outcome[None]] = recorded.on_loaded
    on_timer: Callable[[GroupRegistry, Group, TimerKey, int], Outcome[None]] = recorded.on_timer
    unload: Callable[[Group, ErrorCode], list[Reply]] = recorded.unload


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
        frozenset({17, 19, 20, 21, 22, 23}), partial(recorded.replay, group_type=GroupType.STREAMS)
    ),
}
REPLAYS: Final[Mapping[int, Callable[[GroupRegistry, CoordinatorRecord], None]]] = {
    record_type: protocol.replay for protocol in PROTOCOLS.values() for record_type in protocol.record_types
}
