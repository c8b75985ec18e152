"""What a decision writes and arms: records of `__consumer_offsets`, and timers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from odradek.protocol.struct import Message


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of `__consumer_offsets`: typed, not yet bytes. No value means a tombstone."""

    key: Message
    value: Message | None
    value_version: int = 0


class TimerKind(Enum):
    SESSION = auto()  # a member was not heard of
    JOIN = auto()  # classic: the members had their time to join
    SYNC = auto()  # classic: the members had their time to ask for their assignment
    REVOCATION = auto()  # consumer: a member had its time to give up partitions
    REJOIN = auto()  # consumer: a member of the classic protocol had its time to join again, or to sync
    REGEX = auto()  # consumer: regular expressions are to be resolved

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python; every heartbeat arms a timer


class TimerKey(NamedTuple):
    """At most one timer runs per key; `member_id` where the timer is that of a member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class Timer(NamedTuple):
    """Arm the key's timer anew, or with no delay given, disarm it."""

    key: TimerKey
    delay_ms: int | None
