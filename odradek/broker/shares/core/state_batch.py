"""The state of records of a share partition, as partition leaders and the share coordinator exchange it."""

from __future__ import annotations

from typing import NamedTuple

UNDECIDED_START_OFFSET = -1  # the leader has still to choose it (share.auto.offset.reset)
UNKNOWN_COUNT = -1


class StateBatch(NamedTuple):
    """Offsets (both inclusive) that are in one state and were delivered equally often.

    delivery_state  the number on the wire and on disk; `tables.RecordState` names those that are known
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
