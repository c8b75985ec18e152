"""The committed offsets of one `__consumer_offsets` partition, and the offsets that are pending in open transactions.

This module contains only state, which it derives from records. Requests are handled in `offset_requests.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.struct import ZERO_UUID

Position = tuple[str, int]
"""Topic name and partition index."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int | None
    metadata: str
    committed_ms: int
    expires_ms: int | None  # only set by OffsetCommit versions 2-4
    topic_id: bytes  # ZERO_UUID if the id was not known when the offset was committed
    record_offset: int  # offset of the record in __consumer_offsets; of two commits, the higher offset wins


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[Position, CommittedOffset]] = {}
        self._pending: dict[int, dict[str, dict[Position, CommittedOffset]]] = {}  # by producer id and group
        self._open: dict[str, dict[Position, set[int]]] = {}  # group → position → producers with a pending offset

    # Reading.

    def of(self, group_id: str) -> Mapping[Position, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def open_positions(self, group_id: str) -> Mapping[Position, set[int]]:
        """Returns the positions that have offsets pending in open transactions, each with the producer ids of those
        transactions."""
        return self._open.get(group_id, {})

    def positions_of_topic(self, topic: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Yields the group, partition and offset of each committed or pending offset of a topic."""
        for by_group in (self._by_group, *self._pending.values()):
            for group_id, positions in by_group.items():
                for (name, partition), committed in positions.items():
                    if name == topic:
                        yield group_id, partition, committed

    def group_ids(self) -> list[str]:
        """Returns the ids of the groups that have committed offsets."""
        return list(self._by_group)

    @property
    def count(self) -> int:
        """The number of committed offsets. Pending offsets are not included."""
        return sum(len(positions) for positions in self._by_group.values())

    # Replay.

    def replay(
        self, group_id: str, position: Position, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Applies an offset record. `producer_id` is -1 outside transactions. A tombstone removes the committed offset
        and all pending offsets of the position."""
        if value is None:
            self._remove(group_id, position)
            return
        committed = CommittedOffset(
            offset=value.offset,
            leader_epoch=None if value.leader_epoch == -1 else value.leader_epoch,
            metadata=value.metadata,
            committed_ms=value.commit_timestamp,
            expires_ms=None if value.expire_timestamp == -1 else value.expire_timestamp,
            topic_id=value.topic_id,
            record_offset=record_offset,
        )
        if producer_id == -1:
            self._by_group.setdefault(group_id, {})[position] = committed
        else:
            self._pending.setdefault(producer_id, {}).setdefault(group_id, {})[position] = committed
            self._open.setdefault(group_id, {}).setdefault(position, set()).add(producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Commits or discards the pending offsets of this producer's transaction. A pending offset does not replace a
        committed offset whose record is later in the log."""
        for group_id, positions in self._pending.pop(producer_id, {}).items():
            for position, pending in positions.items():
                self._close(group_id, position, producer_id)
                if not committed:
                    continue
                offsets = self._by_group.setdefault(group_id, {})
                current = offsets.get(position)
                if current is None or pending.record_offset > current.record_offset:
                    offsets[position] = pending

    def _remove(self, group_id: str, position: Position) -> None:
        offsets = self._by_group.get(group_id)
        if offsets is not None and offsets.pop(position, None) is not None and not offsets:
            del self._by_group[group_id]
        for producer_id in list(self._open.get(group_id, {}).get(position, ())):
            by_group = self._pending[producer_id]
            by_group[group_id].pop(position, None)
            if not by_group[group_id]:
                del by_group[group_id]
            if not by_group:
                del self._pending[producer_id]
            self._close(group_id, position, producer_id)

    def _close(self, group_id: str, position: Position, producer_id: int) -> None:
        positions = self._open[group_id]
        positions[position].discard(producer_id)
        if not positions[position]:
            del positions[position]
        if not positions:
            del self._open[group_id]


def no_topic_conflict(stored: bytes, requested: bytes) -> bool:
    """Returns whether the two ids can belong to the same topic. ZERO_UUID can belong to any topic. A recreated topic
    must not inherit the offsets of the deleted topic."""
    return ZERO_UUID in (stored, requested) or stored == requested
